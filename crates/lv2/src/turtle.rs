//! The description of the bundle in Turtle, generated from the table. `bundle/` has the result.

use core::fmt::Write as _;

use crate::table::{ControlPort, Form, PLUGINS, PluginInfo, PluginKind, Unit};

/// Name of the library in the bundle.
pub const BINARY: &str = "aulos_lv2.so";

/// `manifest.ttl`: which plug-ins there are, and where.
#[must_use]
pub fn manifest() -> String {
    let mut text = prefixes(&["lv2", "rdfs"]);
    for plugin in &PLUGINS {
        let uri = uri(plugin);
        push(
            &mut text,
            format_args!(
                "\n<{uri}>\n    a lv2:Plugin ;\n    lv2:binary <{BINARY}> ;\n    \
                 rdfs:seeAlso <aulos.ttl> .\n"
            ),
        );
    }
    text
}

/// `aulos.ttl`: the plug-ins with their ports.
#[must_use]
pub fn plugins() -> String {
    let mut text = prefixes(&["doap", "lv2", "pprops", "rdf", "rdfs", "units"]);
    text.push_str(OWN_UNITS);
    for plugin in &PLUGINS {
        push_plugin(&mut text, plugin);
    }
    text
}

fn push_plugin(text: &mut String, plugin: &PluginInfo) {
    let (class, comment) = match plugin.kind {
        PluginKind::Normalizer => ("DynamicsPlugin", NORMALIZER_COMMENT),
        PluginKind::Meter => ("AnalyserPlugin", METER_COMMENT),
    };
    let [minor, micro] = [env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    let (uri, name) = (uri(plugin), plugin.name);
    push(
        text,
        format_args!(
            "\n<{uri}>\n    a lv2:Plugin , lv2:{class} ;\n    doap:name \"{name}\" ;\n    \
             doap:license <https://spdx.org/licenses/Apache-2.0> , \
             <https://spdx.org/licenses/MIT> ;\n    rdfs:comment \"{comment}\" ;\n    \
             lv2:minorVersion {minor} ;\n    lv2:microVersion {micro} ;\n    \
             lv2:optionalFeature lv2:hardRTCapable ;\n    lv2:port "
        ),
    );
    let mut ports: Vec<String> = Vec::new();
    for (direction, letters, words) in [("Input", "in", "In"), ("Output", "out", "Out")] {
        for (symbol, name) in plugin.channel_names() {
            ports.push(format!(
                "        a lv2:{direction}Port , lv2:AudioPort ;\n        lv2:index {} ;\n        \
                 lv2:symbol \"{letters}_{symbol}\" ;\n        lv2:name \"{words} {name}\"",
                ports.len()
            ));
        }
    }
    for (direction, controls) in [("Input", plugin.inputs()), ("Output", plugin.outputs())] {
        for port in controls {
            ports.push(control_port(direction, ports.len(), port));
        }
    }
    push(text, format_args!("[\n{}\n    ] .\n", ports.join("\n    ] , [\n")));
}

fn control_port(direction: &str, index: usize, port: &ControlPort) -> String {
    let mut text = format!(
        "        a lv2:{direction}Port , lv2:ControlPort ;\n        lv2:index {index} ;\n        \
         lv2:symbol \"{}\" ;\n        lv2:name \"{}\" ;\n        lv2:default {:?} ;\n        \
         lv2:minimum {:?} ;\n        lv2:maximum {:?}",
        port.symbol, port.name, port.default, port.min, port.max
    );
    let unit = match port.unit {
        Unit::None => None,
        Unit::Lufs => Some("<urn:aulos:unit:lufs>"),
        Unit::Lu => Some("<urn:aulos:unit:lu>"),
        Unit::Db => Some("units:db"),
        Unit::Dbtp => Some("<urn:aulos:unit:dbtp>"),
        Unit::DbPerSecond => Some("<urn:aulos:unit:db-per-second>"),
        Unit::Seconds => Some("units:s"),
        Unit::Frames => Some("units:frame"),
    };
    if let Some(unit) = unit {
        push(&mut text, format_args!(" ;\n        units:unit {unit}"));
    }
    let properties = match port.form {
        Form::Continuous => "",
        Form::Integer => "lv2:portProperty lv2:integer",
        Form::Toggle => "lv2:portProperty lv2:toggled",
        Form::Trigger => "lv2:portProperty lv2:toggled , pprops:trigger , pprops:notAutomatic",
        Form::Enabled => "lv2:designation lv2:enabled ;\n        lv2:portProperty lv2:toggled",
        Form::Choice(_) => "lv2:portProperty lv2:integer , lv2:enumeration , pprops:notAutomatic",
        Form::Latency => {
            "lv2:designation lv2:latency ;\n        \
             lv2:portProperty lv2:integer , lv2:reportsLatency"
        }
    };
    if !properties.is_empty() {
        push(&mut text, format_args!(" ;\n        {properties}"));
    }
    if let Form::Choice(names) = port.form {
        let point = |(value, name)| {
            format!(
                "[\n            rdfs:label \"{name}\" ;\n            rdf:value {value}\n        ]"
            )
        };
        let points: Vec<_> = names.iter().enumerate().map(point).collect();
        push(&mut text, format_args!(" ;\n        lv2:scalePoint {}", points.join(" , ")));
    }
    text
}

fn prefixes(names: &[&str]) -> String {
    let known = [
        ("doap", "http://usefulinc.com/ns/doap#"),
        ("lv2", "http://lv2plug.in/ns/lv2core#"),
        ("pprops", "http://lv2plug.in/ns/ext/port-props#"),
        ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
        ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
        ("units", "http://lv2plug.in/ns/extensions/units#"),
    ];
    let used = known.iter().filter(|(name, _)| names.contains(name));
    used.map(|(name, uri)| format!("@prefix {name}: <{uri}> .\n")).collect()
}

fn uri(plugin: &PluginInfo) -> &'static str {
    plugin.uri.to_str().unwrap_or_default()
}

fn push(text: &mut String, piece: core::fmt::Arguments<'_>) {
    // A string takes everything.
    let _always = text.write_fmt(piece);
}

const NORMALIZER_COMMENT: &str = "Keeps a programme at a target loudness (EBU R 128, ITU-R \
    BS.1770) and below a true-peak ceiling. Silence and gaps do not move the gain. A change of the \
    look-ahead fades out, and begins anew.";
const METER_COMMENT: &str = "Measures loudness and true peak (EBU R 128, ITU-R BS.1770); the sound \
    passes unchanged.";

/// The units extension has neither loudness nor true peaks (ITU-R BS.1770-5, EBU Tech 3341).
const OWN_UNITS: &str = r#"
<urn:aulos:unit:lufs>
    a units:Unit ;
    rdfs:label "loudness units relative to full scale" ;
    units:symbol "LUFS" ;
    units:render "%.1f LUFS" ;
    units:conversion [ units:factor 1.0 ; units:to units:db ] .

<urn:aulos:unit:lu>
    a units:Unit ;
    rdfs:label "loudness units" ;
    units:symbol "LU" ;
    units:render "%.1f LU" ;
    units:conversion [ units:factor 1.0 ; units:to units:db ] .

<urn:aulos:unit:dbtp>
    a units:Unit ;
    rdfs:label "decibels of true peak relative to full scale" ;
    units:symbol "dBTP" ;
    units:render "%.1f dBTP" ;
    units:conversion [ units:factor 1.0 ; units:to units:db ] .

<urn:aulos:unit:db-per-second>
    a units:Unit ;
    rdfs:label "decibels per second" ;
    units:symbol "dB/s" ;
    units:render "%.1f dB/s" .
"#;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the files of the bundle are compared")]
mod tests {
    use super::*;

    /// `AULOS_BLESS=1` writes them anew.
    #[test]
    fn the_bundle_is_what_the_table_says() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("bundle");
        for (name, text) in [("manifest.ttl", manifest()), ("aulos.ttl", plugins())] {
            let path = folder.join(name);
            if std::env::var_os("AULOS_BLESS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
        }
    }
}
