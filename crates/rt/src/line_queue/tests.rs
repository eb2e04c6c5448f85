#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a test's output that another thread changes"
)]

use std::io::{Error, ErrorKind, Result, Write};
use std::sync::{Arc, Mutex};

use super::*;

/// An output whose state a test changes: what it has, and what it does with the next bytes.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<OutputState>>);

#[derive(Default)]
struct OutputState {
    bytes: Vec<u8>,
    /// Bytes that it takes before it refuses; none for any number.
    room: Option<usize>,
}

impl Output {
    fn set_room(&self, room: Option<usize>) {
        self.0.lock().unwrap().room = room;
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().bytes.clone()).unwrap()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut state = self.0.lock().unwrap();
        let count = state.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if count == 0 {
            return Err(Error::from(ErrorKind::StorageFull));
        }
        state.room = state.room.map(|room| room - count);
        state.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn report(lost: &LostLines) -> Vec<u8> {
    let reason =
        lost.reason.as_ref().map_or_else(|| "queue full".to_owned(), |e| e.kind().to_string());
    format!("{} lost: {reason}\n", lost.count).into_bytes()
}

fn running(output: &Output) -> (LineSender, std::thread::JoinHandle<()>) {
    let (sender, writer) = line_queue();
    let mut out = output.clone();
    (sender, std::thread::spawn(move || writer.run(&mut out, report)))
}

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn lines_come_out_whole_and_in_order() {
    let output = Output::default();
    let (sender, writer) = running(&output);
    sender.push(b"one\n".to_vec());
    sender.push(b"two\n".to_vec());
    assert!(sender.flush(LIMIT));
    assert_eq!(output.text(), "one\ntwo\n");
    sender.push(b"three\n".to_vec());
    drop(sender);
    writer.join().unwrap();
    assert_eq!(output.text(), "one\ntwo\nthree\n");
}

#[test]
fn an_output_that_refuses_costs_lines_and_their_number_is_said_when_it_goes_on() {
    let output = Output::default();
    let (sender, _writer) = running(&output);
    output.set_room(Some(6));
    for line in ["one\n", "two\n", "three\n"] {
        sender.push(line.into());
        assert!(sender.flush(LIMIT));
    }
    // The disk was full in the middle of a line.
    assert_eq!(output.text(), "one\ntw");
    output.set_room(None);
    sender.push(b"four\n".to_vec());
    assert!(sender.flush(LIMIT));
    let reason = ErrorKind::StorageFull;
    assert_eq!(output.text(), format!("one\ntw\n2 lost: {reason}\nfour\n"));
    assert_eq!(sender.lost(), 2);
}

#[test]
fn an_output_that_stands_still_costs_lines_and_no_time() {
    let output = Output::default();
    // Nobody writes yet: as with an output that takes nothing.
    let (sender, writer) = line_queue();
    for number in 0..MAX_LINES + 7 {
        sender.push(format!("{number}\n").into_bytes());
    }
    assert!(!sender.flush(Duration::ZERO));
    let mut out = output.clone();
    let writer = std::thread::spawn(move || writer.run(&mut out, report));
    assert!(sender.flush(LIMIT));
    let text = output.text();
    assert!(text.starts_with("7 lost: queue full\n0\n1\n"), "{}", &text[..40]);
    assert_eq!(sender.lost(), 7);
    assert_eq!(text.lines().count(), 1 + MAX_LINES);
    drop(sender);
    writer.join().unwrap();
}

#[test]
fn bytes_that_wait_are_bounded_and_given_back() {
    let output = Output::default();
    let (sender, writer) = line_queue();
    let long = || vec![b'x'; MAX_BYTES / 4];
    for _ in 0..6 {
        sender.push(long());
    }
    sender.push(vec![b'x'; MAX_BYTES + 1]);
    let mut out = output.clone();
    let writer = std::thread::spawn(move || writer.run(&mut out, report));
    assert!(sender.flush(LIMIT));
    assert_eq!(output.text().len(), "3 lost: queue full\n".len() + MAX_BYTES);
    sender.push(long());
    assert!(sender.flush(LIMIT));
    assert!(output.text().len() > MAX_BYTES + MAX_BYTES / 4, "there is room again");
    drop(sender);
    writer.join().unwrap();
}

#[test]
fn without_a_writer_nothing_waits() {
    let (sender, writer) = line_queue();
    drop(writer);
    sender.push(b"x\n".to_vec());
    assert!(!sender.flush(LIMIT), "at once");
}
