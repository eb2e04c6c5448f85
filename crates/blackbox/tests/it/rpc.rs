//! A minimal controller: on the control port, or over a WebSocket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// A connection that makes calls and stores notifications.
pub(crate) struct Rpc {
    wire: Wire,
    next: u64,
    /// Notifications, in order of arrival.
    pub(crate) told: Vec<Value>,
}

enum Wire {
    Lines(BufReader<TcpStream>),
    Frames(Box<WebSocket<TcpStream>>),
}

impl Rpc {
    pub(crate) fn connect(control: SocketAddr) -> Self {
        Self::over(Wire::Lines(BufReader::new(socket(control))))
    }

    pub(crate) fn over_websocket(http: SocketAddr) -> Self {
        let url = format!("ws://{http}/jsonrpc");
        let (socket, _) = tungstenite::client(url, socket(http)).unwrap();
        Self::over(Wire::Frames(Box::new(socket)))
    }

    const fn over(wire: Wire) -> Self {
        Self { wire, next: 1, told: Vec::new() }
    }

    /// The whole response to a call.
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

    /// Waits for the next notification of a method; earlier ones are dropped.
    pub(crate) fn hear(&mut self, method: &str) -> Value {
        loop {
            let message = if self.told.is_empty() { self.read() } else { self.told.remove(0) };
            assert!(message.get("id").is_none(), "a notification with an id: {message}");
            if message["method"] == method {
                return message["params"].clone();
            }
        }
    }

    pub(crate) fn line(&mut self, line: &str) {
        match &mut self.wire {
            Wire::Lines(reader) => {
                reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
            }
            Wire::Frames(socket) => socket.send(Message::text(line)).unwrap(),
        }
    }

    pub(crate) fn read(&mut self) -> Value {
        match &mut self.wire {
            Wire::Lines(reader) => {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                assert!(line.ends_with("\r\n"), "{line:?}");
                serde_json::from_str(&line).unwrap()
            }
            Wire::Frames(socket) => loop {
                match socket.read().unwrap() {
                    Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                    Message::Ping(_) | Message::Pong(_) => {}
                    other => panic!("{other:?}"),
                }
            },
        }
    }
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}
