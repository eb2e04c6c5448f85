//! sendspin-js in a browser.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Event, Received, SendspinPeer, SendspinTools};
use crate::browser::Browser;
use crate::scratch::ScratchDir;

/// A page that plays from a server, without an audio device.
#[derive(Debug)]
pub struct SendspinPage {
    browser: Browser,
    waiting: VecDeque<Event>,
    received: Received,
}

impl SendspinPage {
    /// Opens the page in a browser (`chromium`) and connects it to a server, `ws://…`.
    /// `codecs` is a list like `flac,pcm`, the best first; with `&artwork=jpeg:80:60` behind it the
    /// page shows pictures of this format and size.
    ///
    /// # Errors
    /// If the browser does not start.
    pub fn open(
        tools: &SendspinTools,
        chromium: &Path,
        scratch: &ScratchDir,
        server: &str,
        codecs: &str,
    ) -> io::Result<Self> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sendspin/page.html");
        let url = format!(
            "file://{}?dist=file://{}&url={}&codecs={codecs}",
            page.display(),
            tools.0.join("js").display(),
            server.replacen("ws:", "http:", 1),
        );
        // Modules are loaded from where the page is.
        let options = ["--allow-file-access-from-files"];
        let browser = Browser::open_with(chromium, scratch, &url, &options)?;
        Ok(Self { browser, waiting: VecDeque::new(), received: Received::default() })
    }

    /// Runs JavaScript in the page, where `peer.core` is the client (`SendspinCore`).
    ///
    /// # Errors
    /// If the script throws.
    pub fn run(&mut self, script: &str) -> io::Result<Value> {
        self.browser.run(script)
    }

    /// Errors and warnings of the page so far.
    ///
    /// # Errors
    /// If the browser does not respond.
    pub fn faults(&mut self) -> io::Result<Vec<String>> {
        self.browser.faults()
    }
}

impl SendspinPeer for SendspinPage {
    fn next_event(&mut self, deadline: Instant) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.received.add(&event);
                return Ok(Some(event));
            }
            // The page's script is a module, which is loaded after the page.
            let events = self.browser.run("window.peer ? peer.take() : []")?;
            let events = events.as_array().cloned().unwrap_or_default();
            self.waiting.extend(events.into_iter().filter_map(Event::parse));
            if self.waiting.is_empty() {
                if Instant::now() >= deadline {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn received(&self) -> &Received {
        &self.received
    }
}
