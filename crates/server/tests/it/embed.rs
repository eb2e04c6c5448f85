//! A server as a library: several in one process, errors as values, an end that frees everything.

#[path = "../../examples/two_servers.rs"]
mod two_servers;

use std::net::{TcpListener, TcpStream};

use aulos_blackbox::scratch::ScratchDir;
use aulos_config::{ConfigFile, Environment, ResolvedConfig, load};
use aulos_server::exit::Exit;
use aulos_server::server::Server;

fn config(state_dir: &ScratchDir, control: &str) -> ResolvedConfig {
    let text = format!(
        "state_dir = {:?}\n[listen]\nstream = \"127.0.0.1:0\"\ncontrol = \"{control}\"\n\
         http = \"127.0.0.1:0\"\n[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n",
        state_dir.path()
    );
    let file = ConfigFile { name: "embed", text: &text };
    load(Some(file), &[], &Environment::default()).unwrap()
}

#[test]
fn one_server_plays_what_another_one_in_the_same_process_streams() {
    two_servers::main().unwrap();
}

#[test]
fn a_stopped_server_frees_its_ports_and_its_state_directory() {
    let state = ScratchDir::new("embed-stop").unwrap();
    let server = Server::new().start(config(&state, "127.0.0.1:0")).unwrap();
    let control = server.addresses().control;
    TcpStream::connect(control).unwrap();
    server.stop().unwrap();
    TcpListener::bind(control).unwrap();
    // The lock of the state directory is free again, and so is the port.
    let again = Server::new().start(config(&state, &control.to_string())).unwrap();
    assert_eq!(again.addresses().control, control);
    drop(again);
    assert!(TcpStream::connect(control).is_err());
}

#[tokio::test]
async fn a_refused_start_and_a_stop_are_possible_in_an_asynchronous_context() {
    let state = ScratchDir::new("embed-async").unwrap();
    let first = Server::new().start(config(&state, "127.0.0.1:0")).unwrap();
    let mut taken = config(&ScratchDir::new("embed-taken").unwrap(), "127.0.0.1:0");
    taken.listen.stream.port = first.addresses().stream.port();
    let refused = Server::new().start(taken).unwrap_err();
    assert_eq!(refused.exit, Exit::Unavailable);
    first.stop().unwrap();
}

#[test]
fn a_second_server_on_the_same_state_directory_is_refused_with_a_reason() {
    let state = ScratchDir::new("embed-lock").unwrap();
    let first = Server::new().start(config(&state, "127.0.0.1:0")).unwrap();
    let refused = Server::new().start(config(&state, "127.0.0.1:0")).unwrap_err();
    assert_eq!(refused.exit, Exit::Unavailable);
    assert!(refused.message.contains("--state-dir"), "{}", refused.message);
    let taken = first.addresses().control;
    let other = ScratchDir::new("embed-port").unwrap();
    let refused = Server::new().start(config(&other, &taken.to_string())).unwrap_err();
    assert_eq!(refused.exit, Exit::Unavailable);
    assert!(refused.message.contains(&taken.to_string()), "{}", refused.message);
    first.stop().unwrap();
}
