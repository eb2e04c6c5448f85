//! The titles of a stream with their places.

use std::collections::VecDeque;

use aulos_core::MediaTime;
use aulos_proto::hls::{EventMessage, title_tag};

/// A title from its place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedTitle {
    pub(super) id: u32,
    pub(super) at: MediaTime,
    pub(super) text: String,
}

/// Titles in the order of their places: the one that holds, and those that follow.
#[derive(Debug, Default)]
pub(super) struct Titles {
    titles: VecDeque<PlacedTitle>,
}

impl Titles {
    /// Adds a title; one without text ends the one before and says nothing.
    pub(super) fn add(&mut self, id: u32, at: MediaTime, text: &str) {
        // A later title at an earlier place is the right one.
        let at = self.titles.back().map_or(at, |last| at.max(last.at));
        if self.titles.len() == MAX_TITLES {
            self.titles.pop_front();
        }
        self.titles.push_back(PlacedTitle { id, at, text: text.to_owned() });
    }

    /// Forgets what has ended before `from`.
    pub(super) fn drop_before(&mut self, from: MediaTime) {
        while self.titles.get(1).is_some_and(|next| next.at <= from) {
            self.titles.pop_front();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PlacedTitle> {
        self.titles.iter().filter(|title| !title.text.is_empty())
    }

    /// The title that holds at this place, which is not before that of the last call.
    pub(super) fn title_at(&mut self, at: MediaTime) -> Option<&str> {
        self.drop_before(at);
        let title = self.titles.front().filter(|title| title.at <= at && !title.text.is_empty());
        title.map(|title| &*title.text)
    }

    /// The events of a segment: its titles, and first the one that holds when it begins, for
    /// clients that join.
    pub(super) fn events(&mut self, from: MediaTime, until: MediaTime) -> Vec<EventMessage> {
        self.drop_before(from);
        let titles = self.iter().filter(|title| title.at < until);
        let event = |title: &PlacedTitle| EventMessage {
            time: title.at.max(from).0,
            id: title.id,
            tag: title_tag(&title.text),
        };
        titles.map(event).collect()
    }
}

/// Titles that are kept: one in each of some seconds for hours. A source that sends more loses the
/// oldest.
const MAX_TITLES: usize = 1_000;
