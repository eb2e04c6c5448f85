//! Icecast's view of the server, for directories, widgets and statistics tools: `/status-json.xsl`,
//! `/admin/stats`, `/admin/listmounts` and `/admin/listclients`.
//!
//! A station is a source, and its mount is its path on the HTTP port, or on request that path with
//! the extension of another container. As in Icecast, one source is an object and several are a
//! list, and dates are those of RFC 822 and ISO 8601. Unlike there, a name that consists of digits
//! stays text.

use std::time::{Instant, SystemTime};

use aulos_config::StationSettings;
use aulos_core::{CodecInfo, SampleSpec};
use aulos_engine::encode::CodecConfig;
use aulos_proto::uri::percent_encode_url;
use serde_json::{Map, Value, json};

use crate::listeners::table::Listener;
use crate::markup::escape_markup;
use crate::stations::titles::json::title_and_artist;
use crate::stations::view::StationView;
use crate::views::dates::IcecastDate;

/// Sets the sources of a status. As in Icecast, one is an object, several are a list, and without
/// any the field is missing.
pub fn set_icecast_sources(status: &mut Value, mut sources: Vec<Value>) {
    let field = match sources.len() {
        0 => return,
        1 => sources.remove(0),
        _ => Value::Array(sources),
    };
    status["icestats"]["source"] = field;
}

/// The answer of a call for administrators, as XML.
#[must_use]
pub fn icecast_response(message: &str, is_done: bool) -> String {
    let (message, done) = (escape_markup(message), u8::from(is_done));
    format!(
        "{XML_HEAD}<iceresponse><message>{message}</message><return>{done}</return></iceresponse>\n"
    )
}

/// The server at one moment, as Icecast shows it.
#[derive(Debug)]
pub struct IcecastView {
    pub(super) host: String,
    pub(super) started: SystemTime,
    pub(super) now: Instant,
    /// Each station with its web listeners and the most of them at once.
    pub(super) stations: Vec<(StationView, Vec<Listener>, usize)>,
    /// Listeners since the start, and at present.
    pub(super) totals: (u64, usize),
}

impl IcecastView {
    /// The content of `/status-json.xsl`. `base` is the URL at which the client has reached this
    /// server, and `mount` limits the result to one source.
    #[must_use]
    pub fn status(&self, base: &str, mount: Option<&str>) -> Value {
        let start = IcecastDate::new(self.started);
        let hidden = self.hidden_mounts();
        let sources = self.sources(base, &start, mount);
        let is_shown = |path: &String| match mount {
            Some(mount) => mount == path,
            None => !hidden.contains(path),
        };
        let sources = sources
            .into_iter()
            .filter(|(path, _)| is_shown(path))
            .map(|(_, source)| Value::Object(source));
        let stats = json!({
            "admin": "",
            "host": self.host,
            "location": "",
            "server_id": concat!("aulos ", env!("CARGO_PKG_VERSION")),
            "server_start": start.rfc_822,
            "server_start_iso8601": start.iso_8601,
        });
        let mut status = json!({ "icestats": stats });
        set_icecast_sources(&mut status, sources.collect());
        status
    }

    /// The content of `/admin/stats` (all figures) and `/admin/listmounts` (`is_short`), as XML.
    #[must_use]
    pub fn stats(&self, base: &str, mount: Option<&str>, is_short: bool) -> String {
        let start = IcecastDate::new(self.started);
        let sources = self.sources(base, &start, mount);
        let (total, present) = self.totals;
        let mut xml = XML_HEAD.to_owned() + "<icestats>";
        if !is_short {
            for (name, value) in [
                ("client_connections", total.to_string()),
                ("clients", present.to_string()),
                ("host", self.host.clone()),
                ("listener_connections", total.to_string()),
                ("listeners", present.to_string()),
                ("server_id", concat!("aulos ", env!("CARGO_PKG_VERSION")).to_owned()),
                ("server_start", start.rfc_822),
                ("server_start_iso8601", start.iso_8601),
                ("sources", sources.len().to_string()),
            ] {
                push_element(&mut xml, name, &value);
            }
        }
        for (path, fields) in sources {
            if mount.is_some_and(|mount| mount != path) {
                continue;
            }
            xml += &format!("<source mount=\"{}\">", escape_markup(&path));
            for (name, value) in fields {
                let is_wanted = !is_short || LISTMOUNTS_FIELDS.contains(&name.as_str());
                if is_wanted && !value.is_null() {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    push_element(&mut xml, &name, &text);
                }
            }
            xml += "</source>";
        }
        xml + "</icestats>\n"
    }

    /// The content of `/admin/listclients`, as XML; `None` for an unknown mount.
    #[must_use]
    pub fn clients(&self, mount: &str) -> Option<String> {
        let mut stations = self.stations.iter();
        let found = stations.find(|(view, ..)| mount == mount_of(&view.station));
        let (_, listeners, _) = found?;
        let mut xml = format!("{XML_HEAD}<icestats><source mount=\"{}\">", escape_markup(mount));
        push_element(&mut xml, "Listeners", &listeners.len().to_string());
        for listener in listeners {
            xml += &format!("<listener id=\"{}\">", listener.id);
            for (name, value) in [
                ("IP", listener.from.to_canonical().to_string()),
                ("UserAgent", listener.agent.clone()),
                ("Referer", listener.referer.clone()),
                (
                    "Connected",
                    self.now.saturating_duration_since(listener.since).as_secs().to_string(),
                ),
                ("ID", listener.id.to_string()),
            ] {
                push_element(&mut xml, name, &value);
            }
            xml += "</listener>";
        }
        Some(xml + "</source></icestats>\n")
    }

    /// The mounts that public lists leave out.
    fn hidden_mounts(&self) -> Vec<String> {
        let stations = self.stations.iter().map(|(view, ..)| &view.station);
        let hidden = stations.filter(|one| one.mount.as_ref().is_some_and(|mount| mount.hidden));
        hidden.map(|station| mount_of(station)).collect()
    }

    /// Each station's mount and fields; a `mount` in another container has the fields of its codec.
    fn sources(
        &self,
        base: &str,
        start: &IcecastDate,
        mount: Option<&str>,
    ) -> Vec<(String, Map<String, Value>)> {
        let is_own =
            self.stations.iter().any(|(view, ..)| Some(&*mount_of(&view.station)) == mount);
        let sources = self.stations.iter().map(|(view, listeners, peak)| {
            let station = &view.station;
            let path = mount_of(station);
            let other = mount
                .filter(|_| !is_own && station.mount.is_none())
                .and_then(|mount| codec_of_mount(mount, &path, station));
            let (path, codec) = match (other, mount) {
                (Some(codec), Some(mount)) => (mount.to_owned(), codec),
                _ => (path, station.codec),
            };
            let (title, artist) = title_and_artist(&view.properties);
            let mut source = Map::new();
            let mut set = |key: &str, value: Value| source.insert(key.to_owned(), value);
            if let Some(artist) = artist {
                set("artist", json!(artist));
            }
            let icy = &station.icy;
            let bitrate = codec.bitrate(station.spec).filter(|_| station.mount.is_none());
            if let Some(kbps) = bitrate.map(|bitrate| bitrate / 1_000).or(icy.bitrate_kbps) {
                set("bitrate", json!(kbps));
            }
            set("channels", json!(station.spec.layout.channels()));
            set("listener_peak", json!(peak));
            set("listeners", json!(listeners.len()));
            set("listenurl", json!(format!("{base}{path}")));
            set("samplerate", json!(station.spec.rate.hz()));
            if let Some(genre) = &icy.genre {
                set("genre", json!(genre));
            }
            if let Some(public) = icy.public {
                set("public", json!(u8::from(public)));
            }
            set("server_description", json!(icy.description.as_deref().unwrap_or_default()));
            set("server_name", json!(icy.name.as_ref().unwrap_or(&station.name)));
            if let Some(site) = &icy.site {
                set("server_url", json!(site));
            }
            let media_type = match &station.mount {
                Some(mount) => mount.format.codec.media_type(),
                None => codec.codec().info().media_type,
            };
            set("server_type", json!(media_type));
            set("stream_start", json!(start.rfc_822));
            set("stream_start_iso8601", json!(start.iso_8601));
            set("title", json!(title.unwrap_or_default()));
            set("dummy", Value::Null);
            (path, source)
        });
        sources.collect()
    }
}

/// The path at which a station or a mount can be heard.
pub(crate) fn mount_of(station: &StationSettings) -> String {
    let name = percent_encode_url(&station.name);
    if station.mount.is_some() { format!("/{name}") } else { format!("/listen/{name}") }
}

/// The codec of a mount that is the path of a station with the extension of a container.
fn codec_of_mount(mount: &str, path: &str, station: &StationSettings) -> Option<CodecConfig> {
    let row = CodecInfo::of_extension(mount.strip_prefix(path)?.strip_prefix('.')?)?;
    let format = row.nearest_format(station.spec.format);
    let spec = SampleSpec { format, ..station.spec };
    row.supports(spec).then(|| station.codec_settings(row.codec))
}

fn push_element(xml: &mut String, name: &str, text: &str) {
    *xml += &format!("<{name}>{}</{name}>", escape_markup(text));
}

const XML_HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// What `/admin/listmounts` shows of a source.
const LISTMOUNTS_FIELDS: [&str; 3] = ["listeners", "server_type", "stream_start"];
