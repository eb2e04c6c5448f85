//! The command `aulos`; everything is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    aulos::cli::main().into()
}
