//! A real `icecast2` on loopback.

use std::io;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::peer::Process;
use crate::scratch::ScratchDir;

/// Starts it on this port with a burst of 64 kB; the password of sources is `secret`. Returns when
/// it accepts connections.
///
/// # Errors
/// If it cannot be started, or does not listen within ten seconds.
pub fn start(
    program: &Path,
    port: u16,
    clients: usize,
    scratch: &ScratchDir,
) -> io::Result<Process> {
    let dir = scratch.path().display();
    // It does not run as root.
    let owner = if rustix::process::getuid().is_root() {
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o777))?;
        "<security><changeowner><user>nobody</user><group>nogroup</group></changeowner></security>"
    } else {
        ""
    };
    let config = format!(
        "<icecast><limits><clients>{clients}</clients><sources>2</sources>\
         <burst-size>65535</burst-size></limits>\
         <authentication><source-password>secret</source-password><admin-user>admin</admin-user>\
         <admin-password>secret</admin-password></authentication><hostname>localhost</hostname>\
         <listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket>\
         <paths><basedir>{dir}</basedir><logdir>{dir}</logdir><webroot>{dir}</webroot>\
         <adminroot>{dir}</adminroot></paths><logging><accesslog>access.log</accesslog>\
         <errorlog>error.log</errorlog></logging>{owner}</icecast>"
    );
    let file = scratch.join("icecast.xml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&file);
    let logs = [scratch.join("icecast.out"), scratch.join("icecast.err")];
    let mut process = Process::start(&mut command, &logs[0], &logs[1])?;
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if process.ended()?.is_some() || start.elapsed() > START_TIMEOUT {
            return Err(io::Error::other("icecast2 does not listen"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

const START_TIMEOUT: Duration = Duration::from_secs(10);
