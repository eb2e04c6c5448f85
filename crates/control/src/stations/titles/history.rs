//! The titles that a station has shown, each with the time at which it was first shown, whatever it
//! came from. The list is in memory: a station that must account for what it has played fetches it
//! once a day, or more often.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::clients::registry::WallTime;
use crate::stations::title_json::title_and_artist;

/// The titles of a station, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct TitleHistory(VecDeque<PlayedTitle>);

/// A title and when it was first shown.
#[derive(Debug, PartialEq)]
struct PlayedTitle {
    /// Unix time in seconds.
    at: i64,
    title: Option<String>,
    artist: Option<String>,
    album: Option<String>,
    duration_s: Option<f64>,
}

impl TitleHistory {
    /// Takes over what listeners are shown from now on. What has neither title nor performer, and
    /// more about the present title, is no other title.
    pub(crate) fn update(&mut self, now: WallTime, properties: &Map<String, Value>) {
        let (title, artist) = title_and_artist(properties);
        if title.is_none() && artist.is_none() {
            return;
        }
        let field = |name: &str| properties.get("metadata").and_then(|all| all.get(name));
        let album = field("album").and_then(Value::as_str).map(str::to_owned);
        let duration_s = field("duration").and_then(Value::as_f64);
        if let Some(last) = self.0.back_mut()
            && (&last.title, &last.artist) == (&title, &artist)
        {
            (last.album, last.duration_s) = (album, duration_s);
            return;
        }
        if self.0.len() >= MAX_TITLES {
            self.0.pop_front();
        }
        self.0.push_back(PlayedTitle { at: now.sec, title, artist, album, duration_s });
    }

    /// The title that is shown now.
    pub(crate) fn now(&self) -> Option<Value> {
        self.0.back().map(PlayedTitle::json)
    }

    /// The titles that were first shown within a span of Unix time, both ends included.
    pub(crate) fn json(&self, from: i64, to: i64) -> Vec<Value> {
        self.0.iter().filter(|one| (from..=to).contains(&one.at)).map(PlayedTitle::json).collect()
    }
}

impl PlayedTitle {
    fn json(&self) -> Value {
        json!({
            "at": self.at,
            "title": self.title,
            "artist": self.artist,
            "album": self.album,
            "duration_s": self.duration_s,
        })
    }
}

/// Two days of a station that plays nothing but short titles; 200 kB.
const MAX_TITLES: usize = 2_000;

#[cfg(test)]
mod tests {
    use aulos_proto::titles::TrackMetadata;

    use super::*;
    use crate::stations::title_json::metadata;

    fn properties(title: &str, album: Option<&str>) -> Map<String, Value> {
        let title = TrackMetadata {
            title: Some(title.to_owned()),
            album: album.map(str::to_owned),
            ..TrackMetadata::default()
        };
        [("metadata".to_owned(), Value::Object(metadata(&title)))].into_iter().collect()
    }

    fn at(sec: i64) -> WallTime {
        WallTime { sec, usec: 0 }
    }

    #[test]
    fn a_title_is_kept_once_with_the_time_at_which_it_was_first_shown() {
        let mut history = TitleHistory::default();
        history.update(at(10), &properties("one", None));
        history.update(at(12), &properties("one", Some("album")));
        history.update(at(20), &Map::new());
        history.update(at(30), &properties("two", None));
        history.update(at(40), &properties("one", None));
        let all = history.json(0, i64::MAX);
        let times: Vec<_> = all.iter().map(|one| one["at"].as_i64().unwrap()).collect();
        assert_eq!(times, [10, 30, 40]);
        assert_eq!(all[0]["album"], "album");
        assert_eq!(history.json(11, 30).len(), 1);
    }

    #[test]
    fn the_oldest_title_makes_room() {
        let mut history = TitleHistory::default();
        for second in 0..3_000 {
            history.update(at(second), &properties(&format!("{second}"), None));
        }
        let all = history.json(0, i64::MAX);
        assert_eq!((all.len(), &all[0]["title"]), (MAX_TITLES, &json!("1000")));
    }
}
