//! A headless Chromium, controlled through its debugging pipe.
//!
//! The pipe (DevTools protocol, a sequence of JSON texts, each ended by a zero byte, on file
//! descriptors 3 and 4) needs std only; the debugging port was the alternative, and would need a
//! WebSocket client.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::peer::Process;
use crate::scratch::ScratchDir;

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    process: Process,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    next_id: u64,
    faults: Vec<String>,
}

/// Timeout of one response. A loaded machine starts a browser slowly.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Browser {
    /// Starts the browser and opens `url`.
    ///
    /// # Errors
    /// If it does not start, or does not respond.
    pub fn open(program: &Path, scratch: &ScratchDir, url: &str) -> io::Result<Self> {
        Self::open_with(program, scratch, url, &[])
    }

    /// As [`Browser::open`], with more options of the browser.
    ///
    /// # Errors
    /// As [`Browser::open`].
    pub fn open_with(
        program: &Path,
        scratch: &ScratchDir,
        url: &str,
        options: &[&str],
    ) -> io::Result<Self> {
        let (to, from) = (scratch.fifo("to-browser")?, scratch.fifo("from-browser")?);
        let process = Process::start(
            Command::new("sh")
                // The shell opens the two pipes with the numbers that Chromium expects, and
                // replaces itself.
                .args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"", "sh"])
                .args([&to, &from])
                .arg(program)
                .args(["--headless=new", "--no-sandbox", "--remote-debugging-pipe"])
                .args(["--autoplay-policy=no-user-gesture-required", "--no-first-run"])
                .args(["--disable-gpu", "--disable-dev-shm-usage", "--window-size=1000,800"])
                .arg(format!("--user-data-dir={}", scratch.join("browser").display()))
                .args(options)
                .arg("about:blank"),
            &scratch.join("browser.out"),
            &scratch.join("browser.err"),
        )?;
        // In the order in which the shell opens them: opening a FIFO waits for the other side.
        let to = OpenOptions::new().write(true).open(to)?;
        let from = read_messages(File::open(from)?);
        let mut browser = Self { process, to, from, session: None, next_id: 0, faults: Vec::new() };
        let page = browser.call("Target.createTarget", &json!({ "url": url }))?;
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &target)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        Ok(browser)
    }

    /// Calls a method of the DevTools protocol and returns its result.
    ///
    /// # Errors
    /// If the browser does not respond, or responds with an error.
    pub fn call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.next_id += 1;
        let mut message = json!({ "id": self.next_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes())?;
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.from.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(answer) if answer["id"] == self.next_id => {
                    return match &answer["error"] {
                        Value::Null => Ok(answer["result"].clone()),
                        error => Err(io::Error::other(format!("{method}: {error}"))),
                    };
                }
                Ok(event) => self.note_fault(&event),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, method.to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the browser is gone"));
                }
            }
        }
    }

    /// Opens another address, and records from then on what a page reports as wrong.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn watch(&mut self, url: &str) -> io::Result<()> {
        for domain in ["Runtime.enable", "Log.enable"] {
            self.call(domain, &json!({}))?;
        }
        self.faults.clear();
        self.call("Page.navigate", &json!({ "url": url })).map(drop)
    }

    /// Exceptions, console errors and warnings, and violations of the page's policy since
    /// [`Browser::watch`].
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn faults(&mut self) -> io::Result<Vec<String>> {
        // Events that came before the answer have been read with it.
        self.run("0")?;
        Ok(self.faults.clone())
    }

    fn note_fault(&mut self, event: &Value) {
        let params = &event["params"];
        let is_fault = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => params["entry"]["level"] != "verbose",
            Some("Runtime.consoleAPICalled") => {
                params["type"] == "error" || params["type"] == "warning"
            }
            _ => false,
        };
        if is_fault {
            self.faults.push(params.to_string());
        }
    }

    /// Runs JavaScript in the page and returns its value, awaited if it is a promise.
    ///
    /// # Errors
    /// As [`Browser::call`], and if the script throws.
    pub fn run(&mut self, script: &str) -> io::Result<Value> {
        let params = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &params)?;
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].clone()),
            details => Err(io::Error::other(details.to_string())),
        }
    }

    /// The page as a PNG image.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn screenshot(&mut self) -> io::Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        Ok(from_base64(answer["data"].as_str().unwrap_or_default()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A clean shutdown, so that its child processes end too; otherwise it is killed with
        // `process`.
        self.session = None;
        drop(self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0"));
        drop(self.process.wait(Duration::from_secs(5)));
    }
}

fn read_messages(from: File) -> Receiver<Value> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut text = Vec::new();
        while from.read_until(0, &mut text).is_ok_and(|n| n > 0) {
            text.pop();
            if let Ok(message) = serde_json::from_slice(&text)
                && send.send(message).is_err()
            {
                return;
            }
            text.clear();
        }
    });
    receive
}

/// Decodes base64 (RFC 4648, 4); characters outside the alphabet are skipped.
#[must_use]
pub fn from_base64(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xFF) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_tail() {
        assert_eq!(from_base64("TWFu"), b"Man");
        assert_eq!(from_base64("TWE="), b"Ma");
        assert_eq!(from_base64("TQ=="), b"M");
    }
}
