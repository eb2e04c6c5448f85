//! Responses to source clients.

/// A response that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LiveResponse {
    /// The title was updated.
    TitleUpdated,
    /// The supported methods.
    Methods,
    /// Not a valid request.
    BadRequest,
    /// The charset of a title is unknown.
    UnknownCharset,
    /// Credentials are missing or wrong.
    Unauthorized,
    /// A line that is neither a request nor the password of a mount.
    InvalidPassword,
    /// Another client is on air there.
    MountInUse,
    /// The request comes from a web page.
    CrossSite,
    /// It uses a host name that another party may own.
    Misdirected,
    /// The mount does not exist.
    NoMount,
    /// No client is on air there, so there is no title to update.
    NotOnAir,
    /// Not a port for listeners.
    NotFound,
    /// The request head is too long.
    HeadTooLong,
    /// An unsupported stream format.
    UnsupportedType,
    /// Too many wrong passwords from this address.
    TooManyAttempts,
    /// The program that decides about source clients cannot be asked.
    CannotAsk,
}

impl LiveResponse {
    /// The response, head and body.
    #[must_use]
    pub fn text(self) -> String {
        let (status, extra, body) = self.parts();
        let kind = if self == Self::TitleUpdated { "text/xml" } else { "text/plain" };
        response(status, kind, extra, body)
    }

    /// The response with the content of `/status-json.xsl`, head and body.
    #[must_use]
    pub fn status(json: &str) -> String {
        response("200 OK", "application/json", "", json)
    }

    /// Why the client was refused; `None` for a response that is no refusal.
    #[must_use]
    pub fn refusal(self) -> Option<&'static str> {
        let (_, _, reason) = self.parts();
        (!matches!(self, Self::TitleUpdated | Self::Methods)).then(|| reason.trim_end())
    }

    #[allow(clippy::too_many_lines, reason = "a table")]
    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::TitleUpdated => (
                "200 OK",
                "",
                "<?xml version=\"1.0\"?>\n<iceresponse><message>Metadata update successful\
                 </message><return>1</return></iceresponse>\n",
            ),
            Self::Methods => ("200 OK", "Allow: PUT, SOURCE, GET, OPTIONS\r\n", ""),
            Self::BadRequest => ("400 Bad Request", "", "not a valid Icecast source request\n"),
            Self::UnknownCharset => (
                "400 Bad Request",
                "",
                "unknown charset; use a label of the Encoding Standard, such as windows-1251\n",
            ),
            Self::Unauthorized => (
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"aulos\", charset=\"UTF-8\"\r\n",
                "wrong user name or password\n",
            ),
            Self::InvalidPassword => (
                "400 Bad Request",
                "",
                "neither an Icecast source request nor the password of a mount (Shoutcast v1)\n",
            ),
            Self::MountInUse => (
                "403 Forbidden",
                "",
                "the mount is in use by another live source; try again later\n",
            ),
            Self::CrossSite => (
                "403 Forbidden",
                "",
                "cross-site request refused: a web page cannot be a live source\n",
            ),
            Self::Misdirected => (
                "421 Misdirected Request",
                "",
                "unknown host name; to allow it, add it to `names` of [http]\n",
            ),
            Self::NoMount => ("404 Not Found", "", "unknown mount\n"),
            Self::NotOnAir => ("404 Not Found", "", "no live source is connected to this mount\n"),
            Self::NotFound => (
                "404 Not Found",
                "",
                "this port is for live sources; listeners use /listen/STATION on the HTTP port\n",
            ),
            Self::HeadTooLong => {
                ("431 Request Header Fields Too Large", "", "the request head is too long\n")
            }
            Self::UnsupportedType => (
                "415 Unsupported Media Type",
                "",
                "unsupported format; send MP3, AAC (ADTS), FLAC, WAVE, or Ogg with Opus, Vorbis \
                 or FLAC\n",
            ),
            Self::CannotAsk => (
                "503 Service Unavailable",
                "",
                "permission to use the mount cannot be checked now\n",
            ),
            Self::TooManyAttempts => {
                ("429 Too Many Requests", "", "too many wrong passwords; try again in a minute\n")
            }
        }
    }
}

fn response(status: &str, content_type: &str, extra: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {extra}Connection: close\r\n\r\n{body}"
    )
}
