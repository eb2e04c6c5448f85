//! Why there is no FIFO.

use std::io;

/// Why there is no FIFO.
#[derive(Debug)]
#[non_exhaustive]
pub enum FifoError {
    /// A file, directory or link has the name: choose another path or remove it.
    NotAFifo,
    /// An error of the system.
    Io(io::Error),
}

impl FifoError {
    pub(super) fn io(self) -> io::Error {
        match self {
            Self::NotAFifo => io::Error::from(io::ErrorKind::AlreadyExists),
            Self::Io(error) => error,
        }
    }
}

impl core::fmt::Display for FifoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAFifo => f.write_str("the path exists but is not a FIFO"),
            Self::Io(error) => core::fmt::Display::fmt(error, f),
        }
    }
}

impl core::error::Error for FifoError {}
