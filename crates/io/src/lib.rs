//! The edge: sockets, files, clocks, threads.
