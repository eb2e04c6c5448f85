//! Commands to a real-time part, and events from it, with one policy for every part.
//!
//! No command is refused or lost. One that finds no room waits in the [`ControlPort`], in order,
//! and is sent with a later call; a setting replaces an older one that waits. What a command
//! carries comes back as an event, and is freed on the control thread. Room for that event is
//! reserved before the command is sent, so it cannot be lost however rarely events are read.
//!
//! See `docs/decisions/station-handle.md`.

use std::collections::VecDeque;

use aulos_rt::ring::{Consumer, Producer, ring};

/// A command or an event.
pub(crate) trait Message {
    /// Places in the event ring that a command reserves, or that an event releases.
    fn places(&self) -> usize {
        1
    }

    /// Whether this command makes an older one void that still waits.
    fn supersedes(&self, _older: &Self) -> bool {
        false
    }
}

/// Capacities of a pair of ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLimits {
    /// Commands in the ring.
    pub(crate) commands: usize,
    /// Places in the event ring that commands can reserve.
    pub(crate) reserved: usize,
    /// Further places, for events that no command has reserved. Unread replies take from these
    /// places as well, notices never from the reserved ones.
    pub(crate) notices: usize,
}

/// Creates the ends of the control thread and of the real-time part.
pub(crate) fn control_ports<C: Message, E: Message>(
    limits: PortLimits,
) -> (ControlPort<C, E>, RealTimePort<C, E>) {
    let (command_sender, commands) = ring(limits.commands);
    let (event_sender, events) = ring(limits.reserved + limits.notices);
    let (waiting, limit) = (VecDeque::new(), limits.reserved);
    let control = ControlPort { commands: command_sender, events, waiting, reserved: 0, limit };
    (control, RealTimePort { commands, events: event_sender, reserved: limit })
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct ControlPort<C, E> {
    commands: Producer<C>,
    events: Consumer<E>,
    waiting: VecDeque<C>,
    /// Places reserved by the commands sent and not released by an event.
    reserved: usize,
    limit: usize,
}

impl<C: Message, E: Message> ControlPort<C, E> {
    /// Sends a command, or lets it wait. The caller bounds the number of those that wait.
    pub(crate) fn send(&mut self, command: C) {
        self.waiting.retain(|older| !command.supersedes(older));
        self.waiting.push_back(command);
        self.flush();
    }

    /// Sends the commands that wait, as far as there is room.
    pub(crate) fn flush(&mut self) {
        while let Some(command) = self.waiting.pop_front() {
            let reserved = self.reserved + command.places();
            let refused =
                if reserved > self.limit { Err(command) } else { self.commands.push(command) };
            if let Err(command) = refused {
                self.waiting.push_front(command);
                return;
            }
            self.reserved = reserved;
        }
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<E> {
        let event = self.events.pop()?;
        self.reserved -= event.places();
        Some(event)
    }

    /// Frees what has come back.
    pub(crate) fn collect(&mut self) {
        while self.poll_event().is_some() {}
    }

    /// Whether a command that reserves one place would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.reserved < self.limit && self.commands.free() > 0
    }

    /// Number of commands that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the real-time part is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.commands.is_abandoned()
    }
}

/// The real-time part's end.
///
/// # Real-time
/// No function of it waits, allocates, frees or calls the system.
#[derive(Debug)]
pub(crate) struct RealTimePort<C, E> {
    commands: Consumer<C>,
    events: Producer<E>,
    reserved: usize,
}

impl<C: Message, E: Message> RealTimePort<C, E> {
    /// The next command.
    pub(crate) fn next(&mut self) -> Option<C> {
        self.commands.pop()
    }

    /// Sends an event for which a command has reserved room.
    pub(crate) fn reply(&mut self, event: E) {
        let refused = self.events.push(event);
        debug_assert!(refused.is_ok(), "an event without a reserved place");
    }

    /// Sends another event; returns whether there was room.
    #[must_use]
    pub(crate) fn notify(&mut self, event: E) -> bool {
        self.events.free() > self.reserved && self.events.push(event).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, PartialEq)]
    enum TestMessage {
        Value(Arc<()>),
        Setting(u32),
        Notice(u32),
    }

    impl Message for TestMessage {
        fn places(&self) -> usize {
            usize::from(matches!(self, Self::Value(_)))
        }

        fn supersedes(&self, older: &Self) -> bool {
            matches!((self, older), (Self::Setting(_), Self::Setting(_)))
        }
    }

    type Ports = (ControlPort<TestMessage, TestMessage>, RealTimePort<TestMessage, TestMessage>);

    fn ports() -> Ports {
        control_ports(PortLimits { commands: 2, reserved: 3, notices: 2 })
    }

    #[test]
    fn commands_keep_their_order_while_they_wait_and_settings_replace_older_ones() {
        let (mut control, mut part) = ports();
        let value = Arc::new(());
        control.send(TestMessage::Value(value.clone()));
        for setting in 0..100 {
            control.send(TestMessage::Setting(setting));
        }
        control.send(TestMessage::Value(value.clone()));
        assert_eq!((control.waiting(), Arc::strong_count(&value)), (2, 3));
        assert!(!control.has_room());
        assert!(matches!(part.next(), Some(TestMessage::Value(_))));
        assert_eq!(part.next(), Some(TestMessage::Setting(0)));
        assert_eq!(part.next(), None, "the others wait for a call");
        control.flush();
        assert_eq!(part.next(), Some(TestMessage::Setting(99)));
        assert!(matches!(part.next(), Some(TestMessage::Value(_))));
    }

    #[test]
    fn what_a_command_carried_comes_back_however_full_of_notices_the_ring_is() {
        let (mut control, mut part) = ports();
        let value = Arc::new(());
        let mut inside = Vec::new();
        for _ in 0..5 {
            control.send(TestMessage::Value(value.clone()));
            inside.extend(part.next());
        }
        assert_eq!((inside.len(), control.waiting()), (3, 2), "three places");
        let notices = (0..9).filter(|n| part.notify(TestMessage::Notice(*n))).count();
        assert_eq!(notices, 2);
        inside.drain(..).for_each(|value| part.reply(value));
        assert!(!part.notify(TestMessage::Notice(9)));
        assert_eq!(Arc::strong_count(&value), 6);
        control.collect();
        control.flush();
        assert_eq!((Arc::strong_count(&value), control.waiting()), (3, 0));
        drop(part);
        assert!(control.is_abandoned());
    }
}
