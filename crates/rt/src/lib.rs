//! Wait-free rings, pools and cells for real-time threads.
