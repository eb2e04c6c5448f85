//! Warnings about files that are played as sources and announcements.

use aulos_files::decode::FileWarning;
use aulos_io::SourcePath;

/// Logs a warning.
pub(crate) fn log(path: &SourcePath, warning: FileWarning) {
    tracing::warn!(path = %path.display(), %warning, "a file differs from its header");
}
