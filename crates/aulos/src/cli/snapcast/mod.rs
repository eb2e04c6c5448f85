//! Commands for the move from Snapcast: its programs by their own arguments.

pub(super) mod snapclient;
pub(super) mod snapserver;
