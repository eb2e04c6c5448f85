//! When players sound: measured from outside, with the same means for all of them.
//!
//! A player writes a file at the pace of a virtual card, and a library that is loaded into it logs
//! when it writes ([`write_stamps`]). The content says its position in every frame
//! ([`position_tone`]). Both together say what sounds when ([`playout`]). Between server and
//! players lies a network with chosen delays and losses ([`delayed_link`], [`delayed_network`]). An
//! announcement says when it begins by its edges ([`pulses`]).

pub mod delayed_link;
pub mod delayed_network;
pub mod playout;
pub mod plot;
pub mod position_tone;
pub mod pulses;
pub mod write_stamps;
