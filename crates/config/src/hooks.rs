//! `[[hook]]`: programs and webhooks for station events.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aulos_io::feed::split_arguments;
use axum::http::{HeaderName, HeaderValue, Uri};

use super::env::Environment;
use super::limits::{
    DEFAULT_HOOK_TIMEOUT_S, DEFAULT_HOOK_TRIES, HOOK_TIMEOUT_S, HOOK_TRIES, MAX_HOOK_HEADERS,
    MAX_HOOKS, MIN_HOOK_TOKEN,
};
use super::model::StationConfig;
use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use super::read::TableReader;
use super::resolve::check_name;
use super::security::{SecretConfig, read_secret, secret_text};
use super::tree::{Node, Value};

/// `[[hook]]` as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// The name; by default that of the program or host.
    pub name: Option<ConfigValue<String>>,
    /// Events; by default all.
    pub on: Option<ConfigValue<Vec<ConfigValue<String>>>>,
    /// Names of stations; by default all.
    pub stations: Option<ConfigValue<Vec<ConfigValue<String>>>>,
    /// The program with its arguments.
    pub run: Option<ConfigValue<String>>,
    /// The URL of a webhook.
    pub url: Option<ConfigValue<String>>,
    /// Time limit of one attempt, in seconds.
    pub timeout_s: Option<u32>,
    /// Number of attempts.
    pub tries: Option<u32>,
    /// Headers of the request; some may be secret, so they are not printed.
    pub headers: RedactedDebug<Vec<(String, ConfigValue<String>)>>,
    /// The bearer token of the request.
    pub token: Option<SecretConfig>,
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
    /// A recording's file is complete.
    Recorded,
    /// A recording has a problem, or will have one soon.
    RecorderTrouble,
    /// The problem is solved.
    RecorderRecovered,
    /// A test of the hook.
    Test,
}

impl HookEventKind {
    /// The values of a hook's `on` key.
    pub const ALL: [Self; 8] = [
        Self::Fallback,
        Self::Recovered,
        Self::Silence,
        Self::Sound,
        Self::OverCeiling,
        Self::Recorded,
        Self::RecorderTrouble,
        Self::RecorderRecovered,
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
            Self::Recorded => "recorded",
            Self::RecorderTrouble => "recorder-trouble",
            Self::RecorderRecovered => "recorder-recovered",
            Self::Test => "test",
        }
    }
}

/// Hides a value in `Debug` output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedactedDebug<T>(pub T);

impl<T> fmt::Debug for RedactedDebug<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
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
#[derive(Clone, PartialEq)]
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
        f.debug_tuple("Post").field(&self.origin()).finish()
    }
}

/// Reads every `[[hook]]`.
pub(super) fn read(root: &mut TableReader<'_>, problems: &Problems) -> Vec<HookConfig> {
    match root.node("hook") {
        Some(Node { value: Value::List(items), .. }) => {
            items.iter().map(|node| read_hook(node, problems)).collect()
        }
        Some(node) => {
            let message = format!("`hook` is {}: it must be a list of tables", node.kind());
            problems.add_with_hint(node.at, message, "write [[hook]] with two brackets");
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn read_hook(node: &Node, problems: &Problems) -> HookConfig {
    let mut table = TableReader::new(node, "a hook", problems);
    let mut list = |key| {
        let value = table.texts(key);
        node.get(key).map(|node| ConfigValue { value, at: node.at })
    };
    let (on, stations) = (list("on"), list("stations"));
    let hook = HookConfig {
        at: node.at,
        name: table.text("name"),
        on,
        stations,
        run: table.text("run"),
        url: table.text("url"),
        timeout_s: table.number("timeout_s", "seconds", HOOK_TIMEOUT_S).map(|at| at.value),
        tries: table.number("tries", "attempts", HOOK_TRIES).map(|at| at.value),
        headers: RedactedDebug(
            table.node("headers").map_or_else(Vec::new, |n| headers(n, problems)),
        ),
        token: read_secret(&mut table, ["token", "token_file", "token_env"], "hook", problems),
    };
    table.finish();
    hook
}

fn headers(node: &Node, problems: &Problems) -> Vec<(String, ConfigValue<String>)> {
    let Value::Table(entries) = &node.value else {
        let message = format!("`headers` is {}, not a table", node.kind());
        problems.add_with_hint(node.at, message, "headers = { Priority = \"high\" }");
        return Vec::new();
    };
    let text = |entry: &super::TableEntry| match &entry.node.value {
        Value::Text(text) => {
            Some((entry.key.clone(), ConfigValue { value: text.clone(), at: entry.node.at }))
        }
        _ => {
            let (key, kind) = (&entry.key, entry.node.kind());
            problems
                .add(entry.node.at, format!("header `{key}` is {kind}: it must be text in quotes"));
            None
        }
    };
    entries.iter().filter_map(text).collect()
}

/// Validates every hook.
pub(super) fn resolve(
    configs: &[HookConfig],
    stations: &[StationConfig],
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
                .map(|setting| check_station_names(setting, stations, problems)),
            action,
            timeout_s: config.timeout_s.unwrap_or(DEFAULT_HOOK_TIMEOUT_S),
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
            let message = format!("two hooks are called `{name}`");
            problems.add_with_hint(given.at, message, "give one of them another name");
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
    setting: Option<&ConfigValue<Vec<ConfigValue<String>>>>,
    problems: &Problems,
) -> Vec<HookEventKind> {
    let Some(ConfigValue { value, at }) = setting else { return HookEventKind::ALL.to_vec() };
    let names = HookEventKind::ALL.map(HookEventKind::name);
    if value.is_empty() {
        problems.add_with_hint(
            *at,
            "`on` is empty: the hook is never called",
            "leave it out for all events",
        );
    }
    let kind = |wish: &ConfigValue<String>| {
        let kind = HookEventKind::ALL.into_iter().find(|kind| kind.name() == wish.value);
        if kind.is_none() {
            let hint = match did_you_mean(&wish.value, &names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there is {}", names.join(", ")),
            };
            problems.add_with_hint(wish.at, format!("there is no event `{}`", wish.value), hint);
        }
        kind
    };
    value.iter().filter_map(kind).collect()
}

/// Checks the names of stations, because a hook for an unknown one would never fire.
fn check_station_names(
    setting: &ConfigValue<Vec<ConfigValue<String>>>,
    stations: &[StationConfig],
    problems: &Problems,
) -> Vec<String> {
    let names = stations.iter().filter_map(|station| Some(station.name.as_ref()?.value.as_str()));
    let names: Vec<&str> = names.collect();
    let ConfigValue { value, at } = setting;
    if value.is_empty() {
        let message = "`stations` is empty: the hook is never called";
        problems.add_with_hint(*at, message, "leave it out for all stations");
    }
    for name in value.iter().filter(|name| !names.contains(&name.value.as_str())) {
        let hint = match did_you_mean(&name.value, &names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there is {}; leave `stations` out for all", names.join(", ")),
        };
        problems.add_with_hint(name.at, format!("there is no station `{}`", name.value), hint);
    }
    value.iter().map(|name| name.value.clone()).collect()
}

fn action(config: &HookConfig, env: &Environment, problems: &Problems) -> Option<HookAction> {
    match (&config.run, &config.url) {
        (Some(run), None) => {
            if config.token.is_some() || !config.headers.0.is_empty() {
                let hint = "a program reads what it needs by itself";
                problems.add_with_hint(config.at, "`headers` and `token` are for a `url`", hint);
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
        problems.add(run.at, "`run` has a zero byte in it");
    }
    let program = PathBuf::from(program);
    let named = program.display().to_string();
    if !named.contains('/') {
        let path = env.variables.0.get("PATH");
        let found = path
            .is_none_or(|path| path.split(':').any(|dir| can_run(&Path::new(dir).join(&program))));
        if !found {
            let hint = "write its whole path, or put it into a folder of PATH";
            problems.add_with_hint(
                run.at,
                format!("`run`: there is no program `{named}` in PATH"),
                hint,
            );
        }
    } else if !program.is_absolute() {
        let hint = "write a whole path: it must not depend on where the server is started";
        problems.add_with_hint(run.at, format!("`run`: {named} is not a whole path"), hint);
    } else if !program.is_file() {
        let hint = "put the program there; blanks in its path go into quotes of their own";
        problems.add_with_hint(run.at, format!("`run`: there is no program {named}"), hint);
    } else if !can_run(&program) {
        let message = format!("`run`: {named} cannot be run");
        problems.add_with_hint(run.at, message, format!("chmod +x {named}"));
    }
    Some(HookAction::Run { program, arguments: words.collect() })
}

fn can_run(program: &Path) -> bool {
    let found = std::fs::metadata(program);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn resolve_webhook(
    config: &HookConfig,
    url: &ConfigValue<String>,
    env: &Environment,
    problems: &Problems,
) -> Option<Webhook> {
    let refuse = |fact: &str, hint: &str| {
        // Without the URL, because its path is often secret.
        problems.add_with_hint(url.at, format!("`url` {fact}"), hint);
        None
    };
    let example = "url = \"https://alarm.example.org/hook\"";
    let Ok(uri) = url.value.parse::<Uri>() else { return refuse("is no address", example) };
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return refuse("is not of http: or https:", example),
    };
    let Some(authority) = uri.authority() else { return refuse("has no host", example) };
    if authority.as_str().contains('@') {
        let hint = "use `token_file`, or a header Authorization";
        return refuse("has a name or a password in front of its host", hint);
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
        headers: checked_headers(config, env, problems),
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
                format!("`{}` cannot be a header", key.escape_debug()),
                hint,
            );
            continue;
        };
        if RESERVED_HEADERS.contains(&name.as_str()) {
            problems.add_with_hint(*at, format!("the header `{key}` is made here"), "leave it out");
        }
        value.set_sensitive(true);
        all.push((name, value));
    }
    let token =
        config.token.as_ref().and_then(|one| secret_text(one, MIN_HOOK_TOKEN, env, problems));
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
                problems.add_with_hint(config.at, "the token cannot be sent", "one line of text");
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
