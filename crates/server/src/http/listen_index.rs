//! `/listen/`: the addresses at which stations can be heard.

use std::fmt::Write as _;

use aulos_config::Station;
use aulos_core::{Codec, SampleRate};
use aulos_proto::uri::percent_encode;

/// The page, without scripts and styles.
pub(super) fn page(stations: &[Station]) -> String {
    let mut out = HEAD.to_owned();
    for Station { name, codec, spec, .. } in stations {
        // Writing to a string cannot fail.
        write!(out, "<li>{}, {codec} {spec}:", escape(name)).ok();
        let has_opus = spec.rate == SampleRate::HZ_48000 && spec.layout.channels() <= 2;
        let encoded = ["flac", "wav"].into_iter().chain(has_opus.then_some("opus"));
        let own = match codec.codec() {
            Codec::Flac => "flac",
            Codec::Opus => "opus",
            Codec::Pcm => "wav",
        };
        let target = percent_encode(name)
            .replace('/', "%2F")
            .replace('<', "%3C")
            .replace('>', "%3E")
            .replace('"', "%22");
        for format in encoded {
            let note = if format == own { " (the station's own)" } else { "" };
            write!(out, " <a href=\"/listen/{}.{format}\">{format}</a>{note}", escape(&target))
                .ok();
        }
        writeln!(out, " <a href=\"/listen/{}.m3u\">playlist</a></li>", escape(&target)).ok();
    }
    out + "</ul>\n"
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
     <title>Stations</title>\n<h1>Stations</h1>\n<ul>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_station_has_its_addresses_and_no_name_is_markup() {
        let text = "[[station]]\nname = \"a & <b>\"\nsources = [\"demo://\"]\n\
             [[station]]\nname = \"hall\"\nspec = \"44100:16:2\"\nsources = [\"demo://\"]";
        let file = aulos_config::ConfigFile { name: "a.toml", text };
        let env = aulos_config::Environment::default();
        let stations = aulos_config::load(Some(file), &[], &env).unwrap().stations;
        let page = page(&stations);
        assert!(page.contains("<li>a &amp; &lt;b&gt;, flac 48000:16:2:"), "{page}");
        assert!(page.contains("href=\"/listen/a%20%26%20%3Cb%3E.opus\""), "{page}");
        assert!(page.contains("/listen/hall.flac\">flac</a> (the station's own)"), "{page}");
        assert!(page.contains("/listen/hall.m3u") && !page.contains("hall.opus"), "{page}");
    }
}
