//! Responses to source clients.

/// A response that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The title was updated.
    TitleUpdated,
    /// The supported methods.
    Methods,
    /// Not a valid request.
    BadRequest,
    /// Credentials are missing or wrong.
    Unauthorized,
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
}

impl Response {
    pub(super) fn text(self) -> String {
        let (status, extra, body) = self.parts();
        let kind = if self == Self::TitleUpdated { "text/xml" } else { "text/plain" };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{extra}\
             Connection: close\r\n\r\n{body}"
        )
    }

    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::TitleUpdated => (
                "200 OK",
                "",
                "<?xml version=\"1.0\"?>\n<iceresponse><message>Metadata update successful\
                 </message><return>1</return></iceresponse>\n",
            ),
            Self::Methods => ("200 OK", "Allow: PUT, SOURCE, GET, OPTIONS\r\n", ""),
            Self::BadRequest => {
                ("400 Bad Request", "", "this is no request of an Icecast source\n")
            }
            Self::Unauthorized => (
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"aulos\", charset=\"UTF-8\"\r\n",
                "the name or the password is wrong\n",
            ),
            Self::MountInUse => {
                ("403 Forbidden", "", "somebody is on air at this mount; try again later\n")
            }
            Self::CrossSite => ("403 Forbidden", "", "a page in a browser is no DJ\n"),
            Self::Misdirected => (
                "421 Misdirected Request",
                "",
                "this server has another name; if it is yours, write it into `names` of [http]\n",
            ),
            Self::NoMount => ("404 Not Found", "", "there is no such mount here\n"),
            Self::NotOnAir => ("404 Not Found", "", "nobody is on air at this mount\n"),
            Self::NotFound => (
                "404 Not Found",
                "",
                "this port is for DJs; listeners go to /listen/STATION on the page's port\n",
            ),
            Self::HeadTooLong => {
                ("431 Request Header Fields Too Large", "", "the head of the request is too long\n")
            }
            Self::UnsupportedType => (
                "415 Unsupported Media Type",
                "",
                "this cannot be played: send MP3, AAC (ADTS), FLAC, WAVE, or Ogg with Opus, Vorbis \
                 or FLAC\n",
            ),
            Self::TooManyAttempts => {
                ("429 Too Many Requests", "", "too many wrong passwords: try again in a minute\n")
            }
        }
    }
}
