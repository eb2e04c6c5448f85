//! One small server that takes any live audio in, keeps it steady, and plays it in sync everywhere.

#![forbid(unsafe_code)]

fn main() {}
