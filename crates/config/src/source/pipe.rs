//! Raw samples from a FIFO or from standard input: `pipe://`, `stdin:`.

use std::fs;
use std::path::PathBuf;

use aulos_core::SampleSpec;
use aulos_io::SourcePath;
use aulos_io::feed::{FifoAccess, FifoMode};

use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, ReadContext, ValueKind, keys};
use crate::source::kind::{LocalPath, SourceKind};
use crate::source::query::{Parsed, Query, SampleParams};
use crate::tree::Node;

/// Raw samples from standard input.
#[derive(Clone, Debug, PartialEq)]
pub struct StdinSource {
    /// The incoming spec.
    pub spec: SampleSpec,
}

impl SourceKind for StdinSource {
    fn scheme(&self) -> &'static str {
        "stdin"
    }

    fn spec(&self) -> Option<SampleSpec> {
        Some(self.spec)
    }

    fn needs_server(&self) -> bool {
        false
    }
}

/// Raw samples from a FIFO.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeSource {
    /// The path.
    pub path: SourcePath,
    /// Whether the FIFO is created, and for whom.
    pub mode: FifoMode,
    /// The incoming spec.
    pub spec: SampleSpec,
}

impl SourceKind for PipeSource {
    fn scheme(&self) -> &'static str {
        "pipe"
    }

    fn spec(&self) -> Option<SampleSpec> {
        Some(self.spec)
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn local_path(&self) -> Option<LocalPath<'_>> {
        Some(match self.mode {
            FifoMode::Create(_) => LocalPath::NewFifo(&self.path),
            FifoMode::Read => LocalPath::Fifo(&self.path),
        })
    }

    fn confine(&mut self, roots: &[PathBuf]) {
        self.path = self.path.clone().confined_to(roots);
    }
}

keys! {
    /// Parameters of `pipe:`.
    pub(crate) struct PipeParams {
        /// `create` makes the FIFO, for the server's user only; an octal number such as `0660`
        /// makes it with these permissions; `read` requires that it exists.
        mode: FifoModeParam = FifoModeParam::Create;
        /// Group of a FIFO that is made, by name or number; with it the default of `mode` is
        /// `0660`.
        group: Option<FifoGroup>, default_doc "the server's";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

/// How a FIFO comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FifoModeParam {
    Create,
    Read,
    /// Created, with these permission bits.
    Permissions(u32),
}

impl ConfigRead for FifoModeParam {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Choice(|| vec!["create", "read"]), &ValueKind::Text]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| match text {
            "create" => Ok(Self::Create),
            "read" => Ok(Self::Read),
            text => match u32::from_str_radix(text, 8) {
                // The server has to read it, and others write into it: no other bits are of use.
                Ok(bits) if text.len() <= 4 && bits <= 0o777 && bits & 0o600 == 0o600 => {
                    Ok(Self::Permissions(bits))
                }
                _ => Err("it must be create, read or permissions from 0600 to 0777"),
            },
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(match self {
            Self::Read => "read",
            Self::Create | Self::Permissions(_) => "create",
        }))
    }
}

/// The id of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FifoGroup(u32);

impl ConfigRead for FifoGroup {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let id =
                text.parse().ok().or_else(|| group_id(&fs::read_to_string(GROUPS).ok()?, text));
            id.map(Self)
                .ok_or("there is no such group in /etc/group; a number needs no entry there")
        })
    }
}

/// The id of a group in the lines of `/etc/group`: `NAME:PASSWORD:ID:MEMBERS`.
fn group_id(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

const GROUPS: &str = "/etc/group";

pub(crate) fn stdin(query: &Query<'_>) -> Parsed<StdinSource> {
    let SampleParams { sampleformat: spec, .. } = query.params();
    Some(vec![StdinSource { spec }])
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<PipeSource> {
    let PipeParams { mode, group, sampleformat: spec, .. } = query.params();
    let group = group.map(|FifoGroup(id)| id);
    let permissions = match mode {
        FifoModeParam::Permissions(bits) => Some(bits),
        _ => group.map(|_| 0o660),
    };
    let mode = match mode {
        FifoModeParam::Read if group.is_some() => {
            let hint = "leave `group` out: the permissions of the FIFO decide who may write";
            return query.refuse("`group` requires that the server creates the FIFO", hint);
        }
        FifoModeParam::Read => FifoMode::Read,
        _ => FifoMode::Create(FifoAccess { permissions, group }),
    };
    Some(vec![PipeSource { path: query.path()?.into(), mode, spec }])
}
