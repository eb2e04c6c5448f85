//! The players: clients and groups, who is admitted, and the commands that they are sent.

pub(crate) mod admission;
pub(crate) mod extension_methods;
pub(crate) mod greetings;
pub(crate) mod log;
pub(crate) mod outbox;
pub mod registry;
