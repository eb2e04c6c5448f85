//! What one call reads and changes.

use std::pin::Pin;

use aulos_proto::snap::control::RpcError;
use serde_json::Value;

use crate::clients::registry::{Effects, NotFound};
use crate::control::state::{Control, ControlState};
use crate::methods::params::{Params, quoted_list, shorten};
use crate::methods::roles::Caller;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::slot::StationSlot;

/// The state of the server during a call, and what the call leaves behind.
pub(crate) struct CallContext<'a> {
    pub(crate) control: &'a Control,
    pub(crate) inner: &'a mut ControlState,
    pub(crate) caller: &'a mut Caller,
    /// Whether the call has an id. Without one the full status is not rendered.
    pub(crate) has_id: bool,
    pub(crate) outcome: CallEffects,
}

/// An answer that is known later.
pub(crate) type LaterAnswer = Pin<Box<dyn Future<Output = MethodResult> + Send>>;

/// What a call leaves behind besides its answer.
#[derive(Default)]
pub(crate) struct CallEffects {
    pub(crate) changes: Vec<Effects>,
    /// Stations to be removed once their clients have been moved.
    pub(crate) removed_stations: Vec<usize>,
    /// An answer as text, instead of the returned value: the full status is rendered directly and
    /// never built as a tree.
    pub(crate) text_answer: Option<String>,
    /// An answer that is known later, instead of the returned value. It is awaited without a lock.
    pub(crate) later_answer: Option<LaterAnswer>,
}

impl CallContext<'_> {
    pub(crate) fn push_effects(&mut self, effects: Effects) {
        self.outcome.changes.push(effects);
    }

    /// Requests a save without a notification.
    pub(crate) fn request_save(&mut self) {
        self.push_effects(Effects { save: true, ..Effects::default() });
    }

    /// Answers with JSON that is rendered already.
    pub(crate) fn answer_text(&mut self, text: String) -> Value {
        self.outcome.text_answer = Some(text);
        Value::Null
    }

    /// Answers with the status of the server.
    pub(crate) fn status(&mut self) -> Value {
        self.render_answer(Control::server_text)
    }

    pub(crate) fn aulos_status(&mut self) -> Value {
        self.render_answer(Control::status_text)
    }

    fn render_answer(&mut self, render: fn(&Control, &ControlState) -> String) -> Value {
        if !self.has_id {
            return Value::Null;
        }
        let text = render(self.control, self.inner);
        self.answer_text(text)
    }

    /// The station that the parameter `station` names, with its number.
    pub(crate) fn station_param(
        &self,
        params: &Params<'_>,
    ) -> Result<(usize, &StationSlot), RpcError> {
        self.station(params.text("station")?)
    }

    /// The station of this name, with its number.
    pub(crate) fn station(&self, name: &str) -> Result<(usize, &StationSlot), RpcError> {
        self.inner.station(name)
    }

    /// The stream that the parameter `id` names, with its number, with snapserver's error.
    pub(crate) fn stream_param(
        &self,
        params: &Params<'_>,
    ) -> Result<(usize, &StationSlot), RpcError> {
        Ok(self.inner.slot(params.text("id")?).ok_or(NotFound::Station)?)
    }
}

impl ControlState {
    /// The station of this name, with its number.
    ///
    /// # Errors
    /// The names of the stations that there are.
    pub(crate) fn station(&self, name: &str) -> Result<(usize, &StationSlot), RpcError> {
        self.slot(name).ok_or_else(|| {
            let known = self.slots().map(|(_, slot)| slot.station.name.as_str());
            unknown_name("", ("station", "stations"), name, known)
        })
    }
}

/// The error for a name that does not exist, with those that do. `kind` is what it names, one and
/// several.
pub(crate) fn unknown_name<'a>(
    prefix: &str,
    kind: (&str, &str),
    name: &str,
    mut known: impl Iterator<Item = &'a str>,
) -> RpcError {
    let (one, several) = kind;
    let shown: Vec<&str> = known.by_ref().take(MAX_NAMES_SHOWN).collect();
    let more = if known.next().is_some() { ", ..." } else { "" };
    let there = match &shown[..] {
        [] => format!("there are no {several}"),
        [only] => format!("there is `{only}`"),
        list => format!("there are {}{more}", quoted_list(list)),
    };
    let name = shorten(name);
    internal_error(format!("{prefix}there is no {one} `{name}`; {there}"))
}

/// Limit of names that an error lists.
const MAX_NAMES_SHOWN: usize = 16;
