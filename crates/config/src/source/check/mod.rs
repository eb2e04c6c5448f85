//! Checks of the sources of all stations together, and passwords.

mod exclusive;
mod loops;
mod mounts;
mod passwords;

pub(crate) use exclusive::check as check_exclusive;
pub(crate) use loops::check as check_loops;
pub use loops::meta_loop;
pub use mounts::OPEN_MOUNT_HINT;
pub(crate) use mounts::check as check_mounts;
pub(crate) use passwords::set as set_passwords;
