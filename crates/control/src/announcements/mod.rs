//! Announcements over the programme of a station.

pub(crate) mod announce;
pub(crate) mod list;
