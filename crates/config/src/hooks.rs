//! `[[hook]]`: programs and webhooks for station events.

use std::fmt;
use std::path::PathBuf;

use aulos_io::feed::split_arguments;
use axum::http::{HeaderName, HeaderValue, Uri};

use crate::env::Environment;
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, hint_for, keys};
use crate::limits::{
    DEFAULT_HOOK_TIMEOUT_S, DEFAULT_HOOK_TRIES, HOOK_TIMEOUT_S, HOOK_TRIES, MAX_HOOK_HEADERS,
    MAX_HOOKS, MIN_HOOK_TOKEN,
};
use crate::names::{check_name, report_duplicate};
use crate::problem::{ConfigValue, Problems};
use crate::program::{ProgramState, find_program};
use crate::security::secrets::{RedactedDebug, SecretConfig};
use crate::tree::{Node, TableEntry, Value};

keys! {
    /// A program or a webhook that is called for events of stations. It has either `run` or `url`.
    pub(crate) struct HookConfig {
        /// Name, unique in the server.
        name: Option<ConfigValue<String>>, default_doc "that of the program or host";
        /// Events for which it is called.
        on: Option<ConfigValue<Vec<HookEventKind>>>, default_doc "all";
        /// Stations for which it is called.
        stations: Option<ConfigValue<Vec<ConfigValue<String>>>>, default_doc "all";
        /// Program with its arguments.
        run: Option<ConfigValue<String>>;
        /// URL that receives a POST request: `http://` or `https://`.
        url: Option<ConfigValue<String>>;
        /// Time limit of one attempt.
        timeout_s: u32 = DEFAULT_HOOK_TIMEOUT_S, range HOOK_TIMEOUT_S, "seconds";
        /// Number of attempts.
        tries: Option<u32>, range HOOK_TRIES, "attempts", default_doc "5 with `url`, 1 with `run`";
        /// Further headers of the request.
        headers: RedactedDebug<Vec<(String, ConfigValue<String>)>>;
        /// Bearer token of the request.
        token: Option<SecretConfig>;
    }
}

impl NamedEnum for HookEventKind {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|kind| (kind.name(), kind)).to_vec()
    }
}

/// An event that a hook can be called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookEventKind {
    /// A source failed, and one of lower priority or the last resort took over.
    Fallback,
    /// A source of higher priority has recovered.
    Recovered,
    /// The output is silent.
    Silence,
    /// The silence has ended.
    Sound,
    /// The true peak of the output exceeds the ceiling.
    OverCeiling,
    /// The insert has failed or is late; the programme is played without it.
    InsertBypassed,
    /// The insert processes the programme again.
    InsertRecovered,
    /// An entry of the schedule has begun.
    ScheduleBegan,
    /// An entry of the schedule has ended, or another one counts.
    ScheduleEnded,
    /// A recording's file is complete.
    Recorded,
    /// A recording has a problem, or will have one soon.
    RecorderTrouble,
    /// The problem is solved.
    RecorderRecovered,
    /// The hash of the last line of a log, at the start and once a day.
    LogHead,
    /// A log has a gap of more than a second.
    LogGap,
    /// A test of the hook.
    Test,
}

impl HookEventKind {
    /// The values of a hook's `on` key.
    pub const ALL: [Self; 14] = [
        Self::Fallback,
        Self::Recovered,
        Self::Silence,
        Self::Sound,
        Self::OverCeiling,
        Self::InsertBypassed,
        Self::InsertRecovered,
        Self::ScheduleBegan,
        Self::ScheduleEnded,
        Self::Recorded,
        Self::RecorderTrouble,
        Self::RecorderRecovered,
        Self::LogHead,
        Self::LogGap,
    ];

    /// Its name in configurations and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fallback => "fallback",
            Self::Recovered => "recovered",
            Self::Silence => "silence",
            Self::Sound => "sound",
            Self::OverCeiling => "over-ceiling",
            Self::InsertBypassed => "insert-bypassed",
            Self::InsertRecovered => "insert-recovered",
            Self::ScheduleBegan => "schedule-began",
            Self::ScheduleEnded => "schedule-ended",
            Self::Recorded => "recorded",
            Self::RecorderTrouble => "recorder-trouble",
            Self::RecorderRecovered => "recorder-recovered",
            Self::LogHead => "log-head",
            Self::LogGap => "log-gap",
            Self::Test => "test",
        }
    }
}

/// A hook: its events, stations and action.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// Unique.
    pub name: String,
    /// The events that trigger it.
    pub on: Vec<HookEventKind>,
    /// The stations it applies to; none means all.
    pub stations: Option<Vec<String>>,
    /// The program or webhook.
    pub action: HookAction,
    /// Time limit of one attempt, in seconds.
    pub timeout_s: u32,
    /// Number of attempts.
    pub tries: u32,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq)]
pub enum HookAction {
    /// Runs a program.
    Run {
        /// As written; without a slash it is looked up in `PATH`.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Sends a POST request.
    Post(Webhook),
}

/// The target of a webhook. Path and query are often secret and are not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Whether the URL is `https`.
    pub secure: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The value of `Host`: the host as written, with the port if one was given.
    pub authority: String,
    /// Path and query.
    pub target: String,
    /// Additional headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Webhook {
    /// The part of the URL without secrets: `https://HOST`.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.origin()).finish()
    }
}

impl ConfigRead for RedactedDebug<Vec<(String, ConfigValue<String>)>> {
    const KIND: &'static ValueKind = &ValueKind::Texts;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let Value::Table(entries) = &node.value else { return context.wrong_kind(node, "a table") };
        let header = |TableEntry { key, node, .. }: &TableEntry| match &node.value {
            Value::Text(text) => {
                Some((key.clone(), ConfigValue { value: text.clone(), at: node.at }))
            }
            _ => {
                let message =
                    format!("header `{key}` is {}: it must be text in quotes", node.kind());
                context.problems.add(node.at, message);
                None
            }
        };
        Some(Self(entries.iter().filter_map(header).collect()))
    }
}

/// Validates every hook.
pub(crate) fn resolve(
    configs: &[HookConfig],
    stations: &[&str],
    env: &Environment,
    problems: &Problems,
) -> Vec<Hook> {
    if let Some(hook) = configs.get(MAX_HOOKS) {
        problems.add(hook.at, format!("there are more than {MAX_HOOKS} hooks"));
    }
    let mut hooks: Vec<Hook> = Vec::new();
    for config in configs {
        let Some(action) = action(config, env, problems) else { continue };
        let name = name(config, &action, &hooks, problems);
        let posts = matches!(action, HookAction::Post(_));
        hooks.push(Hook {
            name,
            on: event_kinds(config.on.as_ref(), problems),
            stations: config
                .stations
                .as_ref()
                .map(|names| check_station_names(names, stations, problems)),
            action,
            timeout_s: config.timeout_s,
            tries: config.tries.unwrap_or(if posts { DEFAULT_HOOK_TRIES } else { 1 }),
        });
    }
    hooks
}

/// The configured name, or else the name of the program or host, with the first number that makes
/// it unique.
fn name(config: &HookConfig, action: &HookAction, used: &[Hook], problems: &Problems) -> String {
    let taken = |name: &str| used.iter().any(|hook| hook.name == name);
    if let Some(given) = &config.name {
        let name = check_name(given, problems);
        if taken(&name) {
            report_duplicate("hook", given, problems);
        }
        return name;
    }
    let own = match action {
        HookAction::Run { program, .. } => {
            program.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        HookAction::Post(post) => post.host.clone(),
    };
    let numbered = (2..).map(|number| format!("{own}-{number}"));
    let mut names = std::iter::once(own.clone()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or(own)
}

fn event_kinds(
    setting: Option<&ConfigValue<Vec<HookEventKind>>>,
    problems: &Problems,
) -> Vec<HookEventKind> {
    let Some(ConfigValue { value, at }) = setting else { return HookEventKind::ALL.to_vec() };
    if value.is_empty() {
        let message = "`on` is empty: the hook is never called";
        problems.add_with_hint(*at, message, "leave it out for all events");
    }
    value.clone()
}

/// Checks the names of stations, because a hook for an unknown one would never be called.
fn check_station_names(
    ConfigValue { value, at }: &ConfigValue<Vec<ConfigValue<String>>>,
    stations: &[&str],
    problems: &Problems,
) -> Vec<String> {
    if value.is_empty() {
        let message = "`stations` is empty: the hook is never called";
        problems.add_with_hint(*at, message, "leave it out for all stations");
    }
    for name in value.iter().filter(|name| !stations.contains(&name.value.as_str())) {
        let message = format!("unknown station `{}`", name.value);
        problems.add_with_hint(name.at, message, hint_for(&name.value, stations));
    }
    value.iter().map(|name| name.value.clone()).collect()
}

fn action(config: &HookConfig, env: &Environment, problems: &Problems) -> Option<HookAction> {
    match (&config.run, &config.url) {
        (Some(run), None) => {
            if config.token.is_some() || !config.headers.0.is_empty() {
                let hint = "leave them out of a hook with `run`";
                problems.add_with_hint(config.at, "`headers` and `token` require `url`", hint);
            }
            program(run, env, problems)
        }
        (None, Some(url)) => resolve_webhook(config, url, env, problems).map(HookAction::Post),
        (Some(_), Some(url)) => {
            let hint = "write two hooks, one with each";
            problems.add_with_hint(url.at, "a hook has both `run` and `url`", hint);
            None
        }
        (None, None) => {
            problems.add_with_hint(config.at, "a hook has neither `run` nor `url`", EXAMPLE);
            None
        }
    }
}

fn program(
    run: &ConfigValue<String>,
    env: &Environment,
    problems: &Problems,
) -> Option<HookAction> {
    let mut words = split_arguments(&run.value).into_iter();
    let Some(program) = words.next().filter(|program| !program.is_empty()) else {
        problems.add_with_hint(run.at, "`run` is empty", EXAMPLE);
        return None;
    };
    if run.value.contains('\0') {
        problems.add(run.at, "`run` contains a zero byte");
    }
    let program = PathBuf::from(program);
    let named = program.display().to_string();
    if named.contains('/') && !program.is_absolute() {
        let hint = "write an absolute path: it must not depend on where the server is started";
        problems.add_with_hint(run.at, format!("`run`: {named} is not an absolute path"), hint);
    } else {
        let problem = match find_program(&program, env) {
            ProgramState::Runnable => None,
            ProgramState::NotInPath => Some((
                format!("PATH has no program `{named}`"),
                "write its absolute path, or put it into a directory of PATH".to_owned(),
            )),
            ProgramState::Missing => Some((
                format!("no such program: {named}"),
                "put the program there; quote a path that contains spaces".to_owned(),
            )),
            ProgramState::NotExecutable => {
                Some((format!("{named} is not executable"), format!("chmod +x {named}")))
            }
        };
        if let Some((why, hint)) = problem {
            problems.add_with_hint(run.at, format!("`run`: {why}"), hint);
        }
    }
    Some(HookAction::Run { program, arguments: words.collect() })
}

fn resolve_webhook(
    config: &HookConfig,
    url: &ConfigValue<String>,
    env: &Environment,
    problems: &Problems,
) -> Option<Webhook> {
    let to = resolve_url("url", url, "use `token_file`, or a header Authorization", problems)?;
    Some(Webhook { headers: checked_headers(config, env, problems), ..to })
}

/// The target of a POST request, without further headers.
pub(crate) fn resolve_url(
    key: &str,
    url: &ConfigValue<String>,
    instead_of_password: &str,
    problems: &Problems,
) -> Option<Webhook> {
    let refuse = |fact: &str, hint: &str| {
        // Without the URL, because its path is often secret.
        problems.add_with_hint(url.at, format!("`{key}` {fact}"), hint);
        None
    };
    let example = &format!("{key} = \"https://alarm.example.org/hook\"");
    let Ok(uri) = url.value.parse::<Uri>() else { return refuse("is not a URL", example) };
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return refuse("does not begin with http:// or https://", example),
    };
    let Some(authority) = uri.authority() else { return refuse("has no host", example) };
    if authority.as_str().contains('@') {
        return refuse("must not contain a name or a password", instead_of_password);
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.is_empty() {
        return refuse("has no host", example);
    }
    Some(Webhook {
        secure,
        host: bare.to_owned(),
        port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        authority: authority.to_string(),
        target: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        headers: Vec::new(),
    })
}

fn checked_headers(
    config: &HookConfig,
    env: &Environment,
    problems: &Problems,
) -> Vec<(HeaderName, HeaderValue)> {
    if config.headers.0.len() > MAX_HOOK_HEADERS {
        problems.add(config.at, format!("a hook has more than {MAX_HOOK_HEADERS} headers"));
    }
    let mut all = Vec::new();
    for (key, ConfigValue { value, at }) in &config.headers.0 {
        let (Ok(name), Ok(mut value)) = (key.parse::<HeaderName>(), value.parse::<HeaderValue>())
        else {
            let hint = "letters, digits and dashes in its name; one line of text in its value";
            problems.add_with_hint(
                *at,
                format!("`{}` is not a valid header", key.escape_debug()),
                hint,
            );
            continue;
        };
        if RESERVED_HEADERS.contains(&name.as_str()) {
            problems.add_with_hint(*at, format!("the header `{key}` is reserved"), "leave it out");
        }
        value.set_sensitive(true);
        all.push((name, value));
    }
    let token = config.token.as_ref().and_then(|one| one.text(MIN_HOOK_TOKEN, env, problems));
    if let Some(token) = token {
        let authorization = HeaderName::from_static("authorization");
        if all.iter().any(|(name, _)| *name == authorization) {
            let hint = "keep one of them";
            problems.add_with_hint(
                config.at,
                "a hook has a `token` and a header Authorization",
                hint,
            );
        }
        match format!("Bearer {token}").parse::<HeaderValue>() {
            Ok(mut value) => {
                value.set_sensitive(true);
                all.push((authorization, value));
            }
            Err(_) => {
                problems.add_with_hint(
                    config.at,
                    "the token is not a valid header value",
                    "one line of text",
                );
            }
        }
    }
    all
}

/// Headers that the request already has, or that frame it.
const RESERVED_HEADERS: [&str; 7] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "transfer-encoding",
    "user-agent",
];

const EXAMPLE: &str = "as in run = \"/usr/local/bin/alarm --loud\", or url = \"https://HOST/PATH\"";
