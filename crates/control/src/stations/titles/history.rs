//! The titles that a station has shown, each with its times and web listeners, whatever it came
//! from.
//!
//! The newest are in memory and in a file of lines of JSON, to which only lines are added, so that
//! a killed server loses no more than those of the last half second. A title has a line when it
//! begins and another one when it ends or more is known of it; the later one counts.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::clients::registry::WallTime;
use crate::stations::titles::json::title_and_artist;

/// The titles of a station, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct TitleHistory {
    titles: VecDeque<PlayedTitle>,
    /// Lines that are not in the file yet.
    unsaved: VecDeque<String>,
}

/// A title and when it was shown.
#[derive(Clone, Debug, PartialEq)]
struct PlayedTitle {
    /// Unix time in seconds.
    at: i64,
    /// When another one or none was shown; none while it is shown, or where the server was killed.
    end: Option<i64>,
    title: Option<String>,
    artist: Option<String>,
    album: Option<String>,
    duration_s: Option<f64>,
    /// Web listeners when it began.
    listeners: Option<u64>,
}

impl TitleHistory {
    /// Takes over what listeners are shown from now on. What has neither title nor performer ends
    /// the present title, and more about the present title is no other title.
    pub(crate) fn update(
        &mut self,
        now: WallTime,
        properties: &Map<String, Value>,
        listeners: usize,
    ) {
        let (title, artist) = title_and_artist(properties);
        let field = |name: &str| properties.get("metadata").and_then(|all| all.get(name));
        let album = field("album").and_then(Value::as_str).map(str::to_owned);
        let duration_s = field("duration").and_then(Value::as_f64);
        let current = self.titles.back_mut().filter(|last| last.end.is_none());
        if let Some(last) = current {
            if (&last.title, &last.artist) == (&title, &artist) {
                if (&last.album, last.duration_s) != (&album, duration_s) {
                    (last.album, last.duration_s) = (album, duration_s);
                    self.save_last();
                }
                return;
            }
            last.end = Some(now.sec.max(last.at));
            self.save_last();
        }
        if title.is_none() && artist.is_none() {
            return;
        }
        let listeners = u64::try_from(listeners).ok();
        let begun =
            PlayedTitle { at: now.sec, end: None, title, artist, album, duration_s, listeners };
        self.push(begun);
        self.save_last();
    }

    /// The title that is shown now.
    pub(crate) fn now(&self) -> Option<Value> {
        self.titles.back().map(PlayedTitle::json)
    }

    /// The titles that were first shown within a span of Unix time, both ends included.
    pub(crate) fn json(&self, from: i64, to: i64) -> Vec<Value> {
        let within = self.titles.iter().filter(|one| (from..=to).contains(&one.at));
        within.map(PlayedTitle::json).collect()
    }

    /// Reads the lines of a file. What is no line of a title is left out: the last one may have
    /// been cut by a kill.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let mut history = Self::default();
        for line in text.lines() {
            let Some(title) = PlayedTitle::from_line(line) else { continue };
            match history.titles.back_mut() {
                Some(last) if last.is_same(&title) => *last = title,
                _ => history.push(title),
            }
        }
        history
    }

    /// All titles as lines, of at most `most` bytes: without the oldest ones if need be.
    #[must_use]
    pub fn to_lines(&self, most: usize) -> String {
        let mut left = most;
        let lines = self.titles.iter().rev().map(PlayedTitle::line);
        let kept = lines.take_while(|line| {
            let fits = line.len() <= left;
            left = left.saturating_sub(line.len());
            fits
        });
        let kept: Vec<String> = kept.collect();
        kept.into_iter().rev().collect()
    }

    /// Takes the lines that are not in the file.
    pub(crate) fn take_unsaved(&mut self) -> Option<String> {
        (!self.unsaved.is_empty()).then(|| self.unsaved.drain(..).collect())
    }

    fn push(&mut self, title: PlayedTitle) {
        if self.titles.len() >= MAX_TITLES {
            self.titles.pop_front();
        }
        self.titles.push_back(title);
    }

    fn save_last(&mut self) {
        if self.unsaved.len() >= MAX_UNSAVED {
            self.unsaved.pop_front();
        }
        self.unsaved.extend(self.titles.back().map(PlayedTitle::line));
    }
}

impl PlayedTitle {
    fn json(&self) -> Value {
        json!({
            "at": self.at,
            "end": self.end,
            "title": self.title,
            "artist": self.artist,
            "album": self.album,
            "duration_s": self.duration_s,
            "listeners": self.listeners,
        })
    }

    fn line(&self) -> String {
        self.json().to_string() + "\n"
    }

    fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let title = Self {
            at: value["at"].as_i64()?,
            end: value["end"].as_i64(),
            title: text("title"),
            artist: text("artist"),
            album: text("album"),
            duration_s: value["duration_s"].as_f64(),
            listeners: value["listeners"].as_u64(),
        };
        (title.title.is_some() || title.artist.is_some()).then_some(title)
    }

    /// Whether both are lines of one title that was shown once.
    fn is_same(&self, other: &Self) -> bool {
        (self.at, &self.title, &self.artist) == (other.at, &other.title, &other.artist)
    }
}

/// Two days of a station that plays nothing but short titles, a week of usual ones; 200 kB.
const MAX_TITLES: usize = 2_000;

/// Lines that wait for a disk which cannot be written: as many as titles are kept, with their ends.
const MAX_UNSAVED: usize = 2 * MAX_TITLES;

#[cfg(test)]
mod tests {
    use aulos_proto::titles::TrackMetadata;

    use super::*;
    use crate::stations::titles::json::metadata;

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
        history.update(at(10), &properties("one", None), 0);
        history.update(at(12), &properties("one", Some("album")), 5);
        history.update(at(20), &Map::new(), 0);
        history.update(at(30), &properties("two", None), 2);
        history.update(at(40), &properties("one", None), 0);
        let all = history.json(0, i64::MAX);
        let times: Vec<_> = all.iter().map(|one| one["at"].as_i64().unwrap()).collect();
        assert_eq!(times, [10, 30, 40]);
        assert_eq!(all[0]["album"], "album");
        assert_eq!(history.json(11, 30).len(), 1);
        let ends: Vec<_> = all.iter().map(|one| one["end"].as_i64()).collect();
        assert_eq!(ends, [Some(20), Some(40), None]);
        let listeners: Vec<_> = all.iter().map(|one| one["listeners"].as_u64()).collect();
        assert_eq!(listeners, [Some(0), Some(2), Some(0)]);
    }

    #[test]
    fn the_oldest_title_makes_room() {
        let mut history = TitleHistory::default();
        for second in 0..3_000 {
            history.update(at(second), &properties(&format!("{second}"), None), 0);
        }
        let all = history.json(0, i64::MAX);
        assert_eq!((all.len(), &all[0]["title"]), (MAX_TITLES, &json!("1000")));
    }

    #[test]
    fn the_lines_of_a_file_give_the_same_titles_also_when_it_is_cut_anywhere() {
        let mut history = TitleHistory::default();
        let mut file = String::new();
        for (second, title) in [(10, "a \"quoted\""), (20, "zwölf"), (30, "c")] {
            history.update(at(second), &properties(title, None), 1);
            file += &history.take_unsaved().unwrap();
        }
        assert_eq!(history.take_unsaved(), None);
        let loaded = TitleHistory::from_lines(&file);
        assert_eq!(loaded.titles, history.titles);
        assert_eq!(TitleHistory::from_lines(&loaded.to_lines(usize::MAX)).titles, history.titles);
        for cut in (0..file.len()).filter(|cut| file.is_char_boundary(*cut)) {
            let cut = TitleHistory::from_lines(&file[..cut]);
            let times: Vec<_> = cut.titles.iter().map(|one| one.at).collect();
            assert_eq!(times, [10, 20, 30][..times.len()]);
        }
        let garbage = "{}\n[1]\n{\"at\":1}\n\0\n{\"at\":\"x\",\"title\":\"y\"}\n";
        assert!(TitleHistory::from_lines(garbage).titles.is_empty());
    }

    #[test]
    fn a_file_of_limited_size_has_the_newest_titles() {
        let mut history = TitleHistory::default();
        for second in 0..100 {
            history.update(at(second), &properties("title", None), 0);
            history.update(at(second), &Map::new(), 0);
        }
        let kept = history.to_lines(1_000);
        assert!(kept.len() <= 1_000 && kept.len() > 850, "{}", kept.len());
        let loaded = TitleHistory::from_lines(&kept);
        assert_eq!(loaded.titles.back(), history.titles.back());
        assert_eq!(TitleHistory::from_lines(&history.to_lines(10)).titles.len(), 0);
    }

    #[test]
    fn a_title_that_goes_on_after_a_restart_has_one_entry() {
        let mut before = TitleHistory::default();
        before.update(at(10), &properties("one", None), 0);
        let mut after = TitleHistory::from_lines(&before.take_unsaved().unwrap());
        after.update(at(20), &properties("one", None), 0);
        after.update(at(30), &properties("two", None), 0);
        let all = after.json(0, i64::MAX);
        assert_eq!((all.len(), &all[0]["end"]), (2, &json!(30)));
    }
}
