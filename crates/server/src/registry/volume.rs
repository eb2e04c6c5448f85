//! How loud a group is, and how loud a client may get.
//!
//! Snapcast's clients have volumes and its groups have none: each controller computes them in its
//! own way. Here it is done once: a group is as loud as its clients on average, and to change it
//! changes each by the same number.

use super::{Effects, NotFound, Notice, Registry};

/// By how much a volume changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeChange {
    /// To this.
    To(i64),
    /// By this.
    By(i64),
}

impl Registry {
    /// New clients are this loud, and no client gets louder than `cap`, unless it has one of its
    /// own.
    pub fn set_volume_limits(&mut self, initial: u8, cap: u8) {
        self.initial_volume = initial.min(100);
        self.cap = cap.min(100);
    }

    /// As [`Registry::set_loudness`] in a running house: who is louder than the new cap gets
    /// softer.
    pub fn change_volume_limits(&mut self, initial: u8, cap: u8) -> Effects {
        self.set_volume_limits(initial, cap);
        let louder = self.table.clients().filter(|client| client.volume > self.cap);
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
        let (_, client) = self.client(id).ok_or(NotFound::Client)?;
        let percent = match change {
            VolumeChange::To(percent) => percent,
            VolumeChange::By(delta) => i64::from(client.volume).saturating_add(delta),
        };
        self.set_volume(id, Some(percent), None)
    }

    /// Changes the volume of a group: its average where it is told a number, and every client by
    /// the same.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn change_group_volume(
        &mut self,
        id: &str,
        change: VolumeChange,
    ) -> Result<Effects, NotFound> {
        self.group(id).ok_or(NotFound::Group)?;
        let delta = match change {
            VolumeChange::By(delta) => delta,
            VolumeChange::To(percent) => percent.clamp(0, 100) - self.group_volume(id).unwrap_or(0),
        };
        let ids: Vec<String> = self.members(id).map(|client| client.id.clone()).collect();
        let mut all = Effects { save: true, ..Effects::default() };
        for id in &ids {
            let effects =
                self.change_volume(id, VolumeChange::By(delta)).map_err(|_| NotFound::Group)?;
            all.commands.extend(effects.commands);
            all.notices.extend(effects.notices);
        }
        Ok(all)
    }

    /// How loud a group is: the average of its clients.
    #[must_use]
    pub fn group_volume(&self, id: &str) -> Option<i64> {
        let clients = self.members(id).map(|client| (i64::from(client.volume), 1));
        let (sum, count) = clients.reduce(|all, one| (all.0 + one.0, all.1 + one.1))?;
        Some((sum + count / 2) / count)
    }

    /// Says how loud a client may get; a volume above it comes down at once. 100 is the house's.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_cap(&mut self, id: &str, percent: i64) -> Result<Effects, NotFound> {
        let client = self.client_mut(id)?;
        client.cap = super::clamp_volume(percent);
        let volume = i64::from(client.volume);
        let mut effects = self.set_volume(id, Some(volume), None)?;
        effects.notices = vec![Notice::Volume(id.to_owned())];
        Ok(effects)
    }
}
