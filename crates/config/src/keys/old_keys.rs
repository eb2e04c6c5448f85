//! Renames keys in the text of a configuration from their old names to those of today.
//!
//! Only the bytes of the keys are replaced, so comments and formatting stay as they are.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::keys::reference::table_in;
use crate::keys::{KeyTable as _, Table};
use crate::model::Config;
use crate::problem::{ConfigError, ConfigFile, ConfigLocation, ConfigTexts, Problems};
use crate::tree;

/// A configuration with the keys of today.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedKeys {
    /// The text.
    pub text: String,
    /// What was changed, as lines with locations in the old text.
    pub changes: Vec<String>,
}

/// Renames the old keys of a file. A key whose new name is in the same table stays, because the two
/// may have different values.
///
/// # Errors
/// [`ConfigError`], if the file is not TOML.
pub fn rename_old_keys(
    ConfigFile { name, text }: ConfigFile<'_>,
) -> Result<RenamedKeys, ConfigError> {
    let texts = ConfigTexts { name, text, sets: &[] };
    let problems = Problems::default();
    drop(tree::parse(text, &ConfigLocation::File, &problems));
    if !problems.is_empty() {
        return Err(ConfigError::new(problems, texts));
    }
    let (table, _) = DeTable::parse_recoverable(text);
    let mut renames = Vec::new();
    collect(table.get_ref(), Config::TABLE, &mut renames);
    renames.sort_by_key(|rename| rename.span.start);
    let mut renamed = RenamedKeys { text: String::new(), changes: Vec::new() };
    let mut end = 0;
    for Rename { span, new } in renames {
        let (Some(before), Some(old)) = (text.get(end..span.start), text.get(span.clone())) else {
            continue;
        };
        renamed.text += before;
        renamed.text += new;
        let at = texts.location(ConfigLocation::File(span.start));
        renamed.changes.push(format!("{at}: renamed `{old}` to `{new}`"));
        end = span.end;
    }
    renamed.text += text.get(end..).unwrap_or_default();
    Ok(renamed)
}

struct Rename {
    span: Range<usize>,
    new: &'static str,
}

fn collect(table: &DeTable<'_>, keys: &'static Table, renames: &mut Vec<Rename>) {
    for (name, value) in table.iter() {
        let written = name.get_ref().as_ref();
        let is_named =
            |key: &&crate::keys::Key| key.name == written || key.aliases.contains(&written);
        let Some(key) = keys.keys.iter().find(is_named) else { continue };
        let has_new = table.keys().any(|other| other.get_ref().as_ref() == key.name);
        if key.name != written && !has_new {
            renames.push(Rename { span: name.span(), new: key.name });
        }
        let Some(inner) = table_in(key.kind) else { continue };
        match value.get_ref() {
            DeValue::Table(table) => collect(table, inner, renames),
            DeValue::Array(items) => {
                for item in items.iter() {
                    if let DeValue::Table(table) = item.get_ref() {
                        collect(table, inner, renames);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rename(text: &str) -> RenamedKeys {
        rename_old_keys(ConfigFile { name: "a.toml", text }).unwrap()
    }

    #[test]
    fn old_keys_get_their_new_names_and_everything_else_stays() {
        let old = "# hold_in_s is meant below\n[[station]]\nname = \"a\"   # comeback\n\
            sources = [\"demo://\"]\nswitch = { hold_in_s=1 , \"comeback\"  = 'manual' } # so\n\
            [[station]]\nname = \"b\"\nsources = [\"demo:\"]\nswitch.comeback = \"never\"\n\
            [[station]]\r\nname = \"c\"\r\nsources = [\"demo:\"]\r\n[station.switch]\r\n\
            hold_in_s = 2\r\n[[relay]]\nevents = 101\n";
        let fixed = rename(old);
        let new = old
            .replace("hold_in_s=1", "failback_delay_s=1")
            .replace("\"comeback\"  =", "failback  =")
            .replace("switch.comeback", "switch.failback")
            .replace("hold_in_s = 2", "failback_delay_s = 2")
            .replace("events", "dtmf");
        assert_eq!(fixed.text, new);
        assert_eq!(fixed.changes.len(), 5);
        assert_eq!(fixed.changes[0], "a.toml:5:12: renamed `hold_in_s` to `failback_delay_s`");
        assert_eq!(rename(&fixed.text), RenamedKeys { text: new, changes: Vec::new() });
    }

    #[test]
    fn an_old_key_beside_its_new_one_stays() {
        let text = "[[station]]\nname = \"a\"\nsources = [\"demo:\"]\n\
            switch = { hold_in_s = 1, failback_delay_s = 2 }\nhold_in_s = 3\n";
        assert_eq!(rename(text), RenamedKeys { text: text.to_owned(), changes: Vec::new() });
    }

    #[test]
    fn a_file_that_is_not_toml_is_refused() {
        let error = rename_old_keys(ConfigFile { name: "a.toml", text: "x = = 1\n" }).unwrap_err();
        assert!(error.to_string().contains("a.toml:1:"), "{error}");
    }
}
