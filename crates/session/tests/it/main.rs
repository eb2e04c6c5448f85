//! RTP inputs and outputs in virtual time, and streams of FLAC. One program, so that it is linked
//! once.

mod flac_stream;
mod fuzz;
mod rtp_output;
mod rtp_source;
