//! Counters of connections and requests that were cut or refused.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::LoginError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was cut, refused or answered with an error, by cause.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Every counter with its name.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Controllers that did not read their data, or did not answer a ping.
    controllers_cut_slow,
    /// Controllers cut with the oldest notification when all notifications together took too much
    /// memory.
    controllers_cut_memory,
    /// Notifications not sent to a controller that was behind, because a newer full status includes
    /// them.
    notifications_superseded,
    /// Controllers that sent an overlong line.
    controllers_cut_long_line,
    /// Connections whose first byte cannot begin JSON, such as those that a web page makes a
    /// browser open.
    controllers_cut_not_json,
    /// Batches that exceeded the cost limit.
    batches_over_budget,
    /// Calls refused because too many came before a login.
    calls_refused_before_login,
    /// Controllers without a call whose slot a new connection needed.
    controllers_cut_unfinished,
    /// Controllers for which there was no slot.
    controllers_refused,
    /// Lines that were not JSON or not a request.
    rpc_not_understood,
    /// HTTP connections without a complete request in time.
    http_cut_slow_request,
    /// HTTP connections with an overlong first line.
    http_cut_long_request,
    /// HTTP connections without a request whose slot a new connection needed.
    http_cut_unfinished,
    /// HTTP connections for which there was no slot.
    http_refused,
    /// Requests from another site's page.
    http_cross_site,
    /// Requests with an unknown host name.
    http_wrong_host,
    /// Titles sent to the outputs of stations.
    title_outputs_sent,
    /// Titles that could not be sent to an output, and connections of outputs that ended.
    title_outputs_failed,
    /// Attempts to write the history of titles that failed.
    titles_not_saved,
    /// Followers of titles for which there was no room.
    title_followers_refused,
    /// Talks refused because too many are spoken at once.
    talks_refused_full,
    /// Talks refused for their request: an unknown target, a wrong value, or none in time.
    talks_refused_request,
    /// Talks whose microphone stalled, or fell behind.
    talks_cut_stalled,
    /// Talks whose sound came faster than it can be spoken.
    talks_cut_too_fast,
    /// Talks whose frames were no sound.
    talks_cut_damaged,
    /// Talks that were too long, or waited too long for their turn.
    talks_cut_too_long,
    /// Talks whose connection was lost.
    talks_lost,
    /// Web listeners that were refused by their address or program.
    http_listeners_denied,
    /// Connections above the limit for one address.
    control_refused_same_address,
    /// Connections above the rate limit for one address.
    control_refused_too_fast,
    /// Connections without TLS where it is required.
    control_refused_plain,
    /// Completed TLS handshakes.
    control_tls_handshakes,
    /// Connections that the peer closed, or that were lost, during their TLS handshake.
    control_closed_in_tls_handshake,
    /// Connections with an unfinished TLS handshake.
    control_cut_tls_unfinished,
    /// Connections with a failed TLS handshake.
    control_cut_tls_failed,
    /// Controllers that did not log in in time.
    controllers_cut_without_login,
    /// Logins with a wrong name or secret, on any port.
    logins_failed,
    /// Logins refused because their address had failed too often.
    logins_slowed,
    /// Live sources without a request whose slot a new connection needed.
    djs_cut_unfinished,
    /// Live sources for which there was no slot.
    djs_refused,
    /// Live sources for an unknown mount.
    djs_refused_unknown,
    /// Live sources for a mount that is in use.
    djs_refused_taken,
    /// Live sources with an unsupported stream type.
    djs_refused_type,
    /// Live sources without a complete request in time.
    djs_cut_without_request,
    /// Live sources with an overlong request.
    djs_cut_long_request,
    /// Sendspin connections without a free slot.
    sendspin_refused,
    /// Sendspin players that were not let in.
    sendspin_not_admitted,
    /// Requests of Sendspin clients for pictures that were reduced or put off.
    sendspin_artwork_limited,
    /// Pictures of stations that could not be decoded for Sendspin clients.
    sendspin_artwork_failed,
    /// Connections to a live source port that sent something else than a request.
    djs_not_understood,
    /// 1 while the broker of MQTT is connected.
    mqtt_connected,
    /// Connections to the broker that failed or ended.
    mqtt_disconnects,
    /// Messages published to the broker.
    mqtt_published,
    /// Commands from the broker that were carried out.
    mqtt_commands,
    /// Messages from the broker that are no command, are too many, or ask for what the call refuses.
    mqtt_refused,
    /// Events that were not published: without a connection, or behind too many others.
    mqtt_events_dropped,
    /// Failed writes of the state file.
    state_not_saved,
    /// Failed writes of the history.
    history_not_written,
    /// Blocks of the history given up because the disk has not taken any for too long.
    history_blocks_dropped,
    /// Seconds that the history has not taken in time.
    history_seconds_dropped,
    /// Clients of the saved state that exceeded the limit.
    clients_not_restored,
    /// Unknown clients above the rate limit for one address.
    clients_refused_new,
    /// Files of `doc_root` refused because too many reads were pending.
    pages_refused_busy,
    /// Exports of logs over HTTP.
    log_exports,
    /// Exports of logs refused because others were running.
    log_exports_refused,
    /// Files of `doc_root` that the disk did not deliver in time.
    pages_cut_slow,
}

/// Adds one to one of the [`Counters`].
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn count_denied(&self, denied: LoginError) {
        count(match denied {
            LoginError::WrongCredentials => &self.logins_failed,
            LoginError::RateLimited => &self.logins_slowed,
        });
    }
}
