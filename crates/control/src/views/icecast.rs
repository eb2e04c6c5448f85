//! Icecast's view of the server, for directories, widgets and statistics tools: `/status-json.xsl`,
//! `/admin/stats`, `/admin/listmounts` and `/admin/listclients`.
//!
//! A station is a source, and its mount is its path on the HTTP port, or on request that path with the
//! extension of another container. As in Icecast, one source is
//! an object and several are a list, and dates are those of RFC 822 and ISO 8601. Unlike there, a
//! name that consists of digits stays text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_config::Station;
use aulos_core::{CodecInfo, SampleSpec, Utc};
use aulos_engine::encode::CodecConfig;
use aulos_proto::uri::percent_encode_url;
use serde_json::{Map, Value, json};

use crate::control::state::{Control, ControlState};
use crate::markup::escape_markup;
use crate::stations::titles::title_and_artist;

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

impl Control {
    /// The content of `/status-json.xsl`. `base` is the URL at which the client has reached this
    /// server, and `mount` limits the result to one source.
    pub fn icecast_status(&self, base: &str, mount: Option<&str>) -> Value {
        let started = SystemTime::now() - self.started.elapsed();
        let start = IcecastDate::new(started);
        let inner = self.lock();
        let sources = self.icecast_sources(&inner, base, &start, mount);
        drop(inner);
        let sources = sources
            .into_iter()
            .filter(|(path, _)| mount.is_none_or(|mount| mount == path))
            .map(|(_, source)| Value::Object(source));
        let stats = json!({
            "admin": "",
            "host": self.host.name,
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
    pub fn icecast_stats(&self, base: &str, mount: Option<&str>, is_short: bool) -> String {
        let start = IcecastDate::new(SystemTime::now() - self.started.elapsed());
        let inner = self.lock();
        let sources = self.icecast_sources(&inner, base, &start, mount);
        drop(inner);
        let (total, present) = self.listeners.totals();
        let mut xml = XML_HEAD.to_owned() + "<icestats>";
        if !is_short {
            for (name, value) in [
                ("client_connections", total.to_string()),
                ("clients", present.to_string()),
                ("host", self.host.name.clone()),
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
    pub fn icecast_clients(&self, mount: &str) -> Option<String> {
        let inner = self.lock();
        let is_it = |name: &str| mount == mount_of(name);
        let name =
            inner.slots().map(|(_, slot)| &slot.station.name).find(|name| is_it(name))?.clone();
        drop(inner);
        let listeners = self.listeners.of_station(&name);
        let mut xml = format!("{XML_HEAD}<icestats><source mount=\"{}\">", escape_markup(mount));
        push_element(&mut xml, "Listeners", &listeners.len().to_string());
        for listener in listeners {
            xml += &format!("<listener id=\"{}\">", listener.id);
            for (name, value) in [
                ("IP", listener.from.to_canonical().to_string()),
                ("UserAgent", listener.agent),
                ("Referer", listener.referer),
                ("Connected", listener.since.elapsed().as_secs().to_string()),
                ("ID", listener.id.to_string()),
            ] {
                push_element(&mut xml, name, &value);
            }
            xml += "</listener>";
        }
        Some(xml + "</source></icestats>\n")
    }

    /// Each station's mount and fields; a `mount` in another container has the fields of its codec.
    fn icecast_sources(
        &self,
        inner: &ControlState,
        base: &str,
        start: &IcecastDate,
        mount: Option<&str>,
    ) -> Vec<(String, Map<String, Value>)> {
        let is_own = inner.slots().any(|(_, slot)| Some(&*mount_of(&slot.station.name)) == mount);
        let sources = inner.slots().map(|(number, slot)| {
            let station = &slot.station;
            let path = mount_of(&station.name);
            let other =
                mount.filter(|_| !is_own).and_then(|mount| codec_of_mount(mount, &path, station));
            let (path, codec) = match (other, mount) {
                (Some(codec), Some(mount)) => (mount.to_owned(), codec),
                _ => (path, station.codec),
            };
            let (listeners, peak) = self.listeners.count(&station.name);
            let metadata_slot = self.metadata_slot(inner, number).unwrap_or(slot);
            let (title, artist) = title_and_artist(&metadata_slot.properties);
            let mut source = Map::new();
            let mut set = |key: &str, value: Value| source.insert(key.to_owned(), value);
            if let Some(artist) = artist {
                set("artist", json!(artist));
            }
            if let Some(bitrate) = codec.bitrate(station.spec) {
                let kbps = bitrate / 1_000;
                set("bitrate", json!(kbps));
            }
            set("channels", json!(station.spec.layout.channels()));
            set("listener_peak", json!(peak));
            set("listeners", json!(listeners));
            set("listenurl", json!(format!("{base}{path}")));
            set("samplerate", json!(station.spec.rate.hz()));
            set("server_description", json!(""));
            set("server_name", json!(station.name));
            set("server_type", json!(codec.codec().info().media_type));
            set("stream_start", json!(start.rfc_822));
            set("stream_start_iso8601", json!(start.iso_8601));
            set("title", json!(title.unwrap_or_default()));
            set("dummy", Value::Null);
            (path, source)
        });
        sources.collect()
    }
}

/// The path at which a station can be heard.
fn mount_of(station: &str) -> String {
    format!("/listen/{}", percent_encode_url(station))
}

/// The codec of a mount that is the path of a station with the extension of a container.
fn codec_of_mount(mount: &str, path: &str, station: &Station) -> Option<CodecConfig> {
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

/// The date of an access log: `29/Feb/2000:11:59:59 +0000`.
pub(crate) fn log_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let Utc { year, month, day, hour, minute, second } = Utc::from_unix(seconds);
    let name = text_at(&MONTHS, u64::from(month) - 1);
    format!("{day:02}/{name}/{year}:{hour:02}:{minute:02}:{second:02} +0000")
}

/// A date as Icecast writes it.
struct IcecastDate {
    rfc_822: String,
    iso_8601: String,
}

impl IcecastDate {
    fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let Utc { year, month, day, hour, minute, second } = Utc::from_unix(seconds);
        // 1970-01-01 was a Thursday.
        let weekday = text_at(&WEEKDAYS, (seconds / 86_400) % 7);
        let name = text_at(&MONTHS, u64::from(month) - 1);
        let time = format!("{hour:02}:{minute:02}:{second:02}");
        Self {
            rfc_822: format!("{weekday}, {day:02} {name} {year} {time} +0000"),
            iso_8601: format!("{year:04}-{month:02}-{day:02}T{time}+0000"),
        }
    }
}

fn text_at<'a>(texts: &[&'a str], at: u64) -> &'a str {
    usize::try_from(at).ok().and_then(|at| texts.get(at)).copied().unwrap_or_default()
}

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_icecasts() {
        let date = IcecastDate::new(UNIX_EPOCH + Duration::from_secs(951_825_599));
        assert_eq!(date.rfc_822, "Tue, 29 Feb 2000 11:59:59 +0000");
        assert_eq!(date.iso_8601, "2000-02-29T11:59:59+0000");
        let early = IcecastDate::new(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(early.rfc_822, "Thu, 01 Jan 1970 00:00:00 +0000");
    }
}
