//! Reactors, datagram threads and sources with real sockets and files. One program, so that it is
//! linked once; the tests that count allocations are another one (`../allocations`).

mod fifo;
mod session;
mod udp;
