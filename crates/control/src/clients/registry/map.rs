//! Channel maps of clients.

use aulos_core::ChannelMap;

use super::{Client, Effects, NotFound, Notice, Registry};

impl Registry {
    /// Sets which channels a client plays.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_map(&mut self, id: &str, map: ChannelMap) -> Result<Effects, NotFound> {
        let before =
            std::mem::replace(&mut self.table.client_mut(id).ok_or(NotFound::Client)?.map, map);
        let mut effects =
            Effects { save: true, ..Effects::notice(Notice::ChannelMap(id.to_owned())) };
        self.push_client(id, before != map, &mut effects);
        Ok(effects)
    }
}

/// Every channel map other than stereo in use by connected clients, with the station's number;
/// each pair once.
pub(crate) fn active_maps(registry: &Registry) -> Vec<(usize, ChannelMap)> {
    let mut all = Vec::new();
    let others = |client: &&Client| client.map != ChannelMap::Stereo && client.session.is_some();
    for client in registry.table.clients().filter(others) {
        let group = registry.table.client(&client.id).map(|(group, _)| group);
        let number = group.and_then(|group| registry.stations.find(&group.station));
        let pair = number.map(|(number, _)| (number, client.map));
        all.extend(pair.filter(|pair| !all.contains(pair)));
    }
    all
}
