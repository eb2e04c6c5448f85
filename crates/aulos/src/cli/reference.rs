//! The pages of the reference about the command line and its exit codes, made from their tables.
//! They exist in the tests only: the program itself prints help and manual pages.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};

use aulos_blackbox::golden::compare_file;
use aulos_server::exit::Exit;

use super::Cli;

fn page(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

#[test]
fn the_page_of_the_command_line_is_current() {
    let mut whole = Cli::command();
    whole.build();
    let global: Vec<_> = whole.get_arguments().filter(|arg| !is_standard(arg)).cloned().collect();
    let mut out = COMMANDS_HEAD.to_owned();
    for part in whole.get_subcommands_mut().filter(|part| part.get_name() != "help") {
        let about = part.get_about().map(ToString::to_string).unwrap_or_default();
        let name = part.get_name();
        writeln!(out, "| [`aulos {name}`](#aulos-{name}) | {about} |").unwrap();
    }
    out += "\n## Options of every command\n\n";
    global.iter().for_each(|arg| option(&mut out, arg));
    for part in whole.get_subcommands_mut().filter(|part| part.get_name() != "help") {
        command(&mut out, part);
    }
    compare_file(&page("commands.md"), &out);
}

#[test]
fn the_page_of_exit_codes_is_current() {
    let mut out = EXIT_HEAD.to_owned();
    let help = Cli::command().get_after_help().map(ToString::to_string).unwrap();
    let (_, listed) = help.split_once("Exit codes: ").unwrap();
    let codes: Vec<String> =
        Exit::ALL.iter().map(|exit| format!("{} {}", *exit as u8, exit.meaning())).collect();
    let listed = listed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(listed, format!("{}.", codes.join(", ")), "the help lists them in the same words");
    for exit in Exit::ALL {
        writeln!(out, "| {} | {} | {} |", exit as u8, exit.meaning(), exit.explanation()).unwrap();
    }
    assert!(Exit::ALL.is_sorted_by_key(|exit| *exit as u8));
    compare_file(&page("exit-codes.md"), &out);
}

fn command(out: &mut String, part: &mut Command) {
    write!(out, "\n## aulos {}\n\n", part.get_name()).unwrap();
    let about = part.get_long_about().or_else(|| part.get_about());
    *out += &text(&about.map(ToString::to_string).unwrap_or_default());
    // The first word of the usage is the name of the program.
    let usage = part.render_usage().to_string();
    write!(out, "\n```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ")).unwrap();
    for arg in part.get_arguments().filter(|arg| !is_standard(arg) && !arg.is_global_set()) {
        option(out, arg);
    }
    if let Some(after) = part.get_after_help().map(ToString::to_string) {
        write!(out, "\n```text\n{}\n```\n", after.trim_end()).unwrap();
    }
    for nested in part.get_subcommands_mut().filter(|nested| nested.get_name() != "help") {
        subcommand(out, nested);
    }
}

/// A command of a command, as `aulos client volume`.
fn subcommand(out: &mut String, part: &mut Command) {
    let usage = part.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = part.get_about().map(ToString::to_string).unwrap_or_default();
    write!(out, "\n`{usage}`: {}.\n\n", text(&about).trim_end()).unwrap();
    for arg in part.get_arguments().filter(|arg| !is_standard(arg) && !arg.is_global_set()) {
        option(out, arg);
    }
}

fn is_standard(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

/// An option or a positional argument as an item of a list.
fn option(out: &mut String, arg: &Arg) {
    if arg.is_hide_set() {
        return;
    }
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let takes_values = arg.get_num_args().is_some_and(|count| count.takes_values());
    let mut names: Vec<String> = Vec::new();
    names.extend(arg.get_short().map(|short| format!("-{short}")));
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut term = names.join(", ");
    if takes_values {
        let space = if term.is_empty() { "" } else { " " };
        write!(term, "{space}{}", values.join(" ")).unwrap();
    }
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = text(&help.map(ToString::to_string).unwrap_or_default());
    let mut notes = String::new();
    let possible: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if takes_values && !possible.is_empty() && !arg.is_hide_possible_values_set() {
        write!(notes, " Values: {}.", possible.join(", ")).unwrap();
    }
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        write!(notes, " Default: `{}`.", defaults.join(" ")).unwrap();
    }
    let help = help.trim_end().replace('\n', "\n  ").replace("\n  \n", "\n\n");
    let stop = if help.is_empty() || help.ends_with(['.', ']', ':']) { "" } else { "." };
    writeln!(out, "* `{term}`: {help}{stop}{notes}").unwrap();
}

/// Help as Markdown: what looks like a tag is code.
fn text(help: &str) -> String {
    let mut out = help.trim().replace('<', "\\<");
    out.push('\n');
    out
}

const COMMANDS_HEAD: &str = "\
# Command line

The commands of `aulos` with their options. This page is generated from the table that makes the parser, `aulos
COMMAND --help`, the manual pages (`aulos man COMMAND`) and the completions (`aulos completions SHELL`).
[Exit codes](exit-codes.md) are the same for all commands.

| command | |
|---|---|
";

const EXIT_HEAD: &str = "\
# Exit codes

Every command of [`aulos`](commands.md) ends with one of these codes. They are a contract with scripts, and have the
numbers of sysexits.h where it has one. This page is generated from the table of codes.

`aulos-player`, the player as a program of its own, uses 0, 2, 66, 70, 73 and 74 in the same meaning.

| code | meaning | when |
|---:|---|---|
";
