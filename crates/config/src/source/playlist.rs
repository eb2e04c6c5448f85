//! Files one after the other: `playlist:///FOLDER`, `playlist:///LIST.m3u`.

use std::path::{Path, PathBuf};

use aulos_core::{Lufs, Span};
use aulos_files::playlist::{PlaylistLoudness, PlaylistOptions};
use aulos_session::playlist::{JingleRule, PlayOrder, PlaylistConfig};

use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, keys};
use crate::limits::{JINGLE_EVERY, NO_REPEAT, PLAYLIST_CROSSFADE, PLAYLIST_TARGET};
use crate::source::kind::{LocalPath, SourceKind};
use crate::source::query::{Parsed, Query};
use crate::tree::Node;
use crate::units::format_span;

impl SourceKind for PlaylistOptions {
    fn scheme(&self) -> &'static str {
        "playlist"
    }

    fn is_on_demand(&self) -> bool {
        true
    }

    fn ends(&self) -> bool {
        self.order.order == PlayOrder::Once
    }

    fn can_skip(&self) -> bool {
        true
    }

    fn local_path(&self) -> Option<LocalPath<'_>> {
        Some(LocalPath::Playlist(&self.path))
    }

    fn confine(&mut self, roots: &[PathBuf]) {
        self.path = self.path.clone().confined_to(roots);
        self.jingles = self.jingles.take().map(|path| path.confined_to(roots));
    }
}

impl NamedEnum for PlayOrder {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("loop", Self::Loop), ("once", Self::Once), ("shuffle", Self::Shuffle)]
    }
}

impl NamedEnum for PlaylistLoudness {
    fn values() -> Vec<(&'static str, Self)> {
        vec![
            ("auto", Self::Auto),
            ("tags", Self::Tags),
            ("measure", Self::Measure),
            ("off", Self::Off),
        ]
    }
}

keys! {
    /// Parameters of `playlist:`.
    pub(crate) struct PlaylistParams {
        /// Order of the files: `loop`, that of their names or of the list, again and again; `once`, the same and then the end; `shuffle`, random, each file once before one is repeated.
        order: PlayOrder = PlayOrder::Loop;
        /// With `shuffle`: how many other files come between two plays of one, also from one round to the next.
        no_repeat: u32 = 0, range NO_REPEAT, "files";
        /// How long two files overlap, up to 10 s; without it they follow each other without a gap.
        crossfade: Span = Span::ZERO;
        /// How the files get one loudness: `auto`, by their tags (ReplayGain, R128), and a file without is measured before it is played; `tags`; `measure`; `off`.
        loudness: PlaylistLoudness = PlaylistLoudness::Auto;
        /// That loudness in LUFS. No gain raises a true peak above -1 dBTP.
        target: f64 = -18.0, range PLAYLIST_TARGET, "LUFS";
        /// A folder or list file with jingles, which are played in turn.
        jingles: Option<String>, default_doc "none";
        /// A jingle after this number of files.
        jingle_every: Option<u32>, range JINGLE_EVERY, "files", default_doc "never";
        /// A jingle at the first change of files from these minutes of an hour on, as in `0,30`.
        jingle_at: Minutes = Minutes(Vec::new()), default_doc "never";
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<PlaylistOptions> {
    let PlaylistParams {
        order,
        no_repeat,
        crossfade,
        loudness,
        target,
        jingles,
        jingle_every: every,
        jingle_at: Minutes(at_minutes),
        ..
    } = query.params();
    let path = query.path()?;
    if !PLAYLIST_CROSSFADE.contains(&crossfade) {
        let most = format_span(*PLAYLIST_CROSSFADE.end());
        let message =
            format!("`crossfade` is {}: it must be at most {most}", format_span(crossfade));
        return query.refuse(message, "crossfade=3s");
    }
    let jingles = jingles.map(PathBuf::from);
    if jingles.as_deref().is_some_and(Path::is_relative) {
        return query.refuse("`jingles` is no absolute path", "jingles=/srv/jingles");
    }
    if jingles.is_some() != (every.is_some() || !at_minutes.is_empty()) {
        let hint = "jingles=/srv/jingles&jingle_every=4, or jingle_at=0,30";
        return query.refuse("`jingles` and `jingle_every` or `jingle_at` belong together", hint);
    }
    let order = PlaylistConfig { order, no_repeat, jingles: JingleRule { every, at_minutes } };
    let (path, jingles, target) = (path.into(), jingles.map(Into::into), Lufs::new(target));
    Some(vec![PlaylistOptions { path, jingles, order, crossfade, loudness, target }])
}

/// Minutes of an hour, separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Minutes(Vec<u8>);

impl ConfigRead for Minutes {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let minute = |text: &str| text.trim().parse().ok().filter(|minute: &u8| *minute < 60);
            let minutes: Option<Vec<u8>> = text.split(',').map(minute).collect();
            minutes.map(Self).ok_or("minutes from 0 to 59, separated by commas")
        })
    }

    fn toml(&self) -> Option<String> {
        let minutes: Vec<String> = self.0.iter().map(u8::to_string).collect();
        (!minutes.is_empty()).then(|| quoted(&minutes.join(",")))
    }
}
