//! The state of copies of a station's HLS.

use aulos_session::hls::PublisherStatus;

/// A folder or a storage to which a station's HLS is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HlsTargetState {
    /// What it is.
    pub kind: HlsTargetKind,
    /// Its path or URL.
    pub target: String,
    /// What has been done there.
    pub status: PublisherStatus,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HlsTargetKind {
    /// A folder of this machine.
    Folder,
    /// S3-compatible storage.
    Storage,
}

impl HlsTargetKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Folder, Self::Storage];

    /// Its name in the API and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Storage => "s3",
        }
    }
}

impl HlsTargetState {
    /// The state without values that change all the time.
    pub(super) fn at_rest(self) -> Self {
        let error = self.status.error;
        Self { status: PublisherStatus { error, ..PublisherStatus::default() }, ..self }
    }
}
