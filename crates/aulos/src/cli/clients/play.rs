//! `play` and `stop` of `aulos client`, `aulos group` and `aulos station`.

use std::time::Duration;

use aulos_server::exit::{Exit, Failure};
use clap::Args;
use serde_json::{Value, json};

use super::call_args::CallArgs;
use crate::cli::calls::{call_until_played, file_uri};
use crate::cli::output::print;
use crate::cli::rpc::call;
use crate::cli::scan::plain;

#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// Name or id
    name: String,
    /// Sound file on the server's machine, a path or a file: URI; or an http: or https: URL
    #[arg(value_name = "FILE")]
    file: String,
    /// What the status shows of it
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Volume of the sound in percent, on the curve of a client's volume [default: 100]
    #[arg(long, value_name = "PERCENT")]
    volume: Option<f64>,
    /// Wait until it has ended; exits with 1 if it is not played to its end
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// Name or id
    name: String,
    #[command(flatten)]
    call: CallArgs,
}

/// Plays a file for the client, group or station (`kind`) that the arguments name.
pub(super) fn play(kind: &str, args: &PlayArgs) -> Result<Exit, Failure> {
    let PlayArgs { name, file, title, volume, wait, call: CallArgs { json, server } } = args;
    let mut params = json!({ kind: name, "uri": file_uri(file)? });
    if let Some(title) = title {
        params["title"] = json!(title);
    }
    if let Some(volume) = volume {
        params["volume"] = json!(volume);
    }
    if !wait {
        let answer = call(server, "Aulos.Play", &params)?;
        return print(play_text(*json, &answer).as_bytes());
    }
    let (answer, end) =
        call_until_played(server, ("Aulos.Play", &params), "Aulos.OnPlay", MAX_WAIT)?;
    print(play_text(*json, &answer).as_bytes())?;
    end.print()
}

/// Ends the play of the client, group or station that the arguments name.
pub(super) fn stop(kind: &str, StopArgs { name, call }: &StopArgs) -> Result<Exit, Failure> {
    call.change("Aulos.StopPlay", &json!({ kind: name }), |result| {
        match result["stopped"].as_array().is_some_and(|ids| !ids.is_empty()) {
            true => format!("{}: the programme returns\n", plain(name)),
            false => format!("{}: plays the programme\n", plain(name)),
        }
    })
}

fn play_text(json: bool, answer: &Value) -> String {
    if json {
        return format!("{answer:#}\n");
    }
    let station = plain(answer["station"].as_str().unwrap_or_default());
    format!("play {} in place of {station}\n", answer["id"])
}

/// Longer than any recording that is played to its end.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3_600);
