//! Two servers in one process: the second one plays what the first one streams over HTTP.
//!
//! ```text
//!  demo:// -> [first] -> /listen/default.flac -> [second] -> Snapcast clients, browsers, recorders
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use aulos_config::{ConfigFile, Environment, ResolvedConfig, load};
use aulos_server::server::{Server, ServerHandle};
use serde_json::Value;

/// A configuration with ports that the system chooses.
fn config(state_dir: &Path, source: &str) -> Result<ResolvedConfig, Box<dyn Error>> {
    let text = format!(
        "state_dir = {state_dir:?}\n\
         [listen]\nstream = \"127.0.0.1:0\"\ncontrol = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n\
         [[station]]\nname = \"default\"\ncodec = \"flac\"\nsources = [\"{source}\"]\n"
    );
    let file = ConfigFile { name: "two_servers", text: &text };
    Ok(load(Some(file), &[], &Environment::of_process())?)
}

/// One call of the control API; the result.
fn call(control: SocketAddr, method: &str) -> Result<Value, Box<dyn Error>> {
    let mut connection = TcpStream::connect(control)?;
    writeln!(connection, r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#)?;
    for line in BufReader::new(connection).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        // Notifications may come first; they have no id.
        if message["id"] == 1 {
            return Ok(message["result"].clone());
        }
    }
    Err("the server closed the connection".into())
}

fn wait_until_playing(name: &str, server: &ServerHandle) -> Result<(), Box<dyn Error>> {
    for _ in 0..200 {
        let status = call(server.addresses().control, "Server.GetStatus")?;
        let stream = &status["server"]["streams"][0];
        if stream["status"] == "playing" {
            println!("{name}: {} is {}", stream["uri"]["raw"], stream["status"]);
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err(format!("{name} does not play").into())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let state = std::env::temp_dir().join(format!("aulos-two-servers-{}", std::process::id()));
    let first = Server::new().start(config(&state.join("first"), "demo://")?)?;
    wait_until_playing("first", &first)?;

    let stream = format!("http://{}/listen/default.flac", first.addresses().http);
    let second = Server::new().start(config(&state.join("second"), &stream)?)?;
    wait_until_playing("second", &second)?;

    second.stop()?;
    first.stop()?;
    std::fs::remove_dir_all(&state)?;
    Ok(())
}
