//! RTP inputs and outputs in virtual time. One program, so that it is linked once.

mod rtp_output;
mod rtp_source;
