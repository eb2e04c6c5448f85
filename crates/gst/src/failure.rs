//! Why a buffer fails.

use gst::prelude::*;

/// Posted when no lock is held: a handler of the message may ask the element for something.
#[derive(Debug)]
pub(crate) struct Failure {
    flow: gst::FlowError,
    message: Option<gst::ErrorMessage>,
}

impl Failure {
    pub(crate) fn not_negotiated(message: gst::ErrorMessage) -> Self {
        Self { flow: gst::FlowError::NotNegotiated, message: Some(message) }
    }

    pub(crate) fn before_caps() -> Self {
        let message = gst::error_msg!(gst::CoreError::Negotiation, ["a buffer before any caps"]);
        Self::not_negotiated(message)
    }

    /// Posts the message, if there is one; gives the result of the flow.
    pub(crate) fn post(self, element: &impl IsA<gst::Element>) -> gst::FlowError {
        if let Some(message) = self.message {
            element.post_error_message(message);
        }
        self.flow
    }
}

impl From<gst::FlowError> for Failure {
    fn from(flow: gst::FlowError) -> Self {
        Self { flow, message: None }
    }
}

impl From<gst::ErrorMessage> for Failure {
    fn from(message: gst::ErrorMessage) -> Self {
        Self { flow: gst::FlowError::Error, message: Some(message) }
    }
}
