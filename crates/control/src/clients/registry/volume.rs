//! Volumes of groups, and volume caps of clients.
//!
//! Snapcast has volumes of clients only, and each controller computes group volumes in its own way.
//! Here the volume of a group is the average of its clients, as in Sendspin, whose players are in
//! the same groups.

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

    /// Changes the volume of a group: sets its average by Sendspin's rule, or changes every client
    /// by the same amount as far as it can.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn change_group_volume(
        &mut self,
        id: &str,
        change: VolumeChange,
    ) -> Result<Effects, NotFound> {
        self.table.group(id).ok_or(NotFound::Group)?;
        let members = self.table.members(id);
        let volumes: Vec<(i64, i64)> = members
            .clone()
            .map(|client| (client.volume.into(), client.cap.min(self.limits.cap).into()))
            .collect();
        let volumes = match change {
            VolumeChange::By(delta) => {
                volumes.iter().map(|(volume, _)| volume.saturating_add(delta)).collect()
            }
            VolumeChange::To(percent) => {
                let average = self.table.group_volume(id).unwrap_or(0);
                volumes_for_average(&volumes, percent.clamp(0, 100) - average)
            }
        };
        let ids: Vec<String> = members.map(|client| client.id.clone()).collect();
        let mut all = Effects { save: true, ..Effects::default() };
        for (id, volume) in ids.iter().zip(volumes) {
            let effects = self.set_volume(id, Some(volume), None).map_err(|_| NotFound::Group)?;
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

/// The volumes that change the average of these volumes, each with its limit, by `difference`: the
/// rule of Sendspin's controller role. Each volume changes by the difference; what a limit takes
/// away is shared by those that have reached none, until nothing is left or all have.
fn volumes_for_average(volumes: &[(i64, i64)], difference: i64) -> Vec<i64> {
    // Volumes and limits are percentages, and there are far fewer than 2^53 clients.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    let float = |number: i64| number as f64;
    let mut all: Vec<(f64, f64)> =
        volumes.iter().map(|(volume, limit)| (float(*volume.min(limit)), float(*limit))).collect();
    let mut rest = float(difference) * all.iter().map(|_| 1.0).sum::<f64>();
    // Volumes and limits are whole numbers at first, so that there are at most a hundred distances
    // to a limit, and each round uses up one.
    loop {
        let open = |(volume, limit): &(f64, f64)| match rest > 0.0 {
            true => volume < limit,
            false => *volume > 0.0,
        };
        let count = all.iter().filter(|one| open(one)).map(|_| 1.0).sum::<f64>();
        if rest.abs() < LEAST_REST || count < 1.0 {
            break;
        }
        let share = rest / count;
        let mut lost = 0.0;
        for one in all.iter_mut().filter(|one| open(one)) {
            let wanted = one.0 + share;
            one.0 = wanted.clamp(0.0, one.1);
            lost += wanted - one.0;
        }
        rest = lost;
    }
    // The cast is exact: the values are from 0 to 100.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    all.into_iter().map(|(volume, _)| volume.round() as i64).collect()
}

/// Below it a rest is a rounding error; it is far less than one percent of one client.
const LEAST_REST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_reached_although_some_clients_are_at_their_limit() {
        for (volumes, to, expected) in [
            // The example of Sendspin's specification.
            (&[(20, 100), (60, 100), (100, 100)][..], 80, &[50, 90, 100][..]),
            (&[(40, 100), (60, 100)], 60, &[50, 70]),
            (&[(0, 100), (50, 100), (100, 100)], 20, &[0, 5, 55]),
            (&[(0, 100), (0, 100)], 0, &[0, 0]),
            (&[(10, 100), (90, 100)], 100, &[100, 100]),
            (&[(10, 100), (90, 100)], 0, &[0, 0]),
            // Caps are limits: the average is as high as they let it be.
            (&[(20, 30), (20, 100)], 50, &[30, 70]),
            (&[(20, 30), (20, 40)], 90, &[30, 40]),
            (&[(20, 0), (20, 100)], 50, &[0, 80]),
            (&[], 50, &[]),
        ] {
            let count = i64::try_from(volumes.len()).unwrap().max(1);
            let sum: i64 = volumes.iter().map(|(volume, _)| volume).sum();
            let difference = to - (sum + count / 2) / count;
            assert_eq!(volumes_for_average(volumes, difference), expected, "{volumes:?} {to}");
        }
    }

    #[test]
    fn every_average_within_the_limits_is_reached_to_one_percent() {
        let mut rng = aulos_core::Rng::new(7);
        for _ in 0..20_000 {
            let count = 1 + i64::try_from(rng.below(7)).unwrap();
            let mut percent = || i64::try_from(rng.below(101)).unwrap();
            let volumes: Vec<(i64, i64)> =
                (0..count).map(|_| (percent(), percent())).map(|(a, b)| (a.min(b), b)).collect();
            let average = |of: &[i64]| (of.iter().sum::<i64>() + count / 2) / count;
            let now = average(&volumes.iter().map(|(volume, _)| *volume).collect::<Vec<_>>());
            let most = average(&volumes.iter().map(|(_, limit)| *limit).collect::<Vec<_>>());
            let to = percent();
            let set = volumes_for_average(&volumes, to - now);
            let reached = average(&set);
            assert!((reached - to.min(most)).abs() <= 1, "{volumes:?} {to}: {set:?}");
            let is_within =
                |(volume, (_, limit)): (&i64, &(i64, i64))| (0..=*limit).contains(volume);
            assert!(set.iter().zip(&volumes).all(is_within), "{volumes:?} {to}: {set:?}");
        }
    }
}
