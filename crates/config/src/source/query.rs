//! The query of a source URI, read as a table of parameters.

use std::path::PathBuf;

use aulos_core::SampleSpec;
use aulos_proto::uri::Uri;

use crate::keys::{KeyTable, keys, table_of_kind};
use crate::problem::{ConfigLocation, Problems};
use crate::tree;

/// A source URI that is being parsed.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) at: ConfigLocation,
    pub(crate) problems: &'a Problems,
}

impl Query<'_> {
    /// Reads the parameters. `name` belongs to every scheme and is read elsewhere.
    pub(crate) fn params<T: KeyTable>(&self) -> T {
        let query = self.uri.query.iter().map(|(key, text)| (key.as_str(), text.as_str()));
        let node = tree::from_texts(query.filter(|(key, _)| *key != "name"), self.at);
        let path = format!("{}:", self.uri.scheme);
        table_of_kind(&node, path, ("parameter", &FOREIGN_PARAMETERS), self.problems)
    }

    /// The path of a source that is a file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let uri = self.uri;
        if uri.authority().is_empty() && uri.path.len() > 1 && !uri.path.contains('\0') {
            return Some(PathBuf::from(&uri.path));
        }
        let hint = format!("three slashes and a path, as in {}:///srv/music", uri.scheme);
        self.refuse(format!("\"{}\" has no path", uri.raw), &hint)
    }

    /// Reports a problem of the URI.
    pub(crate) fn refuse<T>(&self, message: impl Into<String>, hint: &str) -> Option<T> {
        self.problems.add_with_hint(self.at, message, hint);
        None
    }
}

/// What a parser gives: the settings of a source, several for `meta:`; none if the problem was
/// reported.
pub(crate) type Parsed<T> = Option<Vec<T>>;

keys! {
    /// Parameters of a scheme that has none.
    pub(crate) struct NoParams {}

    /// Parameters of raw or generated samples.
    pub(crate) struct SampleParams {
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

/// Parameters that other programs write into the source URI, and where they belong here.
const FOREIGN_PARAMETERS: [(&str, &str); 10] = [
    ("codec", "write `codec` into the [[station]]"),
    ("chunk_ms", "write `chunk_ms` into the [[station]]"),
    ("buffer_ms", "write `buffer_ms` into the [[station]]"),
    ("latency", "a table with a buffer: { uri = \"rtp://...\", input_buffer_ms = 200 }"),
    ("ptime", "leave it out: each packet contains its duration"),
    ("localaddr", "write `interface`, the name of the network interface or its address"),
    (
        "wd_timeout",
        "write `timeout`, the time without a sample after which the program is restarted",
    ),
    ("idle_threshold", "write `silence = { below_dbfs = -60.0, for_s = 10 }`"),
    ("controlscript", "write `plugin = { script = \"...\" }` into the [[station]]"),
    ("controlscriptparams", "write `plugin = { script = \"...\", params = \"...\" }`"),
];
