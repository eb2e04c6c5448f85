//! The sinks of a sound server.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use aulos_core::Span;

use super::client::{NAME, PLAYER, begin_session};
use super::wire::{MessageReader, MessageWriter, Packet, command, event};
use super::{open_error, server};
use crate::clock;
use crate::output::device::{DeviceInfo, OutputError};

/// The sinks of the server, the default one first.
pub(in super::super) fn list_sinks() -> Result<Vec<DeviceInfo>, OutputError> {
    let socket = server::connect_server().map_err(open_error)?;
    ask(&socket).map_err(|error| OutputError::Device { name: "pulse".to_owned(), error })
}

fn ask(socket: &std::os::fd::OwnedFd) -> io::Result<Vec<DeviceInfo>> {
    let mut output = Vec::new();
    begin_session(PLAYER, &server::cookie(), &mut output);
    // Here and below, less than the buffer of any socket.
    send(socket, &output, SendFlags::NOSIGNAL)?;
    let malformed = || io::Error::other("the server has sent a malformed message");
    let (mut input, mut buffer) = (Vec::new(), [0; 4_096]);
    let mut default = None;
    let until = clock::now() + TIMEOUT;
    loop {
        while let Some(packet) = Packet::parse(&input).map_err(|_| malformed())? {
            let length = packet.length;
            if let Some(message) = packet.message {
                let mut values = MessageReader(message);
                match (values.u32(), values.u32()) {
                    (Some(event::ERROR), _) => return Err(io::Error::other("access denied")),
                    // Before this reply PipeWire's lists are empty.
                    (Some(event::REPLY), Some(NAME)) => {
                        output.clear();
                        MessageWriter::new(&mut output, command::GET_SERVER_INFO, SERVER).end();
                        MessageWriter::new(&mut output, command::GET_SINK_INFO_LIST, SINKS).end();
                        send(socket, &output, SendFlags::NOSIGNAL)?;
                    }
                    (Some(event::REPLY), Some(SERVER)) => default = default_sink(values),
                    (Some(event::REPLY), Some(SINKS)) => {
                        return sinks(values, default.as_deref()).ok_or_else(malformed);
                    }
                    _ => {}
                }
            }
            input.drain(..length);
        }
        let left = until - clock::now();
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        if left <= Span::ZERO || poll(&mut fds, Some(&clock::timeout(left)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => input.extend(&buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn default_sink(mut values: MessageReader<'_>) -> Option<String> {
    // Name and version of the server, user, host, sample spec.
    values.skip_values(5)?;
    values.text()?
}

/// A sink or a source in a list of the server, which have the same values.
struct PulseDevice {
    name: String,
    description: String,
    channels: u8,
    hz: u32,
}

impl PulseDevice {
    fn parse(values: &mut MessageReader<'_>) -> Option<Self> {
        let _index = values.u32()?;
        let (name, description) = (values.text()??, values.text()?.unwrap_or_default());
        let (channels, hz) = values.spec()?;
        // Channel map, module, volumes, mute, monitor (2), latency, driver, flags, properties,
        // configured latency, base volume, state, steps of the volume, card.
        values.skip_values(15)?;
        Some(Self { name, description, channels, hz })
    }
}

/// The names of the sources in a reply.
pub(super) fn source_names(mut values: MessageReader<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !values.is_empty() {
        names.push(PulseDevice::parse(&mut values)?.name);
    }
    Some(names)
}

fn sinks(mut values: MessageReader<'_>, default: Option<&str>) -> Option<Vec<DeviceInfo>> {
    let mut list = Vec::new();
    while !values.is_empty() {
        let PulseDevice { name, description, channels, hz } = PulseDevice::parse(&mut values)?;
        let is_default = default == Some(name.as_str());
        let mark = if is_default { " (default)" } else { "" };
        let description = format!("{description}, {hz} Hz, {channels} channels{mark}");
        let at = if is_default { 0 } else { list.len() };
        list.insert(at, DeviceInfo { output: format!("pulse:{name}"), description });
    }
    Some(list)
}

const SERVER: u32 = 2;
const SINKS: u32 = 3;

const TIMEOUT: Span = Span::from_secs(2);
