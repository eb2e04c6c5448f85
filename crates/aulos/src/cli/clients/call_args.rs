//! The arguments of every call of these commands: which server, and how the result is printed.

use aulos_server::exit::{Exit, Failure};
use clap::Args;
use serde_json::{Value, json};

use super::overview::ServerOverview;
use crate::cli::output::print;
use crate::cli::rpc::{ServerArgs, call};

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// Print JSON: the list, or the result of the call
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

impl CallArgs {
    pub(super) fn overview(&self) -> Result<ServerOverview, Failure> {
        Ok(ServerOverview::new(&call(&self.server, "Aulos.GetStatus", &json!({}))?))
    }

    pub(super) fn print_list(
        &self,
        json: impl Iterator<Item = Value>,
        table: impl FnOnce() -> String,
    ) -> Result<Exit, Failure> {
        let text = if self.json { format!("{:#}\n", Value::from_iter(json)) } else { table() };
        print(text.as_bytes())
    }

    /// Makes a call; `line` is what has changed, given the result.
    pub(super) fn change(
        &self,
        method: &str,
        params: &Value,
        line: impl FnOnce(&Value) -> String,
    ) -> Result<Exit, Failure> {
        let result = call(&self.server, method, params)?;
        let text = if self.json { format!("{result:#}\n") } else { line(&result) };
        print(text.as_bytes())
    }
}
