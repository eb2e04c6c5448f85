//! The command line of aulos: one module for each subcommand.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main().into()
}
