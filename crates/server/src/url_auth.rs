//! Questions to programs of a station by URL, as Icecast's `url` authentication asks them: a POST
//! with a form, and a header of the response that permits. Such programs exist.

use std::time::Duration;

use aulos_config::Webhook;
use aulos_control::hooks::DeliveryError;
use aulos_proto::uri::percent_encode_url;
use hyper::HeaderMap;
use tokio::time::timeout;

use crate::dial::Dialer;
use crate::post::{PostBody, post};

/// Asks programs.
#[derive(Debug, Default)]
pub(crate) struct UrlAuthorizer(Dialer);

/// What a program answers.
#[derive(Debug)]
pub(crate) struct UrlAnswer {
    pub(crate) is_permitted: bool,
    /// The reason of a refusal.
    pub(crate) message: Option<String>,
    /// For how long it is permitted.
    pub(crate) limit: Option<Duration>,
}

impl UrlAuthorizer {
    /// Asks; a status that is none of success refuses.
    ///
    /// # Errors
    /// [`DeliveryError`] if the program cannot be asked, or does not answer in time.
    pub(crate) async fn ask(&self, to: &Webhook, form: String) -> Result<UrlAnswer, DeliveryError> {
        let headers = match self.send(to, form).await {
            Ok(headers) => headers,
            Err(DeliveryError::Status(_)) => HeaderMap::new(),
            Err(error) => return Err(error),
        };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let limit = text("icecast-auth-timelimit").and_then(|seconds| seconds.trim().parse().ok());
        Ok(UrlAnswer {
            is_permitted: text("icecast-auth-user") == Some("1"),
            message: text("icecast-auth-message").map(str::to_owned),
            limit: limit.map(Duration::from_secs),
        })
    }

    /// Sends a form and reads the head of the response.
    ///
    /// # Errors
    /// As [`Self::ask`], and for a status that is none of success.
    pub(crate) async fn send(
        &self,
        to: &Webhook,
        form: String,
    ) -> Result<HeaderMap, DeliveryError> {
        let content_type = "application/x-www-form-urlencoded";
        let sent =
            post(&self.0, to, PostBody { content_type, id: None, content: form.into_bytes() });
        let seconds = u32::try_from(ANSWER_TIMEOUT.as_secs()).unwrap_or(u32::MAX);
        timeout(ANSWER_TIMEOUT, sent).await.unwrap_or(Err(DeliveryError::TimedOut(seconds)))
    }
}

/// A form behind its `action`.
pub(crate) fn form(action: &str, fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("&{name}={}", percent_encode_url(value)));
    format!("action={action}{}", pairs.collect::<String>())
}

/// Host and port of a `Host` field.
pub(crate) fn host_and_port(host: &str) -> (&str, &str) {
    host.rsplit_once(':').unwrap_or((host, "80"))
}

/// Time for an answer; a listener or a source client waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
