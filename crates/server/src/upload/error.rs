//! Why a file is not uploaded yet, cut by how long it makes sense to wait and by whom it concerns,
//! with what helps.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::dial::DialError;

/// Why a file is not uploaded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UploadError {
    /// The name is unknown.
    Name(String),
    /// Nobody is there, or he does not want to.
    Connect(io::ErrorKind),
    /// Too many names are looked up.
    Busy,
    /// TLS, and why.
    Tls(String),
    /// The connection broke, and how.
    Broken(String),
    /// The server took nothing and said nothing.
    Stalled,
    /// The server says no: status, code and words.
    Refused { status: u16, code: String, said: String },
    /// The answer cannot be understood.
    Answer(String),
    /// What the server has is not what was sent: in what it differs.
    Mismatch(&'static str),
    /// The server took it, and does not let us look at it.
    ReadDenied,
    /// A file of ours cannot be read, written or deleted.
    LocalFile(PathBuf, io::ErrorKind),
    /// The file is not what it was when it was begun.
    Changed(PathBuf),
    /// The name is longer than S3 takes.
    KeyTooLong,
}

/// Codes of S3 for what goes wrong on the way or in the server, whatever their status
/// (S3, "Error responses").
const TRANSIENT_CODES: [&str; 13] = [
    "BadDigest",
    "IncompleteBody",
    "InternalError",
    "InvalidDigest",
    "NoSuchUpload",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
    "InvalidPart",
    "InvalidPartOrder",
];

/// Codes that have to do with one file and not with the next.
const FILE_CODES: [&str; 4] =
    ["EntityTooLarge", "EntityTooSmall", "KeyTooLongError", "MetadataTooLarge"];

impl UploadError {
    /// What the library made of it: ours, if it is ours.
    pub(super) fn from_store(error: &(dyn Error + 'static)) -> Self {
        let mut at: Option<&(dyn Error + 'static)> = Some(error);
        let mut last = error.to_string();
        while let Some(error) = at {
            if let Some(failure) = error.downcast_ref::<Self>() {
                return failure.clone();
            }
            last = error.to_string();
            at = error.source();
        }
        Self::Answer(sanitize(&last))
    }

    pub(super) fn from_dial(error: DialError, host: &str) -> Self {
        match error {
            DialError::Name => Self::Name(host.to_owned()),
            DialError::Busy => Self::Busy,
            DialError::Connect(kind) => Self::Connect(kind),
            DialError::Tls(why) => Self::Tls(why),
        }
    }

    /// A `no` of the server, by the status and the body of its answer.
    pub(super) fn from_answer(status: u16, body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        let find = |tag: &str| {
            let (_, rest) = body.split_once(&format!("<{tag}>"))?;
            Some(sanitize(rest.split_once('<')?.0))
        };
        let code = find("Code").unwrap_or_default();
        Self::Refused { status, code, said: find("Message").unwrap_or_default() }
    }

    /// Whether the server says that it has no such object.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code != "NoSuchBucket")
    }

    /// Whether the server does not know an upload in parts any more.
    pub(super) fn is_no_such_upload(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "NoSuchUpload")
    }

    /// Whether what has been sent so far cannot become an object.
    pub(super) fn is_multipart_error(&self) -> bool {
        let codes = ["InvalidPart", "InvalidPartOrder", "NoSuchUpload"];
        matches!(self, Self::Refused { code, .. } if codes.contains(&code.as_str()))
    }

    /// Whether we may not do this, while who we are is not in doubt.
    pub(super) fn is_not_allowed(&self) -> bool {
        let denied = |code: &str| matches!(code, "" | "AccessDenied" | "AllAccessDisabled");
        matches!(self, Self::Refused { status: 403, code, .. } if denied(code))
    }

    /// Whether asking again soon will hardly help: somebody has to mend something.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::Refused { status, code, .. } => {
                let busy = matches!(status, 408 | 409 | 425 | 429 | 500..);
                !busy && !TRANSIENT_CODES.contains(&code.as_str())
            }
            Self::Tls(_) | Self::ReadDenied | Self::KeyTooLong => true,
            Self::LocalFile(..) => true,
            _ => false,
        }
    }

    /// Whether the next file may well do better.
    pub(super) fn is_file_specific(&self) -> bool {
        match self {
            Self::LocalFile(..) | Self::Changed(_) | Self::KeyTooLong => true,
            Self::Refused { code, .. } => FILE_CODES.contains(&code.as_str()),
            _ => false,
        }
    }
}

impl From<&object_store::Error> for UploadError {
    fn from(error: &object_store::Error) -> Self {
        Self::from_store(error)
    }
}

/// What others say, in one line of bounded length.
fn sanitize(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_SERVER_TEXT).map(clean).collect()
}

/// Letters of what a server says that are passed on.
const MAX_SERVER_TEXT: usize = 200;

impl Error for UploadError {}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => write!(f, "the name {host} is unknown"),
            Self::Connect(kind) => write!(f, "the server cannot be reached: {kind}"),
            Self::Busy => f.write_str("this server is too busy"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Stalled => f.write_str("the server took nothing and said nothing for too long"),
            Self::Refused { status, code, said } => refused(f, *status, code, said),
            Self::Answer(why) => write!(f, "the server does not answer as S3 does: {why}"),
            Self::Mismatch(what) => {
                write!(f, "the server's {what} is not that of the file: it is sent again")
            }
            Self::ReadDenied => f.write_str(
                "the server took the file and does not let us look whether it is whole (403): give \
                 the access key s3:GetObject",
            ),
            Self::LocalFile(path, kind) => write!(f, "{}: {kind}", path.display()),
            Self::Changed(path) => write!(f, "{}: it changed while it was sent", path.display()),
            Self::KeyTooLong => f.write_str(
                "the object's name would have more than 1,024 bytes: make the prefix or the \
                 file's name shorter",
            ),
        }
    }
}

fn refused(f: &mut fmt::Formatter<'_>, status: u16, code: &str, said: &str) -> fmt::Result {
    let remedy = match (status, code) {
        (_, "NoSuchBucket") => "there is no such bucket: make it, or mend `url` of `upload`",
        (_, "InvalidAccessKeyId" | "NotSignedUp") => {
            "the server does not know `access_key` of `upload`: mend it"
        }
        (_, "SignatureDoesNotMatch") => "`secret_key` of `upload` is wrong: mend it",
        (_, "RequestTimeTooSkewed") => "this machine's clock is wrong: set it",
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect")
        | (301 | 302 | 307 | 308, _) => {
            "the bucket is elsewhere: mend `region` or `endpoint` of `upload`"
        }
        (_, "InvalidStorageClass") => "mend `storage_class` of `upload`",
        (_, "SlowDown") | (429 | 503, _) => "the server is too busy",
        (403, _) => "the access key may not do this: give it s3:PutObject and s3:GetObject",
        (401, _) => "the server does not know us: mend `access_key` and `secret_key`",
        _ => "the server says no",
    };
    write!(f, "{remedy} ({status}")?;
    for word in [code, said].into_iter().filter(|word| !word.is_empty()) {
        write!(f, ", {word}")?;
    }
    f.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_to_be_mended_is_told_apart_from_what_passes() {
        let answer = |status, code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>m\u{7}m</Message></Error>");
            UploadError::from_answer(status, body.as_bytes())
        };
        for (status, code) in
            [(403, "AccessDenied"), (404, "NoSuchBucket"), (400, "InvalidArgument"), (301, "x")]
        {
            assert!(answer(status, code).is_lasting(), "{status} {code}");
        }
        for (status, code) in [
            (503, "SlowDown"),
            (500, "InternalError"),
            (400, "BadDigest"),
            (400, "XAmzContentSHA256Mismatch"),
            (404, "NoSuchUpload"),
            (429, ""),
        ] {
            assert!(!answer(status, code).is_lasting(), "{status} {code}");
        }
        assert_eq!(
            answer(403, "SignatureDoesNotMatch").to_string(),
            "`secret_key` of `upload` is wrong: mend it (403, SignatureDoesNotMatch, m m)"
        );
    }

    #[test]
    fn an_answer_that_is_no_xml_is_bounded_and_harmless() {
        let failure = UploadError::from_answer(502, &[0xFF; 100_000]);
        assert_eq!(failure.to_string(), "the server says no (502)");
        let long = format!("<Code>{}</Code>", "x".repeat(100_000));
        assert!(UploadError::from_answer(400, long.as_bytes()).to_string().len() < 400);
    }
}
