//! Volumes of groups, and volume caps of clients.
//!
//! Snapcast has volumes of clients only, and each controller computes group volumes in its own way.
//! Here the volume of a group is the average of its clients, and changing it changes each client by
//! the same amount.

use super::client::VolumeLimits;
use super::{Effects, NotFound, Notice, Registry};

/// A change of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// Set to this value.
    To(i64),
    /// Change by this value.
    By(i64),
}

impl Registry {
    /// Sets the volume of new clients, and the cap for clients without a cap of their own.
    pub fn set_volume_limits(&mut self, initial: u8, cap: u8) {
        self.limits = VolumeLimits { initial: initial.min(100), cap: cap.min(100) };
    }

    /// Like [`Registry::set_volume_limits`] on a running server: clients above the new cap are
    /// lowered.
    pub fn change_volume_limits(&mut self, initial: u8, cap: u8) -> Effects {
        self.set_volume_limits(initial, cap);
        let louder = self.table.clients().filter(|client| client.volume > self.limits.cap);
        let ids: Vec<String> = louder.map(|client| client.id.clone()).collect();
        let mut all = Effects::default();
        for id in &ids {
            let Ok(effects) = self.change_volume(id, VolumeChange::By(0)) else { continue };
            all.save = true;
            all.commands.extend(effects.commands);
            all.notices.extend(effects.notices);
        }
        all
    }

    /// Changes a client's volume.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn change_volume(&mut self, id: &str, change: VolumeChange) -> Result<Effects, NotFound> {
        let (_, client) = self.table.client(id).ok_or(NotFound::Client)?;
        let percent = match change {
            VolumeChange::To(percent) => percent,
            VolumeChange::By(delta) => i64::from(client.volume).saturating_add(delta),
        };
        self.set_volume(id, Some(percent), None)
    }

    /// Changes the volume of a group: sets its average, or changes every client by the same amount.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn change_group_volume(
        &mut self,
        id: &str,
        change: VolumeChange,
    ) -> Result<Effects, NotFound> {
        self.table.group(id).ok_or(NotFound::Group)?;
        let delta = match change {
            VolumeChange::By(delta) => delta,
            VolumeChange::To(percent) => {
                percent.clamp(0, 100) - self.table.group_volume(id).unwrap_or(0)
            }
        };
        let ids: Vec<String> = self.table.members(id).map(|client| client.id.clone()).collect();
        let mut all = Effects { save: true, ..Effects::default() };
        for id in &ids {
            let effects =
                self.change_volume(id, VolumeChange::By(delta)).map_err(|_| NotFound::Group)?;
            all.commands.extend(effects.commands);
            all.notices.extend(effects.notices);
        }
        Ok(all)
    }

    /// Sets a client's volume cap; a higher volume is lowered at once. 100 means the server's cap.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_cap(&mut self, id: &str, percent: i64) -> Result<Effects, NotFound> {
        let client = self.table.client_mut(id).ok_or(NotFound::Client)?;
        client.cap = super::client::clamp_volume(percent);
        let volume = i64::from(client.volume);
        let mut effects = self.set_volume(id, Some(volume), None)?;
        effects.notices = vec![Notice::Volume(id.to_owned())];
        Ok(effects)
    }
}
