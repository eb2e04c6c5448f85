//! The files of the page.
//!
//! They are ECMAScript modules that a browser loads as they are in the repository: there is no
//! build step, and no second form of a file that could differ from its source. The program contains
//! them, compressed once at its start. Their names have no hashes, so a browser asks for each file
//! again and gets a 304 while the program is the same.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

/// The environment variable that names a folder with the files of the page. Each request reads it
/// anew, for work on the page without a new program.
pub(super) const WEB_DIR_VARIABLE: &str = "AULOS_WEB_DIR";

/// The page itself.
const INDEX: &str = "index.html";

/// The meters of one station, for other programs to show.
const METER: &str = "meter.html";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Scripts and styles come from this server and as files only, so text that finds its way into the
/// page cannot run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    media-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

macro_rules! files {
    ($($kind:ident $name:literal,)*) => {
        &[$(($name, $kind, include_bytes!(concat!("../../web/", $name)))),*]
    };
}

/// Name, media type and contents of each file.
type EmbeddedFile = (&'static str, &'static str, &'static [u8]);

const FILES: &[EmbeddedFile] = files! {
    HTML "index.html",
    HTML "meter.html",
    CSS "aulos.css",
    SCRIPT "app.js",
    SCRIPT "cluster.js",
    SCRIPT "condition.js",
    SCRIPT "eventlog.js",
    SCRIPT "feed.js",
    SCRIPT "format.js",
    SCRIPT "history.js",
    SCRIPT "html.js",
    SCRIPT "live.js",
    SCRIPT "logs.js",
    SCRIPT "listen.js",
    SCRIPT "meter.js",
    SCRIPT "meters.js",
    SCRIPT "player/client.js",
    SCRIPT "player/clock.js",
    SCRIPT "player/decoder.js",
    SCRIPT "player/output.js",
    SCRIPT "player/protocol.js",
    SCRIPT "player/schedule.js",
    SCRIPT "plot.js",
    SCRIPT "recorder.js",
    SCRIPT "recordings.js",
    SCRIPT "relays.js",
    SCRIPT "rooms.js",
    SCRIPT "sound.js",
    SCRIPT "station.js",
    SCRIPT "store.js",
    SCRIPT "sync.js",
    SCRIPT "system.js",
    SCRIPT "talk.js",
    SCRIPT "talk/capture.js",
    SCRIPT "talk/microphone.js",
    SCRIPT "talk/talk.js",
    SCRIPT "vendor/hooks.js",
    SCRIPT "vendor/htm.js",
    SCRIPT "vendor/preact.js",
    SCRIPT "vendor/signals-core.js",
    SCRIPT "vendor/signals.js",
};

/// The files of the page, ready to send.
#[derive(Clone, Debug)]
pub(super) struct WebFiles {
    files: Arc<HashMap<&'static str, WebFile>>,
    /// The folder of [`WEB_DIR_VARIABLE`].
    folder: Option<Arc<PathBuf>>,
}

#[derive(Clone, Debug)]
struct WebFile {
    kind: &'static str,
    plain: Bytes,
    compressed: Bytes,
    /// The first half of the digest of the contents.
    tag: String,
}

impl WebFile {
    fn new(kind: &'static str, plain: Bytes) -> Self {
        let hash = digest(&SHA256, &plain);
        let tag = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Memory takes all.
        let written = encoder.write_all(&plain).and_then(|()| encoder.finish());
        Self { kind, plain, compressed: written.unwrap_or_default().into(), tag }
    }

    fn respond(&self, headers: &HeaderMap) -> Response {
        let given = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let is_compressed = !self.compressed.is_empty()
            && given(ACCEPT_ENCODING).is_some_and(|accepted| {
                accepted.split(',').any(|coding| matches!(coding.trim(), "gzip" | "*"))
            });
        let tag = format!("\"{}{}\"", self.tag, if is_compressed { "-gzip" } else { "" });
        let is_known = is_known(headers, &tag);
        let common = [
            (ETAG, tag),
            (CACHE_CONTROL, "no-cache".to_owned()),
            (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
            (VARY, "Accept-Encoding".to_owned()),
        ];
        if is_known {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let kind = [(CONTENT_TYPE, self.kind)];
        if is_compressed {
            let coding = [(CONTENT_ENCODING, "gzip")];
            return (common, kind, coding, self.compressed.clone()).into_response();
        }
        (common, kind, self.plain.clone()).into_response()
    }
}

impl WebFiles {
    /// The files of the program, or those of `folder`.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        if let Some(folder) = &folder {
            tracing::info!(folder = %folder.display(), "the page is read from a folder");
        }
        let files = FILES.iter().map(|&(name, kind, contents)| {
            (name, WebFile::new(kind, Bytes::from_static(contents)))
        });
        Self { files: Arc::new(files.collect()), folder: folder.map(Arc::new) }
    }

    /// The page.
    pub(super) async fn index(&self, headers: &HeaderMap) -> Response {
        self.file(INDEX, headers).await
    }

    /// The page with the meters of one station.
    pub(super) async fn meter(&self, headers: &HeaderMap) -> Response {
        self.file(METER, headers).await
    }

    /// A file of the page, by its name. Only the names of the table exist, in a folder too, so no
    /// path leads out of it.
    pub(super) async fn file(&self, name: &str, headers: &HeaderMap) -> Response {
        let Some((name, file)) = self.files.get_key_value(name) else {
            return (StatusCode::NOT_FOUND, "not found\n").into_response();
        };
        let Some(folder) = &self.folder else { return file.respond(headers) };
        let path = folder.join(name);
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        match read.map_err(std::io::Error::other).and_then(|read| read) {
            Ok(contents) => WebFile::new(file.kind, contents.into()).respond(headers),
            Err(error) => {
                let text = format!("cannot read `{name}` in {WEB_DIR_VARIABLE}: {error}\n");
                (StatusCode::NOT_FOUND, text).into_response()
            }
        }
    }
}

/// Whether the client has the contents with this entity tag (RFC 9110, 13.1.2).
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    known.is_some_and(|known| {
        known.split(',').map(str::trim).any(|one| one.trim_start_matches("W/") == tag || one == "*")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use axum::body::to_bytes;

    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn file(name: &str, pairs: &[(HeaderName, &str)]) -> Response {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(WebFiles::new(None).file(name, &headers(pairs)))
    }

    fn header(response: &Response, name: HeaderName) -> String {
        response.headers()[name].to_str().unwrap().to_owned()
    }

    fn body(response: Response) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(to_bytes(response.into_body(), 1 << 20)).unwrap().to_vec()
    }

    #[test]
    fn a_file_has_a_tag_by_which_a_browser_asks_again() {
        let first = file("app.js", &[]);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(header(&first, CONTENT_TYPE), SCRIPT);
        assert_eq!(header(&first, CACHE_CONTROL), "no-cache");
        let tag = header(&first, ETAG);
        let again = file("app.js", &[(IF_NONE_MATCH, &format!("\"x\", W/{tag}"))]);
        assert_eq!((again.status(), header(&again, ETAG)), (StatusCode::NOT_MODIFIED, tag.clone()));
        assert!(body(again).is_empty());
        assert_eq!(file("app.js", &[(IF_NONE_MATCH, "\"x\"")]).status(), StatusCode::OK);
        assert_ne!(header(&file("feed.js", &[]), ETAG), tag);
    }

    #[test]
    fn a_browser_that_takes_gzip_gets_gzip_with_a_tag_of_its_own() {
        let plain = file("vendor/preact.js", &[]);
        let packed = file("vendor/preact.js", &[(ACCEPT_ENCODING, "deflate, gzip, br")]);
        assert_eq!(header(&packed, CONTENT_ENCODING), "gzip");
        assert_eq!(header(&packed, VARY), "Accept-Encoding");
        assert_ne!(header(&packed, ETAG), header(&plain, ETAG));
        let packed = body(packed);
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked)
            .unwrap();
        let plain = body(plain);
        assert!(packed.len() < plain.len() / 2, "{} of {}", packed.len(), plain.len());
        assert_eq!(unpacked, plain);
    }

    #[test]
    fn only_the_names_of_the_table_exist() {
        for name in [
            "",
            "nothing.js",
            "../Cargo.toml",
            "vendor/../app.js",
            "vendor/VERSIONS",
            "/etc/passwd",
        ] {
            assert_eq!(file(name, &[]).status(), StatusCode::NOT_FOUND, "{name}");
        }
        let folder = std::env::temp_dir();
        let web = WebFiles::new(Some(folder.join("aulos-no-such-folder")));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for name in ["app.js", "../../../etc/passwd"] {
            let response = runtime.block_on(web.file(name, &headers(&[])));
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{name}");
        }
    }

    /// A module that is not in the table would be missing from the program, and one that is not
    /// preloaded costs a round trip. The player and the microphone are loaded when they are wanted.
    #[test]
    fn the_modules_import_each_other_by_relative_names_of_the_table() {
        let names: HashSet<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        let text = |name: &str| {
            let (.., contents) = FILES.iter().find(|(one, ..)| *one == name).unwrap();
            std::str::from_utf8(contents).unwrap()
        };
        let mut imported = HashSet::new();
        for (name, ..) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            let folder = name.rsplit_once('/').map_or(String::new(), |(at, _)| format!("{at}/"));
            let text = text(name);
            let ways = ["from", "import(", "addModule(new URL("];
            let imports = ways.iter().flat_map(|way| text.split(way)).filter_map(|rest| {
                let rest = rest.trim_start().strip_prefix('"')?;
                rest.split_once('"').map(|(path, _)| path)
            });
            for path in imports {
                let path = path.strip_prefix("./").unwrap_or_else(|| panic!("{name}: {path}"));
                let path = format!("{folder}{path}");
                assert!(names.contains(&path[..]), "{name} imports {path}");
                imported.insert(path);
            }
        }
        let (index, meter) = (text(INDEX), text(METER));
        for name in names.iter().filter(|name| name.ends_with(".js")) {
            let is_entry = ["app.js", "meter.js"].contains(name);
            assert!(imported.contains(*name) || is_entry, "{name} is not used");
            let preloaded = if *name == "meter.js" { meter } else { index };
            let is_preloaded = preloaded.contains(&format!("aulos/{name}\""));
            let is_late = name.starts_with("player/") || name.starts_with("talk/");
            assert_eq!(is_preloaded, !is_late, "{name} is preloaded, or not");
        }
    }

    /// The whole page, as it is sent without compression; the microphone took 10 kB more.
    #[test]
    fn the_files_are_small() {
        let bytes: usize = FILES.iter().map(|(.., contents)| contents.len()).sum();
        assert!(bytes <= 278_000, "{bytes} bytes");
    }

    /// The policy refuses scripts and styles in attributes and other hosts.
    #[test]
    fn the_page_has_no_inline_script_or_style_and_names_no_other_host() {
        for (name, kind, contents) in FILES {
            let text = std::str::from_utf8(contents).unwrap();
            let text = text.replace("http://www.w3.org/", "");
            if !name.starts_with("vendor/") {
                for other in ["http://", "https://", "//cdn", "@import", "innerHTML", "eval("] {
                    assert!(!text.contains(other), "{name}: {other}");
                }
            }
            if *kind == HTML {
                assert_eq!(text.matches("<script").count(), text.matches("<script type=").count());
                assert!(!text.contains("<style") && !text.contains(" style="), "{name}");
                assert!(!text.contains("\"/"), "{name}: only relative addresses");
            }
        }
    }
}
