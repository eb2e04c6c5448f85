//! Sans-IO peers and wire formats.

#![forbid(unsafe_code)]
