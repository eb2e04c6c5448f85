//! A controller on the control port, as plain as they come.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// A connection that makes calls and keeps what else it is told.
pub(crate) struct Rpc {
    reader: BufReader<TcpStream>,
    next: u64,
    /// Notifications, as they came.
    pub(crate) told: Vec<Value>,
}

impl Rpc {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let socket = TcpStream::connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { reader: BufReader::new(socket), next: 1, told: Vec::new() }
    }

    /// The whole answer to a call.
    pub(crate) fn answer(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next;
        self.next += 1;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.line(&call.to_string());
        loop {
            let message = self.read();
            if message.is_array() || message.get("id").is_some() {
                return message;
            }
            self.told.push(message);
        }
    }

    /// The result of a call that succeeds.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer.get("result").is_some(), "{method} {params}: {answer}");
        answer["result"].clone()
    }

    /// The whole status.
    pub(crate) fn status(&mut self) -> Value {
        self.call("Server.GetStatus", &json!({}))["server"].clone()
    }

    /// A stream's part of the status.
    pub(crate) fn stream(&mut self, id: &str) -> Option<Value> {
        let status = self.status();
        status["streams"].as_array().unwrap().iter().find(|one| one["id"] == id).cloned()
    }

    /// The group of a client, once it is there.
    pub(crate) fn group_of(&mut self, client: &str) -> Option<Value> {
        let holds = |group: &&Value| {
            group["clients"].as_array().unwrap().iter().any(|one| one["id"] == client)
        };
        self.status()["groups"].as_array().unwrap().iter().find(holds).cloned()
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    pub(crate) fn read(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "{line:?}");
        serde_json::from_str(&line).unwrap()
    }
}
