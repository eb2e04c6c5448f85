//! RTP sources and outputs as machines that datagrams drive.

use std::convert::Infallible;

use aulos_core::Instant;

use super::{OutgoingDatagram, RtpInput, RtpOutput};
use crate::datagram::{Machine, Outbox, Packets, Route};

/// A source or an output of a station, with its socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum RtpSession {
    /// A source.
    Input(Box<RtpInput>),
    /// An output.
    Output(Box<RtpOutput>),
}

impl Machine for RtpSession {
    type Command = Infallible;
    type Report = ();

    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, _out: &mut Outbox<'_>) {
        match self {
            Self::Input(intake) => {
                for packet in packets {
                    intake.handle_packet(packet.received, packet.from, packet.bytes);
                }
                intake.flush();
            }
            Self::Output(output) => {
                for packet in packets {
                    output.handle_packet(now, packet.from, packet.bytes);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let is_abandoned = match self {
            Self::Input(intake) => {
                intake.handle_timeout(now);
                intake.is_abandoned()
            }
            Self::Output(output) => {
                output.handle_timeout(now, &mut |part| send(part, out));
                output.is_abandoned()
            }
        };
        if is_abandoned {
            out.end();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(match self {
            Self::Input(intake) => intake.poll_timeout(),
            Self::Output(output) => output.poll_timeout(),
        })
    }

    fn handle_command(&mut self, _now: Instant, order: Infallible, _out: &mut Outbox<'_>) {
        match order {}
    }

    fn report(&self) {}

    fn finish(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if let Self::Output(output) = self {
            output.finish(now, &mut |part| send(part, out));
        }
    }
}

/// Multicast is sent from the output's own socket, which has the interface and the TTL.
fn send(part: OutgoingDatagram<'_>, out: &mut Outbox<'_>) -> bool {
    let route = Route::to(part.to).from_own_socket();
    let route = part.due.map_or(route, |due| route.not_before(due));
    out.send(route, part.bytes)
}
