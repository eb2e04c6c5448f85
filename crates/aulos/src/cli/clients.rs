//! `aulos client`, `aulos group` and `aulos station`: lists, plays, and what people change every day.
//!
//! Names are resolved here, by the rules of the server, from one status: an error lists names, and
//! the answer says what the text has named. The calls then have ids.

mod call_args;
mod overview;
mod play;
mod sound;
mod station;
mod table;

use aulos_server::exit::{Exit, Failure};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::output::print;
use super::scan::plain;
use call_args::CallArgs;
use overview::{ClientRow, GroupRow, ServerOverview};
use play::{PlayArgs, StopArgs};
pub(super) use station::{STATION_EXAMPLES, StationArgs, station};
use table::table;

pub(super) const CLIENT_EXAMPLES: &str = "\
Examples:
  aulos client list
  aulos client volume kitchen 40
  aulos client volume kitchen +5
  aulos client mute kitchen              aulos client mute kitchen off
  aulos client move kitchen downstairs   into the group of this name
  aulos client move kitchen --alone      into a group of its own
  aulos client rename 02:42:ac:11:00:02 Kitchen
  aulos client play kitchen /srv/books/1.mp3 --title 'Chapter 1'
  aulos client stop kitchen              back to the programme
  aulos client sound import kitchen room.txt --dry-run
  aulos client test-tone kitchen identify
  aulos client list --json | jq '.[] | select(.connected) | .name'

A client is named by its id, its name, or the beginning of either, if no
other begins the same; so are groups and stations.";

pub(super) const GROUP_EXAMPLES: &str = "\
Examples:
  aulos group list
  aulos group volume downstairs -5
  aulos group mute downstairs
  aulos group move downstairs jazz       let it play the station `jazz`
  aulos group rename 'kitchen and bath' Downstairs
  aulos group play downstairs /srv/music/dinner.flac --wait
  aulos group list --server kitchen.local --json

A group without a name has that of its clients.";

#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    #[command(subcommand)]
    command: ClientCommand,
}

#[derive(Debug, Subcommand)]
enum ClientCommand {
    /// List the clients with group, station, sync and volume
    List(CallArgs),
    /// Set the volume of a client
    Volume(VolumeArgs),
    /// Mute or unmute a client
    Mute(MuteArgs),
    /// Move a client into another group
    Move(MoveClientArgs),
    /// Name a client
    Rename(RenameArgs),
    /// Play a file to its end in place of the programme
    Play(PlayArgs),
    /// End what `play` has begun
    Stop(StopArgs),
    /// Show or change the sound of a client
    Sound(sound::SoundArgs),
    /// Play a test tone to a client, in place of the programme
    TestTone(sound::TestToneArgs),
}

#[derive(Debug, Args)]
pub(super) struct GroupArgs {
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// List the groups with station, clients and volume
    List(CallArgs),
    /// Set the volume of a group, which is the average of its clients
    Volume(VolumeArgs),
    /// Mute or unmute a group
    Mute(MuteArgs),
    /// Let a group play another station
    Move(MoveGroupArgs),
    /// Name a group
    Rename(RenameArgs),
    /// Play a file to its end in place of the programme
    Play(PlayArgs),
    /// End what `play` has begun
    Stop(StopArgs),
    /// Play a test tone to the clients of a group at the same time
    TestTone(sound::TestToneArgs),
}

#[derive(Debug, Args)]
struct VolumeArgs {
    /// Name or id
    name: String,
    /// Percent, as 40, or a change, as +5 or -5
    #[arg(allow_negative_numbers = true, value_parser = parse_volume)]
    volume: Volume,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct MuteArgs {
    /// Name or id
    name: String,
    /// Whether it is muted
    #[arg(value_enum, default_value_t = Switch::On)]
    mute: Switch,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct MoveClientArgs {
    /// Name or id of the client
    client: String,
    /// Name or id of the group
    #[arg(required_unless_present = "alone", conflicts_with = "alone")]
    group: Option<String>,
    /// Move it into a group of its own, which plays the same station
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct MoveGroupArgs {
    /// Name or id of the group
    group: String,
    /// Name of the station
    station: String,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Debug, Args)]
struct RenameArgs {
    /// Name or id
    name: String,
    /// The new name; empty to remove the name
    new_name: String,
    #[command(flatten)]
    call: CallArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volume {
    /// Percent.
    To(u8),
    /// A difference in percent.
    By(i8),
}

fn parse_volume(text: &str) -> Result<Volume, String> {
    let wrong = || "a volume is 0 to 100, or a change such as +5 or -5".to_owned();
    let number = |digits: &str| {
        let is_number = digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u8>().ok().filter(|_| is_number);
        number.filter(|number| *number <= 100).ok_or_else(wrong)
    };
    let by = |digits| number(digits)?.try_into().map_err(|_| wrong());
    match text.split_at_checked(1) {
        Some(("+", digits)) => Ok(Volume::By(by(digits)?)),
        Some(("-", digits)) => Ok(Volume::By(-by(digits)?)),
        _ => Ok(Volume::To(number(text)?)),
    }
}

impl Volume {
    /// The parameters of `Aulos.SetVolume`.
    fn params(self, kind: &str, id: &str) -> Value {
        match self {
            Self::To(percent) => json!({ kind: id, "percent": percent }),
            Self::By(delta) => json!({ kind: id, "delta": delta }),
        }
    }
}

pub(super) fn client(args: &ClientArgs) -> Result<Exit, Failure> {
    match &args.command {
        ClientCommand::List(list) => {
            let overview = list.overview()?;
            let rows = overview.clients.iter();
            list.print_list(rows.clone().map(ClientRow::json), || client_table(rows))
        }
        ClientCommand::Volume(VolumeArgs { name, volume, call }) => {
            let overview = call.overview()?;
            let client = overview.client(name)?;
            let params = volume.params("client", &client.id);
            call.change("Aulos.SetVolume", &params, |result| volume_line(&client.name, result))
        }
        ClientCommand::Mute(MuteArgs { name, mute, call }) => {
            let overview = call.overview()?;
            let client = overview.client(name)?;
            let params = json!({ "id": client.id, "volume": { "muted": *mute == Switch::On } });
            call.change("Client.SetVolume", &params, |_| mute_line(&client.name, *mute))
        }
        ClientCommand::Move(MoveClientArgs { client, group, call, .. }) => {
            let overview = call.overview()?;
            let client = overview.client(client)?;
            move_client(&overview, client, group.as_deref(), call)
        }
        ClientCommand::Rename(RenameArgs { name, new_name, call }) => {
            let overview = call.overview()?;
            let client = overview.client(name)?;
            let params = json!({ "id": client.id, "name": new_name });
            call.change("Client.SetName", &params, |result| rename_line(&client.name, result))
        }
        ClientCommand::Play(args) => play::play("client", args),
        ClientCommand::Stop(args) => play::stop("client", args),
        ClientCommand::Sound(args) => sound::sound(args),
        ClientCommand::TestTone(args) => {
            let overview = args.call.overview()?;
            let client = overview.client(&args.name)?;
            sound::test_tone(args, ("client", &client.id), &client.name)
        }
    }
}

pub(super) fn group(args: &GroupArgs) -> Result<Exit, Failure> {
    match &args.command {
        GroupCommand::List(list) => {
            let overview = list.overview()?;
            let json = overview.groups.iter().map(|group| group.json(&overview.members(group)));
            list.print_list(json, || group_table(&overview))
        }
        GroupCommand::Volume(VolumeArgs { name, volume, call }) => {
            let overview = call.overview()?;
            let group = overview.group(name)?;
            let params = volume.params("group", &group.id);
            call.change("Aulos.SetVolume", &params, |result| volume_line(&group.name, result))
        }
        GroupCommand::Mute(MuteArgs { name, mute, call }) => {
            let overview = call.overview()?;
            let group = overview.group(name)?;
            let params = json!({ "id": group.id, "mute": *mute == Switch::On });
            call.change("Group.SetMute", &params, |_| mute_line(&group.name, *mute))
        }
        GroupCommand::Move(MoveGroupArgs { group, station, call }) => {
            let overview = call.overview()?;
            let (group, station) = (overview.group(group)?, overview.station(station)?);
            let params = json!({ "id": group.id, "stream_id": station });
            call.change("Group.SetStream", &params, |_| {
                format!("{} plays {}\n", plain(&group.name), plain(&station))
            })
        }
        GroupCommand::Rename(RenameArgs { name, new_name, call }) => {
            let overview = call.overview()?;
            let group = overview.group(name)?;
            let params = json!({ "id": group.id, "name": new_name });
            call.change("Group.SetName", &params, |result| rename_line(&group.name, result))
        }
        GroupCommand::Play(args) => play::play("group", args),
        GroupCommand::Stop(args) => play::stop("group", args),
        GroupCommand::TestTone(args) => {
            let overview = args.call.overview()?;
            let group = overview.group(&args.name)?;
            sound::test_tone(args, ("group", &group.id), &group.name)
        }
    }
}

/// Into another group, or without one into a group of its own.
fn move_client(
    overview: &ServerOverview,
    client: &ClientRow,
    group: Option<&str>,
    call: &CallArgs,
) -> Result<Exit, Failure> {
    let (group, is_into) = match group {
        Some(name) => (overview.group(name)?, true),
        None => (overview.group(&client.group)?, false),
    };
    let mut clients = overview.members(group);
    clients.retain(|id| *id != client.id);
    let name = plain(&client.name);
    if is_into {
        clients.push(&client.id);
    } else if clients.is_empty() {
        // The call would remove the group, with its name.
        return print(format!("{name} is in a group of its own\n").as_bytes());
    }
    let params = json!({ "id": group.id, "clients": clients });
    call.change("Group.SetClients", &params, |_| match is_into {
        true => format!("{name} is in {}\n", plain(&group.name)),
        false => format!("{name} is in a group of its own\n"),
    })
}

fn volume_line(name: &str, result: &Value) -> String {
    format!("{}: volume {} %\n", plain(name), result["percent"])
}

fn mute_line(name: &str, mute: Switch) -> String {
    let state = if mute == Switch::On { "muted" } else { "not muted" };
    format!("{}: {state}\n", plain(name))
}

fn rename_line(name: &str, result: &Value) -> String {
    match result["name"].as_str().filter(|new| !new.is_empty()) {
        Some(new) => format!("{} is now {}\n", plain(name), plain(new)),
        None => format!("{} has no name of its own now\n", plain(name)),
    }
}

fn volume_text(percent: i64, is_muted: bool) -> String {
    if is_muted { format!("{percent} %, muted") } else { format!("{percent} %") }
}

fn client_table<'a>(clients: impl Iterator<Item = &'a ClientRow>) -> String {
    let rows = clients.map(|client| {
        let volume = volume_text(client.volume, client.is_muted);
        [&client.name, &client.group_name, &client.station, &client.sync(), &volume, &client.id]
            .map(|text| plain(text))
    });
    table(["client", "group", "station", "sync", "volume", "id"], rows.collect())
}

fn group_table(overview: &ServerOverview) -> String {
    let rows = overview.groups.iter().map(|group: &GroupRow| {
        let clients = overview.members(group).len().to_string();
        let volume = volume_text(group.volume, group.is_muted);
        [&group.name, &group.station, &clients, &volume, &group.id].map(|text| plain(text))
    });
    table(["group", "station", "clients", "volume", "id"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::station::station_table;
    use super::*;

    fn status() -> Value {
        let client = |id: &str, name: &str, group: &str, volume: u8| {
            json!({
                "id": id, "connected": id != "c3", "group": group, "group_name": "",
                "group_muted": group == "g2",
                "config": { "name": name, "volume": { "percent": volume, "muted": id == "c2" } },
                "host": { "name": format!("pi-{id}") },
                "health": match id {
                    "c1" => json!({ "sync": { "error_us": -312 } }),
                    _ => json!({ "sync": null }),
                },
            })
        };
        json!({ "stations": [
            { "name": "hall", "state": "playing", "active": "demo", "listeners": 2, "clients": [
                client("c1", "Küche", "g1", 40), client("c2", "", "g1", 61),
            ] },
            { "name": "attic", "state": "silent", "active": null, "listeners": 0, "clients": [
                client("c3", "Shelf", "g2", 100),
            ] },
        ] })
    }

    #[test]
    fn lists_are_aligned() {
        let overview = ServerOverview::new(&status());
        assert_eq!(
            client_table(overview.clients.iter()),
            "client  group            station  sync       volume       id\n\
             Küche   Küche and pi-c2  hall     -0.3 ms    40 %         c1\n\
             pi-c2   Küche and pi-c2  hall     connected  61 %, muted  c2\n\
             Shelf   Shelf            attic    away       100 %        c3\n"
        );
        assert_eq!(
            group_table(&overview),
            "group            station  clients  volume        id\n\
             Küche and pi-c2  hall     2        51 %          g1\n\
             Shelf            attic    1        100 %, muted  g2\n"
        );
        assert_eq!(
            station_table(&overview),
            "station  state    source  clients  web listeners\n\
             hall     playing  demo    2        2\n\
             attic    silent   -       0        0\n"
        );
        assert_eq!(overview.group("kü").unwrap().id, "g1");
        assert_eq!(overview.station("AT").unwrap(), "attic");
        let error = overview.client("cellar").unwrap_err().message;
        assert!(
            error.starts_with("there is no client `cellar`; there are `Küche` (c1), "),
            "{error}"
        );
    }

    #[test]
    fn a_volume_is_a_percentage_or_a_change() {
        for (text, expected) in [
            ("40", Some(Volume::To(40))),
            ("0", Some(Volume::To(0))),
            ("+5", Some(Volume::By(5))),
            ("-100", Some(Volume::By(-100))),
            ("101", None),
            ("-101", None),
            ("+", None),
            ("", None),
            ("++5", None),
            ("5%", None),
            ("4.5", None),
            ("ü", None),
        ] {
            assert_eq!(parse_volume(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn what_a_server_says_reaches_no_terminal_as_a_command() {
        let evil = "a\u{1b}[2J\nb";
        let mut status = status();
        status["stations"][0]["name"] = json!(evil);
        status["stations"][0]["active"] = json!(evil);
        let client = &mut status["stations"][0]["clients"][0];
        (client["id"], client["config"]["name"]) = (json!(evil), json!(evil));
        let overview = ServerOverview::new(&status);
        let printed = client_table(overview.clients.iter())
            + &group_table(&overview)
            + &station_table(&overview)
            + &overview.client("cellar").unwrap_err().message
            + &rename_line(evil, &json!({ "name": evil }));
        assert!(!printed.contains(|c: char| c.is_control() && c != '\n'), "{printed:?}");
        assert_eq!(printed.lines().count(), 4 + 3 + 3 + 1, "{printed}");
    }
}
