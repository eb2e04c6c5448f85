//! Files against other programs, and the allocations of a recording. One program, so that it is
//! linked once.

#[path = "../../../io/tests/allocations/counting.rs"]
mod counting;
mod framing_allocates_nothing;
mod recording;
