//! Network interfaces that are removed and made again.
//!
//! A socket that has joined a multicast group, or sends to one, keeps to the interface with the
//! number that it had: one that is removed and made again, as VLANs, USB adapters and network
//! managers do, is another one. The kernel reports no error for a group that is lost. So the
//! interfaces are looked at every two seconds. A netlink socket would report changes at once, but
//! not what follows from them for the routes, which have to be looked at all the same.

use aulos_core::Span;
use aulos_io::SystemClock;
use aulos_io::udp::{Interface, InterfaceTable, UdpContext};
use aulos_session::rtp::RtpSession;

use super::handles::{OpenRtpOutput, StationRtpOutput};
use super::input::open_socket;
use super::missing_interface;
use super::service::OpenRtpSource;
use crate::audio::state::AudioState;

/// Lets sources and outputs follow their network interfaces.
pub(in crate::audio) fn follow_interfaces(inner: &mut AudioState) {
    let now = SystemClock::now();
    let AudioState { stations, rtp, .. } = inner;
    let is_used = !rtp.waiting.is_empty()
        || !rtp.receiving.is_empty()
        || stations.iter().flatten().any(|running| !running.rtp.is_empty());
    if !is_used || now < rtp.look_at {
        return;
    }
    rtp.look_at = now + LOOK_INTERVAL;
    let Ok(table) = InterfaceTable::read() else { return };
    let is_changed = rtp.interfaces.as_ref().is_some_and(|before| *before != table);
    if is_changed {
        // What has failed for want of an interface may succeed now.
        rtp.waiting.iter_mut().for_each(|one| one.backoff.reset());
    }
    if let Some(context) = &mut rtp.context {
        for one in &mut rtp.receiving {
            one.follow_interface(&table, context);
        }
        for running in stations.iter_mut().flatten() {
            for one in &mut running.rtp {
                if let Some(lost) = one.take_if_moved(&table) {
                    running.handle.remove_output(lost.output_id);
                    context.remove(lost.stream);
                    one.backoff.reset();
                } else if is_changed && one.open_output.is_none() {
                    one.backoff.reset();
                }
            }
        }
    }
    rtp.interfaces = Some(table);
}

impl OpenRtpSource {
    /// Joins the group again when its interface is another one now.
    fn follow_interface(&mut self, table: &InterfaceTable, context: &UdpContext<RtpSession>) {
        let Some(joined) = &self.interface else { return };
        let (wanted, address) = (self.source.reception.interface.as_deref(), self.source.address);
        let result = match table.find_for(wanted, address) {
            Ok(found) if found.index == joined.index && !self.is_unreachable => return,
            Ok(_) => open_socket(&self.source, table).and_then(|(socket, interface)| {
                let replaced = context.replace_socket(self.stream, socket);
                replaced.map_err(|error| format!("rtp://{address}: {error}"))?;
                Ok(interface)
            }),
            Err(_) => Err(missing_interface(wanted, address)),
        };
        self.is_unreachable = result.is_err();
        self.problem.set(result.as_ref().err().cloned());
        if let Ok(Some(interface)) = result {
            self.interface = Some(interface);
        }
    }
}

impl StationRtpOutput {
    /// Takes the stream if its packets would leave by another interface or address now.
    fn take_if_moved(&mut self, table: &InterfaceTable) -> Option<OpenRtpOutput> {
        let config = &self.config;
        let found = table.find_for(config.interface.as_deref(), config.dest).ok();
        self.open_output.take_if(|open| {
            let is_same = |found: Interface| found.index == open.interface.index;
            !(found.is_some_and(is_same) && table.contains(&open.interface))
        })
    }
}

/// How long a source or an output may stay on an interface that is gone. A look takes some tens of
/// microseconds.
const LOOK_INTERVAL: Span = Span::from_secs(2);
