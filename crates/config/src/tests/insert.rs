//! The insert of a station.

use aulos_core::{Frames, SampleFormat, Span};

use super::*;
use crate::InsertSettings;

fn with_insert(insert: &str) -> Result<Option<InsertSettings>, String> {
    let text = station(&format!("sources = [\"demo://\"]\ninsert = {insert}"));
    let resolved = load_text(&text, &[]).map_err(|error| error.to_string())?;
    Ok(resolved.stations[0].insert.clone())
}

#[test]
fn a_text_is_the_program_with_the_defaults_and_a_table_has_the_rest() {
    let settings = with_insert("\"process:///usr/bin/sox?params=-t wav - -t wav -\"").unwrap();
    let expected = InsertSettings {
        path: "/usr/bin/sox".into(),
        params: "-t wav - -t wav -".to_owned(),
        format: SampleFormat::F32,
        raw: false,
        latency: None,
        delay: None,
        log_stderr: true,
    };
    assert_eq!(settings, Some(expected.clone()));
    let table = "{ uri = \"process:///usr/bin/sox?params=-t wav - -t wav -\", format = \"s16\", \
                 raw = true, latency = \"200ms\", delay = 4096, log_stderr = false }";
    let expected = InsertSettings {
        format: SampleFormat::S16Le,
        raw: true,
        latency: Some(Span::from_millis(200)),
        delay: Some(Frames(4_096)),
        log_stderr: false,
        ..expected
    };
    assert_eq!(with_insert(table).unwrap(), Some(expected));
}

#[test]
fn what_is_no_program_is_refused_with_the_part_that_is_wrong() {
    for (insert, expected) in [
        ("\"/usr/bin/sox\"", "\"/usr/bin/sox\" is not a process: URI"),
        ("\"tone://\"", "\"tone://\" is not a process: URI"),
        ("\"process:\"", "\"process:\" has no path"),
        ("\"process:///a?param=b\"", "unknown parameter `param`"),
        ("{}", "`uri`"),
        ("{ uri = \"process:///a\", latency = \"5ms\" }", "`latency` must last from 20ms to 2s"),
        ("{ uri = \"process:///a\", latency = \"3s\" }", "`latency` must last from 20ms to 2s"),
        ("{ uri = \"process:///a\", delay = 200000 }", "`delay` is 200000"),
        ("{ uri = \"process:///a\", format = \"u8\" }", "`format` is \"u8\""),
    ] {
        let problems = with_insert(insert).unwrap_err();
        assert!(problems.contains(expected), "{insert}: {problems}");
    }
}
