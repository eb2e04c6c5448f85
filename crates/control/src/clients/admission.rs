//! Admission of clients: they are checked by their Hello.

use aulos_core::Span;

use crate::access::{AddressBuckets, LoginError, Role};
use crate::backend::KickReason;

/// Checks that a client may listen; `granted` is the role of its credentials, `preauthorized` says
/// that its connection is authorized already.
pub(super) fn authorize(
    granted: Result<Role, LoginError>,
    preauthorized: bool,
) -> Result<(), KickReason> {
    match granted {
        Ok(role) if role >= Role::Listen || preauthorized => Ok(()),
        Ok(_) | Err(LoginError::WrongCredentials) => Err(KickReason::Unauthorized),
        Err(LoginError::RateLimited) => Err(KickReason::RateLimited),
    }
}

/// Rate limit for unknown clients, per address. Known clients reconnect as often as the connection
/// limits allow.
pub(super) fn new_client_buckets() -> AddressBuckets {
    AddressBuckets::new(NEW_CLIENTS, NEW_CLIENT_INTERVAL)
}

/// Burst of new clients from one address: more than the players of a building behind one router,
/// which may all connect at once after installation.
const NEW_CLIENTS: u32 = 1_024;

/// Interval at which one more new client is allowed. Replacing all remembered clients takes two
/// hours.
const NEW_CLIENT_INTERVAL: Span = Span::from_secs(1);
