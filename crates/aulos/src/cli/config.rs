//! `aulos config`: prints what a configuration may contain.

use aulos_server::exit::{Exit, Failure};
use clap::Args;

use super::output::print;

#[derive(Debug, Args)]
pub(super) struct ReferenceArgs {
    /// Print every key with type, default, range and meaning, as Markdown (the default)
    #[arg(long, conflicts_with = "schema")]
    reference: bool,
    /// Print a JSON Schema for editors
    #[arg(long)]
    schema: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos config | less
  aulos config --schema > aulos.schema.json";

pub(super) fn run(args: &ReferenceArgs) -> Result<Exit, Failure> {
    let text = if args.schema { aulos_config::json_schema() } else { aulos_config::reference() };
    print(text.as_bytes())
}
