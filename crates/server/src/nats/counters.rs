//! The counters of NATS.

use std::sync::atomic::{AtomicU64, Ordering};

use aulos_io::feed::SnapcastCounters;
#[cfg(feature = "nats")]
use aulos_session::nats::LeaseState;
use aulos_session::nats::{NatsInputCounts, NodeTableCounts, SettingsCounts};
use aulos_session::snapcast::SnapcastInputCounts;

/// What happened to the messages of all stations and sources.
#[derive(Debug, Default)]
pub(crate) struct NatsCounters {
    /// Connections to servers now.
    pub(crate) connected: AtomicU64,
    /// Connections that were lost.
    pub(crate) disconnects: AtomicU64,
    /// Chunks that were handed to NATS.
    pub(crate) published: AtomicU64,
    /// Chunks that were not, because there was no connection.
    pub(crate) unconnected: AtomicU64,
    /// Chunks that were not, because the connection did not take them in time or refused them.
    pub(crate) refused: AtomicU64,
    /// Chunks that were not, because another origin has the lease of the station.
    pub(crate) withheld: AtomicU64,
    /// Chunks that were sent again, after a connection was lost or because an edge had missed them.
    pub(crate) again: AtomicU64,
    /// Leases that this server took, and that it lost.
    pub(crate) leases_acquired: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
    /// Published stations now, in the order of [`STATIONS`].
    stations: [AtomicU64; 5],
    /// Requests for the time that were answered.
    pub(crate) times: AtomicU64,
    /// Requests for the status of this node that were answered, and those that were not because the
    /// control plane was busy or no request of ours.
    pub(crate) statuses: AtomicU64,
    pub(crate) statuses_dropped: AtomicU64,
    /// Answers of other nodes, in the order of [`NodeTableCounts::named`].
    answers: [AtomicU64; 7],
    /// Shared settings, in the order of [`SettingsCounts::named`].
    settings: [AtomicU64; 7],
    /// Changes of settings that wait for the bucket.
    pub(crate) settings_waiting: AtomicU64,
    /// Messages that the connection dropped because its subscriptions were full.
    pub(crate) overflow: AtomicU64,
    /// In the order of [`NatsInputCounts::named`].
    received: [AtomicU64; 10],
    /// What became of accepted chunks.
    played: SnapcastCounters,
}

impl NatsCounters {
    /// The counters and their stable names.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("nats_connections", &self.connected),
            ("nats_disconnects", &self.disconnects),
            ("nats_chunks_published", &self.published),
            ("nats_chunks_unconnected", &self.unconnected),
            ("nats_chunks_refused", &self.refused),
            ("nats_chunks_withheld", &self.withheld),
            ("nats_chunks_resent", &self.again),
            ("nats_leases_acquired", &self.leases_acquired),
            ("nats_leases_lost", &self.leases_lost),
            ("nats_times_answered", &self.times),
            ("nats_statuses_answered", &self.statuses),
            ("nats_statuses_dropped", &self.statuses_dropped),
            ("nats_settings_waiting", &self.settings_waiting),
            ("nats_messages_overflow", &self.overflow),
        ];
        let received = RECEIVED.into_iter().zip(&self.received);
        let played = self.played.named().map(|(_, counter)| counter);
        let stations = STATIONS.into_iter().zip(&self.stations);
        let answers = ANSWERS.into_iter().zip(&self.answers);
        let all = own
            .into_iter()
            .chain(stations)
            .chain(answers)
            .chain(SETTINGS.into_iter().zip(&self.settings))
            .chain(received)
            .chain(PLAYED.into_iter().zip(played));
        all.map(|(name, counter)| (name, counter.load(Ordering::Relaxed))).collect()
    }

    /// Adds what has become of the answers of other nodes since `before`.
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "there are no other nodes"))]
    pub(crate) fn add_answers(&self, counts: NodeTableCounts, before: NodeTableCounts) {
        let differences = counts.named().into_iter().zip(before.named());
        for (counter, ((_, count), (_, before))) in self.answers.iter().zip(differences) {
            counter.fetch_add(count - before, Ordering::Relaxed);
        }
    }

    /// Adds what has happened to shared settings since `before`.
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "none are shared"))]
    pub(crate) fn add_settings(&self, counts: SettingsCounts, before: SettingsCounts) {
        let differences = counts.named().into_iter().zip(before.named());
        for (counter, ((_, count), (_, before))) in self.settings.iter().zip(differences) {
            counter.fetch_add(count - before, Ordering::Relaxed);
        }
    }

    /// Adds what has happened to a source since `before`.
    #[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "there is no source"))]
    pub(crate) fn add(
        &self,
        (counts, before): (NatsInputCounts, NatsInputCounts),
        (played, played_before): (SnapcastInputCounts, SnapcastInputCounts),
    ) {
        let differences = counts.named().into_iter().zip(before.named());
        for (counter, ((_, count), (_, before))) in self.received.iter().zip(differences) {
            counter.fetch_add(count - before, Ordering::Relaxed);
        }
        self.played.add(played, played_before);
    }
}

/// The published stations whose part is this one.
#[cfg(feature = "nats")]
pub(super) const fn lease_gauge<'a>(
    counters: &'a NatsCounters,
    state: &LeaseState,
) -> &'a AtomicU64 {
    let [waiting, sending, unconfirmed, standby, unleased] = &counters.stations;
    match state {
        LeaseState::Waiting => waiting,
        LeaseState::Holder { .. } => sending,
        LeaseState::Unconfirmed { .. } => unconfirmed,
        LeaseState::Standby { .. } => standby,
        LeaseState::Unleased { .. } => unleased,
    }
}

const STATIONS: [&str; 5] = [
    "nats_stations_waiting",
    "nats_stations_sending",
    "nats_stations_unconfirmed",
    "nats_stations_standby",
    "nats_stations_unleased",
];

const ANSWERS: [&str; 7] = [
    "nats_answers_accepted",
    "nats_answers_malformed",
    "nats_answers_too_large",
    "nats_answers_checksum",
    "nats_answers_late",
    "nats_answers_repeated",
    "nats_answers_overflow",
];

const SETTINGS: [&str; 7] = [
    "nats_settings_written",
    "nats_settings_applied",
    "nats_settings_conflicts",
    "nats_settings_failed",
    "nats_settings_malformed",
    "nats_settings_repeated",
    "nats_settings_overflow",
];

const RECEIVED: [&str; 10] = [
    "nats_chunks_accepted",
    "nats_messages_malformed",
    "nats_messages_checksum",
    "nats_messages_foreign",
    "nats_messages_fenced",
    "nats_chunks_repeated",
    "nats_chunks_out_of_order",
    "nats_chunks_implausible",
    "nats_chunks_missing",
    "nats_messages_dropped",
];

const PLAYED: [&str; 8] = [
    "nats_sources_failed",
    "nats_chunks_played",
    "nats_chunks_late",
    "nats_chunks_early",
    "nats_chunks_damaged",
    "nats_codec_panics",
    "nats_chunks_dropped",
    "nats_gaps_filled",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_name_of_its_own() {
        let counters = NatsCounters::default();
        let names: Vec<_> = counters.named().into_iter().map(|(name, _)| name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        // The names of the source's causes, with a prefix.
        for ((cause, _), name) in NatsInputCounts::default().named().into_iter().zip(RECEIVED) {
            let is_dropped = cause == "overflow" && name == "nats_messages_dropped";
            assert!(name.ends_with(cause) || is_dropped, "{cause} {name}");
        }
        let causes = NodeTableCounts::default().named();
        assert!(causes.iter().zip(ANSWERS).all(|((cause, _), name)| name.ends_with(cause)));
        let causes = SettingsCounts::default().named();
        assert!(causes.iter().zip(SETTINGS).all(|((cause, _), name)| name.ends_with(cause)));
        let of = SnapcastCounters::default();
        for ((cause, _), name) in of.named().into_iter().zip(PLAYED) {
            assert_eq!(cause.replace("snapcast", "nats"), name);
        }
    }
}
