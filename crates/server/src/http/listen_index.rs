//! `/listen/`: the addresses at which stations can be heard.

use std::fmt::Write as _;
use std::sync::Arc;

use aulos_config::StationSettings;
use aulos_control::markup::escape_markup;
use aulos_core::{CODECS, SampleSpec};
use aulos_proto::uri::percent_encode_url;

/// The page, without scripts and styles.
pub(super) fn page(stations: &[Arc<StationSettings>]) -> String {
    let mut out = HEAD.to_owned();
    for station in stations {
        let StationSettings { name, codec, spec, .. } = &**station;
        if let Some(mount) = &station.mount {
            let (codec, name) = (mount.format.codec, escape_markup(name));
            if !mount.hidden {
                writeln!(out, "<li>{name}, {codec}: <a href=\"/{name}\">{codec}</a></li>").ok();
            }
            continue;
        }
        // Writing to a string cannot fail.
        write!(out, "<li>{}, {codec} {spec}:", escape_markup(name)).ok();
        let target = escape_markup(&percent_encode_url(name));
        for row in &CODECS {
            let format = row.nearest_format(spec.format);
            let Some(extension) = row.extensions.first() else { continue };
            if row.supports(SampleSpec { format, ..*spec }) {
                let note = if row.codec == codec.codec() { " (the station's own)" } else { "" };
                write!(out, " <a href=\"/listen/{target}.{extension}\">{extension}</a>{note}").ok();
            }
        }
        writeln!(out, " <a href=\"/listen/{target}.m3u\">playlist</a></li>").ok();
    }
    out + "</ul>\n"
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
     <title>Stations</title>\n<h1>Stations</h1>\n<ul>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_station_has_its_addresses_and_no_name_is_markup() {
        let text = "[[station]]\nname = \"a & <b>\"\nsources = [\"demo://\"]\n\
             [[station]]\nname = \"hall\"\nspec = \"44100:16:2\"\nsources = [\"demo://\"]\n\
             [[mount]]\nname = \"live.mp3\"\nstation = \"hall\"\n\
             [[mount]]\nname = \"secret.mp3\"\nstation = \"hall\"\nhidden = true";
        let file = aulos_config::ConfigFile { name: "a.toml", text };
        let env = aulos_config::Environment::default();
        let stations = aulos_config::load(Some(file), &[], &env).unwrap().stations;
        let page = page(&stations.into_iter().map(Arc::new).collect::<Vec<_>>());
        assert!(page.contains("<li>a &amp; &lt;b&gt;, flac 48000:16:2:"), "{page}");
        assert!(page.contains("href=\"/listen/a%20%26%20%3Cb%3E.ogg\""), "{page}");
        assert!(page.contains("/listen/hall.flac\">flac</a> (the station's own)"), "{page}");
        assert!(page.contains("<a href=\"/live.mp3\">mp3</a>") && !page.contains("secret"));
        assert!(page.contains("/listen/hall.m3u") && !page.contains("hall.ogg"), "{page}");
    }
}
