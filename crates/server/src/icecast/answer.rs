//! What somebody is told who comes to a port for DJs.

/// An answer that ends the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The title is known now.
    Told,
    /// There are these methods.
    Methods,
    /// Nothing that is a request.
    NotUnderstood,
    /// Who it is has to be said, and rightly.
    Unauthorized,
    /// Somebody else is on air there.
    Taken,
    /// It comes from a page in a browser.
    Page,
    /// It names this machine by a name that a stranger can own.
    OtherName,
    /// There is no such mount.
    NoMount,
    /// Nobody is on air there, so nothing plays.
    NobodyOnAir,
    /// No listener's port.
    NotHere,
    /// The head has no end.
    TooLong,
    /// A kind of stream that is not played.
    Unsupported,
    /// Too many wrong passwords from this address.
    TooMany,
}

impl Answer {
    pub(super) fn text(self) -> String {
        let (status, extra, body) = self.parts();
        let kind = if self == Self::Told { "text/xml" } else { "text/plain" };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{extra}\
             Connection: close\r\n\r\n{body}"
        )
    }

    const fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Told => (
                "200 OK",
                "",
                "<?xml version=\"1.0\"?>\n<iceresponse><message>Metadata update successful\
                 </message><return>1</return></iceresponse>\n",
            ),
            Self::Methods => ("200 OK", "Allow: PUT, SOURCE, GET, OPTIONS\r\n", ""),
            Self::NotUnderstood => {
                ("400 Bad Request", "", "this is no request of an Icecast source\n")
            }
            Self::Unauthorized => (
                "401 Unauthorized",
                "WWW-Authenticate: Basic realm=\"aulos\", charset=\"UTF-8\"\r\n",
                "the name or the password is wrong\n",
            ),
            Self::Taken => {
                ("403 Forbidden", "", "somebody is on air at this mount; try again later\n")
            }
            Self::Page => ("403 Forbidden", "", "a page in a browser is no DJ\n"),
            Self::OtherName => (
                "421 Misdirected Request",
                "",
                "this server has another name; if it is yours, write it into `names` of [http]\n",
            ),
            Self::NoMount => ("404 Not Found", "", "there is no such mount here\n"),
            Self::NobodyOnAir => ("404 Not Found", "", "nobody is on air at this mount\n"),
            Self::NotHere => (
                "404 Not Found",
                "",
                "this port is for DJs; listeners go to /listen/STATION on the page's port\n",
            ),
            Self::TooLong => {
                ("431 Request Header Fields Too Large", "", "the head of the request is too long\n")
            }
            Self::Unsupported => (
                "415 Unsupported Media Type",
                "",
                "this cannot be played: send MP3, AAC (ADTS), FLAC, WAVE, or Ogg with Opus, Vorbis \
                 or FLAC\n",
            ),
            Self::TooMany => {
                ("429 Too Many Requests", "", "too many wrong passwords: try again in a minute\n")
            }
        }
    }
}
