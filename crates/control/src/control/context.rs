//! What one call reads and changes.

use aulos_proto::snap::control::RpcError;

use super::state::{Control, Subjects};
use crate::clients::registry::{Effects, NotFound, to_json_text};
use crate::methods::params::Params;
use crate::methods::roles::Caller;
use crate::methods::rpc::CallOutput;
use crate::stations::slot::StationSlot;

/// The state of the server during a call, and what the call leaves behind.
pub(crate) struct CallContext<'a> {
    pub(crate) control: &'a Control,
    pub(crate) subjects: &'a mut Subjects,
    pub(crate) caller: &'a mut Caller,
    pub(crate) outcome: CallEffects,
}

/// What a call leaves behind besides its answer.
#[derive(Default)]
pub(crate) struct CallEffects {
    pub(crate) changes: Vec<Effects>,
    /// Stations to be removed once their clients have been moved.
    pub(crate) removed_stations: Vec<usize>,
}

impl CallContext<'_> {
    pub(crate) fn push_effects(&mut self, effects: Effects) {
        self.outcome.changes.push(effects);
    }

    /// Requests a save without a notification.
    pub(crate) fn request_save(&mut self) {
        self.push_effects(Effects { save: true, ..Effects::default() });
    }

    /// The answer with the whole of `Server.GetStatus`, as it is now.
    pub(crate) fn server_status(&self) -> CallOutput {
        let Subjects { clients, stations, .. } = &*self.subjects;
        let view = self.control.views().server(clients, stations);
        CallOutput::view(move || to_json_text(&view))
    }

    /// The answer with the whole of `Aulos.GetStatus`, as it is now.
    pub(crate) fn aulos_status(&self) -> CallOutput {
        let view = self.control.views().status(self.subjects);
        CallOutput::view(move || view.text())
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
        self.subjects.stations.named(name)
    }

    /// The stream that the parameter `id` names, with its number, with snapserver's error.
    pub(crate) fn stream_param(
        &self,
        params: &Params<'_>,
    ) -> Result<(usize, &StationSlot), RpcError> {
        Ok(self.subjects.stations.find(params.text("id")?).ok_or(NotFound::Station)?)
    }
}
