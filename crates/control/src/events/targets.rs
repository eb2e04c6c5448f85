//! Targets of the lines in the log, short and the same in every version.

pub(crate) const STATION: &str = "station";
pub(crate) const CLIENT: &str = "client";
pub(crate) const ACCESS: &str = "access";
