//! The commands to a thread.

use std::net::UdpSocket;

use aulos_rt::channel::Sender;
use aulos_session::datagram::Machine;

use super::report::{StreamId, StreamReport};
use super::shared::{PortId, StreamTable};
use super::stream::HandedOverStream;

pub(super) enum ThreadCommand<M: Machine> {
    Add(Box<HandedOverStream<M>>),
    OpenPort(Box<(UdpSocket, StreamTable<M>)>),
    ClosePort(PortId),
    ToStream(StreamId, M::Command),
    Remove(StreamId),
    ReplaceSocket(StreamId, UdpSocket),
    Detach(StreamId, Sender<Option<Box<HandedOverStream<M>>>>),
    Report(Vec<StreamReport<M::Report>>, Sender<Vec<StreamReport<M::Report>>>),
    Stop,
}
