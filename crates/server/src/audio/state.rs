//! The state of the audio backend: its threads, its running stations and what runs beside them.
//!
//! It is apart from the operations on it, so that each of them needs the state and not the others.
//! The types of its fields have files of their own, below this one, for the same reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use aulos_config::{Endpoint, StationSettings};
use aulos_control::backend::{BackgroundTask, ProgrammeEvent};
use aulos_core::{Instant, Rng};
use aulos_engine::station::StationHandle;
use aulos_io::reactor::{ReactorPool, StationDescriptor};
use aulos_io::{CodecPool, WorkerTaskId, Workers};

use super::announcements::StationAnnouncements;
use super::insert_monitor::InsertMonitor;
use super::mount_monitor::MountMonitor;
use super::rtp::{RtpService, StationRtpOutput};
use super::running_push::RunningPush;
use super::running_rendition::{
    PlayerFormats, PlayingSession, RunningOverlay, RunningRendition, WantedRendition,
};
use super::sources::counters::SourceCounters;
use super::sources::live_input::PortStatus;
use super::sources::source_monitor::SourceMonitor;
use super::sources::station_link::StationLink;
use super::station_recorder::{RecorderManager, StationRecorder};
use crate::hls::{HlsTable, HlsTitle};
use crate::nats::{NatsService, PublicationState};
use crate::push::PushClient;
use crate::radio::{ClipClient, RadioClient};

/// What the operations of the audio backend share, under one lock.
pub(super) struct AudioState {
    pub(super) context: ReactorPool,
    pub(super) workers: Workers,
    pub(super) codecs: CodecPool,
    /// Indexed by station number; none where a station was removed.
    pub(super) stations: Vec<Option<RunningStation>>,
    /// Sources that are other stations.
    pub(super) links: Vec<StationLink>,
    /// Renditions for clients' sounds, other codecs and overlays, sessions that play them, and
    /// sessions that wait to be moved to one.
    pub(super) renditions: Vec<RunningRendition>,
    pub(super) playing: Vec<PlayingSession>,
    pub(super) pending_moves: Vec<WantedRendition>,
    /// What the Sendspin clients of sessions can play.
    pub(super) players: Vec<PlayerFormats>,
    /// Copies of stations' outputs with announcements for some clients.
    pub(super) overlays: Vec<RunningOverlay>,
    /// Chunks that renditions on the codec pool have lost.
    pub(super) lost_chunks: Arc<AtomicU64>,
    /// Number of stations started so far.
    pub(super) station_runs: u64,
    /// Connects to web radio, to sounds of announcements and to push targets. Their tasks wait here
    /// until the control runtime takes them.
    pub(super) radio_client: RadioClient,
    pub(super) clip_client: ClipClient,
    pub(super) pusher: PushClient,
    pub(super) recorder_manager: RecorderManager,
    pub(super) background_tasks: Vec<BackgroundTask>,
    /// Seeds of other generators, different in each run of the server.
    pub(super) seeds: Rng,
    pub(super) rtp: RtpService,
    /// Ports for DJs, and whether each is open.
    pub(super) dj_ports: Vec<(Endpoint, PortStatus)>,
    pub(super) source_counters: SourceCounters,
    /// Where sources keep their keys.
    pub(super) state_dir: PathBuf,
    pub(super) nats: NatsService,
    pub(super) hls: Arc<HlsTable>,
    /// Events of removed stations that control has not collected yet.
    pub(super) finished_events: Vec<ProgrammeEvent>,
}

impl AudioState {
    /// The running station of this number.
    pub(super) fn station(&mut self, number: usize) -> Option<&mut RunningStation> {
        self.stations.get_mut(number).and_then(Option::as_mut)
    }
}

/// A running station: its configuration and the handles to its parts.
#[derive(Debug)]
pub(super) struct RunningStation {
    pub(super) config: StationSettings,
    pub(super) handle: StationHandle,
    /// What the reactors serve.
    pub(super) channel: StationDescriptor,
    /// Its publication to other servers.
    pub(super) publication: Option<PublicationState>,
    pub(super) sources: Vec<Box<dyn SourceMonitor>>,
    pub(super) announcements: StationAnnouncements,
    /// Push targets of its stream.
    pub(super) pushes: Vec<RunningPush>,
    /// Its RTP outputs.
    pub(super) rtp: Vec<StationRtpOutput>,
    pub(super) recordings: Vec<StationRecorder>,
    /// The program of its insert.
    pub(super) insert: Option<InsertMonitor>,
    /// The time at which clients discard what they have buffered.
    pub(super) flush_at: Option<Instant>,
    /// The current title, in one line.
    pub(super) title: Arc<str>,
    /// For the titles of HLS.
    pub(super) hls: Option<HlsTitle>,
    /// For a mount.
    pub(super) mount: Option<MountMonitor>,
    /// A number that is never used for two stations.
    pub(super) run: u64,
    pub(super) worker_slot: WorkerTaskId,
}

/// Removes the first matching element, so that it is kept when a list is replaced.
pub(super) fn take_matching<T>(list: &mut Vec<T>, is_same: impl FnMut(&T) -> bool) -> Option<T> {
    let at = list.iter().position(is_same)?;
    Some(list.swap_remove(at))
}
