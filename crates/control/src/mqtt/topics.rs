//! The names of topics, and the ids in them.

/// The topics of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttTopics {
    /// `BASE/SERVER`.
    root: String,
    /// The prefix of discovery.
    discovery: Option<String>,
    /// The server's id.
    server: String,
}

/// What a topic of a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandTopic<'t> {
    /// `station`, `client` or `server`.
    pub(super) kind: &'t str,
    /// The escaped id, or `preset`.
    pub(super) id: &'t str,
    pub(super) entity: &'t str,
}

/// A kind of parts of which topics are retained.
#[derive(Debug)]
pub(super) struct PartTopics {
    pub(super) kind: &'static str,
    /// Its topic that is subscribed to.
    pub(super) marker: &'static str,
    /// All of its retained topics.
    pub(super) entities: &'static [&'static str],
}

/// All kinds.
pub(super) const PARTS: [PartTopics; 2] = [
    PartTopics {
        kind: "station",
        marker: "silence",
        entities: &[
            "loudness",
            "source",
            "title",
            "silence",
            "fallback",
            "programme",
            "normalize",
            "equalizer",
            "recording",
            "recorded",
        ],
    },
    PartTopics {
        kind: "client",
        marker: "connected",
        entities: &["volume", "mute", "latency", "stream", "connected"],
    },
];

impl MqttTopics {
    /// The topics below `base` of the server with this name. Without a discovery prefix, Home
    /// Assistant is not told of them.
    #[must_use]
    pub fn new(base: &str, server: &str, discovery: Option<&str>) -> Self {
        let server = escape(server);
        let root = format!("{base}/{server}");
        Self { root, discovery: discovery.map(str::to_owned), server }
    }

    /// Where the server is `online` or `offline`: the topic of the last will.
    #[must_use]
    pub fn availability(&self) -> String {
        format!("{}/status", self.root)
    }

    /// The topics whose messages are wanted.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<String> {
        let ends =
            ["station/+/+/set", "station/+/+/press", "client/+/+/set", "server/preset/+/press"];
        let commands = ends.map(|end| format!("{}/{end}", self.root));
        commands.into_iter().chain(self.birth()).collect()
    }

    /// The topics by whose retained messages the broker tells which stations and clients it knows.
    #[must_use]
    pub fn markers(&self) -> Vec<String> {
        PARTS.iter().map(|part| self.entity(part.kind, "+", part.marker)).collect()
    }

    /// The client's id in MQTT.
    #[must_use]
    pub fn client_id(&self) -> String {
        format!("aulos-{}", self.server)
    }

    /// Where Home Assistant says that it has started.
    pub(super) fn birth(&self) -> Option<String> {
        self.discovery.as_ref().map(|prefix| format!("{prefix}/status"))
    }

    pub(super) fn server(&self) -> String {
        format!("{}/server", self.root)
    }

    pub(super) fn preset(&self, name: &str) -> String {
        format!("{}/server/preset/{}/press", self.root, escape(name))
    }

    /// The topic of an entity of a station or client; `id` is escaped.
    pub(super) fn entity(&self, kind: &str, id: &str, entity: &str) -> String {
        format!("{}/{kind}/{id}/{entity}", self.root)
    }

    /// The unique id of a device; that of the server without kind and id.
    pub(super) fn device(&self, part: Option<(&str, &str)>) -> String {
        match part {
            None => format!("aulos_{}", self.server),
            Some((kind, id)) => format!("aulos_{}_{kind}_{id}", self.server),
        }
    }

    /// The topic that describes a device.
    pub(super) fn discovery(&self, device: &str) -> Option<String> {
        self.discovery.as_ref().map(|prefix| format!("{prefix}/device/{device}/config"))
    }

    /// The kind and escaped id of the part of which one of [`markers`](Self::markers) tells.
    pub(super) fn marker<'t>(&self, topic: &'t str) -> Option<(&'static str, &'t str)> {
        let mut words = topic.strip_prefix(&self.root)?.strip_prefix('/')?.splitn(3, '/');
        let (kind, id, entity) = (words.next()?, words.next()?, words.next()?);
        let part = PARTS.iter().find(|part| part.kind == kind && part.marker == entity)?;
        (is_plain(id) && id.len() <= MAX_ESCAPED).then_some((part.kind, id))
    }

    /// What a topic commands.
    pub(super) fn command<'t>(&self, topic: &'t str) -> Option<CommandTopic<'t>> {
        let mut parts = topic.strip_prefix(&self.root)?.strip_prefix('/')?.split('/');
        let command =
            CommandTopic { kind: parts.next()?, id: parts.next()?, entity: parts.next()? };
        let is_command = matches!(parts.next()?, "set" | "press");
        (is_command && parts.next().is_none()).then_some(command)
    }
}

/// An id of letters, digits, `_` and `-`, as topics and Home Assistant permit them. Another one has
/// `_` for each other character, and a hash that tells it from those that are escaped to the same.
pub(super) fn escape(id: &str) -> String {
    if id.len() <= MAX_PLAIN && is_plain(id) {
        return id.to_owned();
    }
    let plain = |c| if is_plain_char(c) { c } else { '_' };
    let mut escaped: String = id.chars().take(MAX_PLAIN).map(plain).collect();
    // FNV-1a: a place in a topic must stay the same from version to version.
    let hash = id
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    escaped.push_str(&format!("_{hash:08x}"));
    escaped
}

/// Whether an id has only characters that topics and Home Assistant permit.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.chars().all(is_plain_char)
}

const fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Longer ids are cut, and told apart by their hash.
const MAX_PLAIN: usize = 64;

/// With `_` and the eight digits of the hash.
const MAX_ESCAPED: usize = MAX_PLAIN + 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_escaped_to_what_home_assistant_permits_and_stays_unique() {
        for (id, expected) in [
            ("kitchen", "kitchen"),
            ("Hall-2_b", "Hall-2_b"),
            ("02:42:ac:11:00:02", "02_42_ac_11_00_02_"),
            ("Küche", "K_che_"),
            ("a/b", "a_b_"),
            ("a+b", "a_b_"),
            ("#", "__"),
            ("", "_"),
        ] {
            let escaped = escape(id);
            assert!(escaped.starts_with(expected), "{id}: {escaped}");
            assert_eq!(escaped.len(), expected.len() + if escaped == id { 0 } else { 8 }, "{id}");
        }
        assert_eq!(escape("a"), "a");
        // The vector of FNV-1a for "foobar" is 0xbf9cf968.
        assert!(escape(&"x".repeat(65)).starts_with(&"x".repeat(64)));
        let same = ["a/b", "a+b", "a b", "a_b"].map(escape);
        assert!((1..4).all(|index| !same[..index].contains(&same[index])), "{same:?}");
    }

    #[test]
    fn only_topics_of_this_server_tell_of_its_parts() {
        let topics = MqttTopics::new("aulos", "box", None);
        let long = format!("aulos/box/client/{}/connected", "x".repeat(MAX_ESCAPED + 1));
        for (topic, expected) in [
            ("aulos/box/station/hall/silence", Some(("station", "hall"))),
            ("aulos/box/client/02_42_63f5f2b5/connected", Some(("client", "02_42_63f5f2b5"))),
            ("aulos/box/station/hall/connected", None),
            ("aulos/box/station/hall/silence/set", None),
            ("aulos/box/station//silence", None),
            ("aulos/box/station/a b/silence", None),
            ("aulos/other/station/hall/silence", None),
            (&long, None),
        ] {
            assert_eq!(topics.marker(topic), expected, "{topic}");
        }
        let markers = ["aulos/box/station/+/silence", "aulos/box/client/+/connected"];
        assert_eq!(topics.markers(), markers);
    }

    #[test]
    fn only_topics_of_commands_are_commands() {
        let topics = MqttTopics::new("aulos", "box", Some("homeassistant"));
        let command = |kind, id, entity| Some(CommandTopic { kind, id, entity });
        for (topic, expected) in [
            ("aulos/box/station/hall/programme/set", command("station", "hall", "programme")),
            ("aulos/box/server/preset/night/press", command("server", "preset", "night")),
            ("aulos/box/station/hall/programme", None),
            ("aulos/box/station/hall/programme/set/x", None),
            ("aulos/box/station/hall/programme/get", None),
            ("aulos/boxer/station/hall/programme/set", None),
            ("aulos/box", None),
            ("", None),
        ] {
            assert_eq!(topics.command(topic), expected, "{topic}");
        }
        assert!(topics.subscriptions().contains(&"homeassistant/status".to_owned()));
        assert_eq!(MqttTopics::new("aulos", "box", None).subscriptions().len(), 4);
    }
}
