//! Errors of uploads, by what they concern and how long to wait before the next attempt, with
//! remedies.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::dial::DialError;

/// Why a file is not uploaded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// The host name is unknown.
    Name(String),
    /// The server refused the connection or is unreachable.
    Connect(io::ErrorKind),
    /// Too many name lookups are in progress.
    Busy,
    /// TLS failed, and why.
    Tls(String),
    /// The connection broke, and how.
    Broken(String),
    /// No progress in either direction.
    Stalled,
    /// The server refused: status, code and message.
    Refused { status: u16, code: String, said: String },
    /// The answer is invalid.
    Answer(String),
    /// The object differs from the file in this property.
    Mismatch(&'static str),
    /// The object was written, but may not be read for verification.
    ReadDenied,
    /// A local file cannot be read, written or deleted.
    LocalFile(PathBuf, io::ErrorKind),
    /// The file changed during the upload.
    Changed(PathBuf),
    /// The object name is longer than S3 allows.
    KeyTooLong,
}

/// S3 codes of transient network or server errors, whatever their status (S3, "Error responses").
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

/// Codes that concern one file only.
const FILE_CODES: [&str; 4] =
    ["EntityTooLarge", "EntityTooSmall", "KeyTooLongError", "MetadataTooLarge"];

impl UploadError {
    /// Converts an error of the library: unwraps our own, if it contains one.
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

    /// Converts an error response, by its status and body.
    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        let body = String::from_utf8_lossy(body);
        let find = |tag: &str| {
            let (_, rest) = body.split_once(&format!("<{tag}>"))?;
            Some(sanitize(rest.split_once('<')?.0))
        };
        let code = find("Code").unwrap_or_default();
        Self::Refused { status, code, said: find("Message").unwrap_or_default() }
    }

    /// Whether the object does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, code, .. } if code != "NoSuchBucket")
    }

    /// Whether the multipart upload no longer exists.
    pub(super) fn is_no_such_upload(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "NoSuchUpload")
    }

    /// Whether the parts sent so far are unusable.
    pub(super) fn is_multipart_error(&self) -> bool {
        let codes = ["InvalidPart", "InvalidPartOrder", "NoSuchUpload"];
        matches!(self, Self::Refused { code, .. } if codes.contains(&code.as_str()))
    }

    /// Whether the operation is forbidden although the credentials are valid.
    pub(crate) fn is_not_allowed(&self) -> bool {
        let denied = |code: &str| matches!(code, "" | "AccessDenied" | "AllAccessDisabled");
        matches!(self, Self::Refused { status: 403, code, .. } if denied(code))
    }

    /// Whether an early retry is pointless, because a user has to fix it.
    pub(super) fn is_permanent(&self) -> bool {
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

    /// Whether it concerns this file only.
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

/// Foreign text as one line of limited length.
fn sanitize(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_SERVER_TEXT).map(clean).collect()
}

/// Maximum characters of a server's message.
const MAX_SERVER_TEXT: usize = 200;

impl Error for UploadError {}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => write!(f, "the host name {host} has no address"),
            Self::Connect(kind) => write!(f, "the server cannot be reached: {kind}"),
            Self::Busy => f.write_str("this machine is too busy"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Stalled => f.write_str("timeout: the server neither read data nor answered"),
            Self::Refused { status, code, said } => refused(f, *status, code, said),
            Self::Answer(why) => write!(f, "the answer is not that of an S3 server: {why}"),
            Self::Mismatch(what) => {
                write!(f, "the {what} on the server is not that of the file; uploading again")
            }
            Self::ReadDenied => f.write_str(
                "the uploaded file cannot be verified (403); grant the access key s3:GetObject",
            ),
            Self::LocalFile(path, kind) => write!(f, "{}: {kind}", path.display()),
            Self::Changed(path) => write!(f, "{}: changed during the upload", path.display()),
            Self::KeyTooLong => f.write_str(
                "the object key is longer than 1,024 bytes; shorten the prefix or the file name",
            ),
        }
    }
}

fn refused(f: &mut fmt::Formatter<'_>, status: u16, code: &str, said: &str) -> fmt::Result {
    let remedy = match (status, code) {
        (_, "NoSuchBucket") => "the bucket does not exist; create it, or correct `url` of `upload`",
        (_, "InvalidAccessKeyId" | "NotSignedUp") => {
            "`access_key` of `upload` is unknown to the server; correct it"
        }
        (_, "SignatureDoesNotMatch") => "`secret_key` of `upload` is wrong; correct it",
        (_, "RequestTimeTooSkewed") => "the clock of this machine is wrong; set it",
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect")
        | (301 | 302 | 307 | 308, _) => {
            "the bucket is in another region; correct `region` or `endpoint` of `upload`"
        }
        (_, "InvalidStorageClass") => {
            "the storage class is not supported; correct `storage_class` of `upload`"
        }
        (_, "SlowDown") | (429 | 503, _) => "the server is too busy",
        (403, _) => "access denied; grant the access key s3:PutObject and s3:GetObject",
        (401, _) => "login failed; correct `access_key` and `secret_key` of `upload`",
        _ => "the server refused the request",
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
    fn permanent_errors_are_distinguished_from_temporary_ones() {
        let answer = |status, code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>m\u{7}m</Message></Error>");
            UploadError::from_response(status, body.as_bytes())
        };
        for (status, code) in
            [(403, "AccessDenied"), (404, "NoSuchBucket"), (400, "InvalidArgument"), (301, "x")]
        {
            assert!(answer(status, code).is_permanent(), "{status} {code}");
        }
        for (status, code) in [
            (503, "SlowDown"),
            (500, "InternalError"),
            (400, "BadDigest"),
            (400, "XAmzContentSHA256Mismatch"),
            (404, "NoSuchUpload"),
            (429, ""),
        ] {
            assert!(!answer(status, code).is_permanent(), "{status} {code}");
        }
        assert_eq!(
            answer(403, "SignatureDoesNotMatch").to_string(),
            "`secret_key` of `upload` is wrong; correct it (403, SignatureDoesNotMatch, m m)"
        );
    }

    #[test]
    fn an_answer_that_is_no_xml_is_bounded_and_harmless() {
        let failure = UploadError::from_response(502, &[0xFF; 100_000]);
        assert_eq!(failure.to_string(), "the server refused the request (502)");
        let long = format!("<Code>{}</Code>", "x".repeat(100_000));
        assert!(UploadError::from_response(400, long.as_bytes()).to_string().len() < 400);
    }
}
