//! The control thread's end of a running station: everything that is asked of a station goes
//! through its [`StationHandle`], and everything that it reports comes back there.

use aulos_core::{ChannelLayout, Db, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_dsp::equalizer::{EqualizerBand, InvalidBand, MAX_BANDS};
use aulos_dsp::normalize::{LookAhead, Normalizer, NormalizerError};
use aulos_dsp::sound::SoundProgram;
use aulos_rt::LatestReader;

use crate::announce::{
    self, Announcement, AnnouncementQueue, Layer, LayerQueues, MAX_IN_MIXER, MixerReport,
    QueueEvent,
};
use crate::control_port::{ControlPort, Message, PortLimits, RealTimePort, control_ports};
use crate::loudness_processor::{Chain, MAX_PARTS, NormalizerConfig, ProcessorCommand};
use crate::output_bus::{BusOutput, MAX_BUS_OUTPUTS, TooManyOutputs};
use crate::overlay::MAX_OVERLAYS;
use crate::status::StationStatus;
use crate::switch::{InputChange, SwitchSchedule};

/// A request for an input and for how long, or `None` to let the switch choose.
pub type PreferenceRequest = Option<(usize, Option<Span>)>;

/// What happened on a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationEvent {
    /// Another input is on air.
    Switched(SwitchEvent),
    /// An announcement began or ended.
    Announcement(QueueEvent),
}

/// A change of the input on air, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchEvent {
    /// Media time of the block in which it began.
    pub at: MediaTime,
    /// The change and its cause.
    pub change: InputChange,
}

/// The control of a running station: not for a real-time thread, because it allocates and frees.
///
/// Commands take effect with the station's next quantum, in the order of the calls. Those for which
/// the station has no room wait here, to be sent by a later call, and none is refused. What waits
/// is bounded: of each setting only the newest, and two commands for each output and announcement.
/// Call [`StationHandle::handle_timeout`] about ten times a second.
#[derive(Debug)]
pub struct StationHandle {
    port: ControlPort<StationCommand, StationReply>,
    status: LatestReader<StationStatus>,
    queues: LayerQueues,
    /// The queues of overlays that are on the way to the station, attached, or on the way back.
    overlays: Vec<(u64, LayerQueues)>,
    /// The peak that announcements on overlays keep to.
    ceiling: Db,
    rate: SampleRate,
    layout: ChannelLayout,
    quantum: Frames,
    /// That of the normalizer, if there is one.
    mode: Option<LookAhead>,
    /// Outputs that are on the way to the station, attached, or on the way back.
    outputs: Vec<u64>,
    last_output: u64,
}

impl StationHandle {
    pub(super) fn new(
        rate: SampleRate,
        layout: ChannelLayout,
        quantum: Frames,
        status: LatestReader<StationStatus>,
    ) -> (Self, StationPort) {
        let (control, port) = control_ports(LIMITS);
        let handle = Self {
            port: control,
            status,
            queues: LayerQueues::new(rate, layout, quantum),
            overlays: Vec::new(),
            ceiling: Db::ZERO,
            rate,
            layout,
            quantum,
            mode: None,
            outputs: Vec::new(),
            last_output: 0,
        };
        (handle, port)
    }

    /// The newest status of the station.
    pub fn status(&mut self) -> &StationStatus {
        self.status.read()
    }

    /// Passes what happened since the last call to `report`, frees what the station does not need
    /// any more, prepares announcements and sends commands that wait.
    ///
    /// At least [`MAX_SWITCH_EVENTS`] switches wait for this call; those that find no room are
    /// counted in [`StationStatus::switch_events_lost`]. Other events are never lost.
    pub fn handle_timeout(&mut self, now: Instant, mut report: impl FnMut(StationEvent)) {
        while let Some(reply) = self.port.poll_event() {
            match reply {
                StationReply::Switched(event) => report(StationEvent::Switched(event)),
                StationReply::Announcement(report) => self.handle_report(report),
                StationReply::Output(number, output) => {
                    self.outputs.retain(|other| *other != number);
                    drop(output);
                    for (_, mut queues) in self.overlays.extract_if(.., |(it, _)| *it == number) {
                        pass_events(&mut queues, &mut report);
                    }
                }
                StationReply::Chain(chain) => drop(chain),
                StationReply::Bands(bands) => drop(bands),
                StationReply::Sound(program) => drop(program),
            }
        }
        self.port.flush();
        for queue in self.queues.each() {
            while let Some(announcement) = queue.poll_ready(now) {
                self.port.send(StationCommand::Play(announcement));
            }
        }
        pass_events(&mut self.queues, &mut report);
        for (overlay, queues) in &mut self.overlays {
            for queue in queues.each() {
                while let Some(announcement) = queue.poll_ready(now) {
                    self.port.send(StationCommand::PlayOn(*overlay, announcement));
                }
            }
            pass_events(queues, &mut report);
        }
    }

    fn handle_report(&mut self, report: MixerReport) {
        if let Some(queue) = self.all_queues().find(|queue| queue.owns(&report)) {
            queue.handle_report(report);
        }
    }

    /// Restarts the loudness measurement of the station and all its inputs.
    pub fn reset_loudness(&mut self) {
        self.port.send(StationCommand::ResetLoudness);
    }

    /// Prefers an input, or ends the preference.
    pub fn set_preference(&mut self, request: PreferenceRequest) {
        self.port.send(StationCommand::Prefer(request));
    }

    /// Replaces the schedule. A change applies to the first frame whose time on the station's
    /// timeline is not before it.
    pub fn set_schedule(&mut self, schedule: SwitchSchedule) {
        self.port.send(StationCommand::Schedule(schedule));
    }

    /// Discards the audio that the station's senders have sent and that has not been played yet.
    pub fn flush(&mut self) {
        self.port.send(StationCommand::Flush);
    }

    /// Attaches an output; returns the number for [`StationHandle::remove_output`].
    ///
    /// # Errors
    /// [`TooManyOutputs`], also for more than [`MAX_OVERLAYS`]. An output that was removed counts
    /// until it has come back from the station.
    pub fn add_output(&mut self, output: impl Into<BusOutput>) -> Result<u64, TooManyOutputs> {
        let output = output.into();
        let is_overlay = matches!(output, BusOutput::Overlay(_));
        if self.outputs.len() >= MAX_BUS_OUTPUTS
            || (is_overlay && self.overlays.len() >= MAX_OVERLAYS)
        {
            return Err(TooManyOutputs);
        }
        self.last_output += 1;
        self.outputs.push(self.last_output);
        if is_overlay {
            let mut queues = LayerQueues::new(self.rate, self.layout, self.quantum);
            queues.limit_to(self.ceiling);
            self.overlays.push((self.last_output, queues));
        }
        self.port.send(StationCommand::AddOutput(self.last_output, output));
        Ok(self.last_output)
    }

    /// Detaches an output; the announcements of an overlay are cancelled. An unknown number is
    /// ignored: the reader of that output has gone.
    pub fn remove_output(&mut self, number: u64) {
        if self.outputs.contains(&number) {
            for layer in Layer::ALL {
                self.queue(Some(number), layer)
                    .into_iter()
                    .for_each(AnnouncementQueue::cancel_queued);
            }
            self.port.send(StationCommand::RemoveOutput(number));
        }
    }

    /// Enables, changes or disables the normalizer. New settings take effect at once, at the slopes
    /// that they allow; enabling, disabling and changing the mode take some seconds, without
    /// interrupting the audio. A change before the first quantum applies from the first frame on.
    ///
    /// # Errors
    /// [`NormalizerError`] when a value is out of range; nothing has changed then.
    pub fn set_normalizer(
        &mut self,
        config: Option<&NormalizerConfig>,
    ) -> Result<(), NormalizerError> {
        let ceiling = config.map_or(Db::ZERO, |config| config.settings.ceiling);
        let command = match config {
            Some(NormalizerConfig { mode, settings }) if Some(*mode) == self.mode => {
                // Only the normalizer knows all limits, including those of its layout.
                Normalizer::validate(settings, self.layout)?;
                ProcessorCommand::Set(settings.clone())
            }
            Some(config) => {
                let chain = Chain::new(config, self.rate, self.layout, self.quantum)?;
                self.mode = Some(config.mode);
                ProcessorCommand::Replace(Some(Box::new(chain)))
            }
            None if self.mode.take().is_some() => ProcessorCommand::Replace(None),
            None => return Ok(()),
        };
        self.ceiling = ceiling;
        self.overlays.iter_mut().for_each(|(_, queues)| queues.limit_to(ceiling));
        self.port.send(StationCommand::Loudness(command));
        Ok(())
    }

    /// Bypasses the normalizer, or ends the bypass. The bypassed programme keeps its latency and
    /// plays at the one gain that matches the normalized loudness. Switches within 50 ms.
    pub fn set_bypass(&mut self, on: bool) {
        self.port.send(StationCommand::Loudness(ProcessorCommand::Bypass(on)));
    }

    /// Replaces the equalizer bands, which process the programme before it is normalized; the old
    /// bands are faded out. Bands beyond [`MAX_BANDS`] are ignored.
    ///
    /// # Errors
    /// [`InvalidBand`] for the first invalid band; nothing has changed then.
    pub fn set_equalizer(&mut self, bands: &[EqualizerBand]) -> Result<(), InvalidBand> {
        bands.iter().try_for_each(|band| band.validate(self.rate))?;
        self.port.send(StationCommand::Equalizer(bands[..bands.len().min(MAX_BANDS)].into()));
        Ok(())
    }

    /// Changes the sound of a rendition that was made with one; `output` is the number that
    /// [`StationHandle::add_output`] has returned. An unknown number is ignored.
    pub fn set_sound(&mut self, output: u64, program: SoundProgram) {
        self.port.send(StationCommand::Sound(output, Box::new(program)));
    }

    /// The announcements that have not ended. [`StationHandle::handle_timeout`] starts them.
    pub const fn announcements(&mut self) -> &mut AnnouncementQueue {
        self.queues.of(Layer::Announcement)
    }

    /// The sounds of a layer of the station, or of the overlay of this number, that have not ended.
    pub fn queue(&mut self, overlay: Option<u64>, layer: Layer) -> Option<&mut AnnouncementQueue> {
        let queues = match overlay {
            None => Some(&mut self.queues),
            Some(overlay) => {
                let mut overlays = self.overlays.iter_mut();
                overlays.find(|(number, _)| *number == overlay).map(|(_, queues)| queues)
            }
        };
        queues.map(|queues| queues.of(layer))
    }

    /// The announcements of the overlay that [`StationHandle::add_output`] has numbered. An id is
    /// used for one announcement of the station and its overlays.
    pub fn overlay_announcements(&mut self, overlay: u64) -> Option<&mut AnnouncementQueue> {
        self.queue(Some(overlay), Layer::Announcement)
    }

    /// Cancels an announcement or a play, queued or playing, of the station or of an overlay. An
    /// unknown id is ignored: that sound has ended.
    pub fn cancel_announcement(&mut self, id: u64) {
        let in_mixer = self.all_queues().fold(false, |in_mixer, queue| in_mixer | queue.cancel(id));
        if in_mixer {
            self.port.send(StationCommand::Cancel(id));
        }
    }

    fn all_queues(&mut self) -> impl Iterator<Item = &mut AnnouncementQueue> {
        let overlays = self.overlays.iter_mut().map(|(_, queues)| queues);
        core::iter::once(&mut self.queues).chain(overlays).flat_map(LayerQueues::each)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.port.waiting()
    }
}

/// The station's end of its handle.
pub(super) type StationPort = RealTimePort<StationCommand, StationReply>;

/// What a handle asks of its station.
#[derive(Debug)]
pub(super) enum StationCommand {
    ResetLoudness,
    Prefer(PreferenceRequest),
    Schedule(SwitchSchedule),
    Flush,
    AddOutput(u64, BusOutput),
    RemoveOutput(u64),
    Loudness(ProcessorCommand),
    Equalizer(Box<[EqualizerBand]>),
    /// Changes the sound of the rendition of this number.
    Sound(u64, Box<SoundProgram>),
    Play(Box<Announcement>),
    /// Plays an announcement on the overlay of this number.
    PlayOn(u64, Box<Announcement>),
    Cancel(u64),
}

impl Message for StationCommand {
    fn places(&self) -> usize {
        match self {
            Self::AddOutput(..)
            | Self::Equalizer(_)
            | Self::Sound(..)
            | Self::Loudness(ProcessorCommand::Replace(Some(_))) => 1,
            Self::Play(_) | Self::PlayOn(..) => announce::REPORTS,
            Self::ResetLoudness
            | Self::Prefer(_)
            | Self::Schedule(_)
            | Self::Flush
            | Self::RemoveOutput(_)
            | Self::Loudness(_)
            | Self::Cancel(_) => 0,
        }
    }

    fn supersedes(&self, older: &Self) -> bool {
        match (self, older) {
            (Self::Loudness(new), Self::Loudness(older)) => new.supersedes(older),
            (Self::RemoveOutput(new), Self::RemoveOutput(older))
            | (Self::Cancel(new), Self::Cancel(older))
            | (Self::Sound(new, _), Self::Sound(older, _)) => new == older,
            (Self::ResetLoudness, Self::ResetLoudness)
            | (Self::Prefer(_), Self::Prefer(_))
            | (Self::Schedule(_), Self::Schedule(_))
            | (Self::Flush, Self::Flush)
            | (Self::Equalizer(_), Self::Equalizer(_)) => true,
            _ => false,
        }
    }
}

/// What a station reports, and what it gives back to be freed.
#[derive(Debug)]
pub(super) enum StationReply {
    Switched(SwitchEvent),
    Announcement(MixerReport),
    Output(u64, BusOutput),
    Chain(Box<Chain>),
    Bands(Box<[EqualizerBand]>),
    Sound(Box<SoundProgram>),
}

impl Message for StationReply {
    fn places(&self) -> usize {
        match self {
            Self::Switched(_) | Self::Announcement(MixerReport::Began(_)) => 0,
            // One that is cancelled at once never begins.
            Self::Announcement(MixerReport::Ended(..)) => announce::REPORTS,
            Self::Output(..) | Self::Chain(_) | Self::Bands(_) | Self::Sound(_) => 1,
        }
    }
}

fn pass_events(queues: &mut LayerQueues, report: &mut impl FnMut(StationEvent)) {
    for queue in queues.each() {
        while let Some(event) = queue.poll_event() {
            report(StationEvent::Announcement(event));
        }
    }
}

/// Switches that wait for [`StationHandle::handle_timeout`].
pub const MAX_SWITCH_EVENTS: usize = 64;

const RESERVED: usize = MAX_BUS_OUTPUTS
    + MAX_PARTS
    + (1 + MAX_OVERLAYS) * Layer::ALL.len() * MAX_IN_MIXER * announce::REPORTS;

const LIMITS: PortLimits =
    PortLimits { commands: 16, reserved: RESERVED, notices: RESERVED + MAX_SWITCH_EVENTS };
