//! Web radio, HLS, or a file on a web server: `http://`, `https://`.

use aulos_proto::http::HttpUrl;
use aulos_proto::titles::TitleCharset;
use aulos_session::hls_source::VariantChoice;

use crate::names::Endpoint;
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query};

/// Web radio, HLS, or a file on a web server.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSource {
    /// The URL.
    pub url: HttpUrl,
    /// The charset of titles that are not UTF-8.
    pub charset: TitleCharset,
    /// The variant of an HLS stream.
    pub variant: VariantChoice,
}

impl SourceKind for HttpSource {
    fn scheme(&self) -> &'static str {
        if self.url.secure { "https" } else { "http" }
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn comes_in_bursts(&self) -> bool {
        true
    }

    fn server(&self) -> Option<Endpoint> {
        Some(Endpoint { host: self.url.host.clone(), port: self.url.port })
    }

    fn display_uri(&self) -> Option<String> {
        self.url.user.is_some().then(|| self.url.to_string())
    }

    fn charset_mut(&mut self) -> Option<&mut TitleCharset> {
        Some(&mut self.charset)
    }

    fn variant_mut(&mut self) -> Option<&mut VariantChoice> {
        Some(&mut self.variant)
    }
}

/// The whole query belongs to the web server; a `name` in it is used as well.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<HttpSource> {
    match query.uri.raw.parse::<HttpUrl>() {
        Ok(url) => {
            let (charset, variant) = (TitleCharset::default(), VariantChoice::default());
            Some(vec![HttpSource { url, charset, variant }])
        }
        Err(error) => query
            .refuse(format!("\"{}\": {error}", query.uri.raw), "as in http://radio.example/live"),
    }
}
