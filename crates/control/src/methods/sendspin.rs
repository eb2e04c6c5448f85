//! The methods for Sendspin clients.

use crate::access::Role;
use crate::methods::method::Method;
use crate::methods::params::{Param, ParamType, Presence};
use crate::sendspin::calls;

const CLIENT: Param = Param::required("client", ParamType::Text, "the client's id");

pub(crate) const SENDSPIN: &[Method] = &[
    Method::new(
        "Aulos.GetSendspinClients",
        Role::Listen,
        "List the Sendspin clients that are known, and those that wait to be approved or paired",
        calls::get_clients,
    )
    .returns(&[("clients", "array")]),
    Method::new(
        "Aulos.GetSendspinSources",
        Role::Admin,
        "List the sources that are players of a Sendspin server, with the tokens to pair them there",
        calls::get_sources,
    )
    .returns(&[("sources", "array")]),
    Method::new(
        "Aulos.ApproveSendspinClient",
        Role::Admin,
        "Let a Sendspin client in without pairing, or no more",
        calls::approve,
    )
    .params(&[
        CLIENT,
        Param::default("approved", ParamType::Bool, Presence::Bool(true), "false ends it"),
    ])
    .returns(&[("client", "string"), ("approved", "boolean")]),
    Method::new(
        "Aulos.PairSendspinClient",
        Role::Admin,
        "Pair a Sendspin client with the token that it shows, now or when it connects",
        calls::pair,
    )
    .params(&[Param::required("token", ParamType::Text, "the text that begins with SP:0")])
    .returns(&[("client", "string")]),
    Method::new(
        "Aulos.ForgetSendspinClient",
        Role::Admin,
        "Forget a Sendspin client: its pairing, its approval and its token",
        calls::forget,
    )
    .params(&[CLIENT])
    .returns(&[("client", "string")]),
];
