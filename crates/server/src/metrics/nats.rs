//! The metrics of NATS: what is published, what is received, and what nodes tell each other.

use super::table::{Metric, Values};

const NODE_REQUEST_RESULTS: &[&str] = &["status_answered", "status_dropped"];

const NODE_ANSWER_RESULTS: &[&str] =
    &["accepted", "malformed", "too_large", "checksum", "late", "repeated", "overflow"];

const SETTINGS_RESULTS: &[&str] =
    &["written", "applied", "conflict", "failed", "malformed", "repeated", "overflow"];

/// Metrics of stations in other places.
pub(super) const NATS: &[Metric] = &[
    Metric::gauge(
        "aulos_nats_connections",
        "Connections to NATS servers.",
        Values::Counters(&[("nats_connections", &[])]),
    ),
    Metric::counter(
        "aulos_nats_disconnects_total",
        "Connections to NATS servers that were lost.",
        Values::Counters(&[("nats_disconnects", &[])]),
    ),
    Metric::counter(
        "aulos_nats_published_chunks_total",
        "Chunks of published stations: handed to NATS, or dropped because there was no connection, it \
         refused them, or this server is not the one that sends the station.",
        Values::Counters(&[
            ("nats_chunks_published", &["published"]),
            ("nats_chunks_unconnected", &["unconnected"]),
            ("nats_chunks_refused", &["refused"]),
            ("nats_chunks_withheld", &["withheld"]),
            ("nats_chunks_resent", &["resent"]),
        ]),
    )
    .labels(&[("result", &["published", "unconnected", "refused", "withheld", "resent"])]),
    Metric::gauge(
        "aulos_nats_published_stations",
        "Published stations by the part of this server: it sends with the lease, sends although \
         JetStream did not confirm the lease in time, is on stand-by, waits for the lease, or sends \
         without one because NATS has no JetStream.",
        Values::Counters(&[
            ("nats_stations_sending", &["sending"]),
            ("nats_stations_unconfirmed", &["unconfirmed"]),
            ("nats_stations_standby", &["standby"]),
            ("nats_stations_waiting", &["waiting"]),
            ("nats_stations_unleased", &["unleased"]),
        ]),
    )
    .labels(&[("part", &["sending", "unconfirmed", "standby", "waiting", "unleased"])]),
    Metric::counter(
        "aulos_nats_leases_total",
        "Leases of published stations that this server acquired or lost.",
        Values::Counters(&[
            ("nats_leases_acquired", &["acquired"]),
            ("nats_leases_lost", &["lost"]),
        ]),
    )
    .labels(&[("event", &["acquired", "lost"])]),
    Metric::counter(
        "aulos_nats_times_answered_total",
        "Requests of edges for the time of this server that were answered.",
        Values::Counters(&[("nats_times_answered", &[])]),
    ),
    Metric::counter(
        "aulos_nats_node_requests_total",
        "Requests of other nodes for the status of this server, answered or dropped.",
        Values::Counters(&[
            ("nats_statuses_answered", &["status_answered"]),
            ("nats_statuses_dropped", &["status_dropped"]),
        ]),
    )
    .labels(&[("result", NODE_REQUEST_RESULTS)]),
    Metric::counter(
        "aulos_nats_node_answers_total",
        "Answers of other nodes about their status that were accepted, and what was dropped, by \
         reason.",
        Values::Counters(&[
            ("nats_answers_accepted", &["accepted"]),
            ("nats_answers_malformed", &["malformed"]),
            ("nats_answers_too_large", &["too_large"]),
            ("nats_answers_checksum", &["checksum"]),
            ("nats_answers_late", &["late"]),
            ("nats_answers_repeated", &["repeated"]),
            ("nats_answers_overflow", &["overflow"]),
        ]),
    )
    .labels(&[("result", NODE_ANSWER_RESULTS)]),
    Metric::counter(
        "aulos_nats_settings_total",
        "Shared settings: records that were written or applied, writes that another node was ahead \
         of or that failed, and what was dropped, by reason.",
        Values::Counters(&[
            ("nats_settings_written", &["written"]),
            ("nats_settings_applied", &["applied"]),
            ("nats_settings_conflicts", &["conflict"]),
            ("nats_settings_failed", &["failed"]),
            ("nats_settings_malformed", &["malformed"]),
            ("nats_settings_repeated", &["repeated"]),
            ("nats_settings_overflow", &["overflow"]),
        ]),
    )
    .labels(&[("result", SETTINGS_RESULTS)]),
    Metric::gauge(
        "aulos_nats_settings_waiting",
        "Changes of shared settings that wait to be written.",
        Values::Counters(&[("nats_settings_waiting", &[])]),
    ),
    Metric::counter(
        "aulos_nats_messages_total",
        "Messages of NATS sources: chunks that were accepted, and what was dropped, by reason.",
        Values::Counters(&[
            ("nats_chunks_accepted", &["accepted"]),
            ("nats_messages_malformed", &["malformed"]),
            ("nats_messages_checksum", &["checksum"]),
            ("nats_messages_foreign", &["foreign"]),
            ("nats_messages_fenced", &["fenced"]),
            ("nats_chunks_repeated", &["repeated"]),
            ("nats_chunks_out_of_order", &["out_of_order"]),
            ("nats_chunks_implausible", &["implausible"]),
            ("nats_messages_dropped", &["not_taken"]),
            ("nats_messages_overflow", &["overflow"]),
        ]),
    )
    .labels(&[("result", NATS_RESULTS)]),
    Metric::counter(
        "aulos_nats_missing_chunks_total",
        "Chunks of NATS sources that never came.",
        Values::Counters(&[("nats_chunks_missing", &[])]),
    ),
    Metric::counter(
        "aulos_nats_chunks_total",
        "Accepted chunks of NATS sources: played, or dropped, by reason.",
        Values::Counters(&[
            ("nats_chunks_played", &["played"]),
            ("nats_chunks_late", &["late"]),
            ("nats_chunks_early", &["early"]),
            ("nats_chunks_damaged", &["damaged"]),
            ("nats_chunks_dropped", &["dropped"]),
        ]),
    )
    .labels(&[("result", &["played", "late", "early", "damaged", "dropped"])]),
];

const NATS_RESULTS: &[&str] = &[
    "accepted",
    "malformed",
    "checksum",
    "foreign",
    "fenced",
    "repeated",
    "out_of_order",
    "implausible",
    "not_taken",
    "overflow",
];
