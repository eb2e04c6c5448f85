//! Where the sound server of this user listens, and the secret that it shares with its users: as
//! PulseAudio's own library finds them, without its configuration files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// Connects to the server. An error has the path that was tried last.
pub(super) fn connect_server() -> Result<OwnedFd, (String, io::Error)> {
    let paths = socket_paths(&environment)?;
    let mut last = (paths.join(", "), Errno::NOENT.into());
    for path in paths {
        match connect_path(Path::new(&path)) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                // A socket that exists says more than one that does not.
                if error != Errno::NOENT {
                    last = (path, error.into());
                }
            }
        }
    }
    Err(last)
}

fn environment(key: &str) -> Option<String> {
    std::env::var(key).ok().filter(|value| !value.is_empty())
}

fn connect_path(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The sockets to try, in order.
fn socket_paths(env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, (String, io::Error)> {
    if let Some(list) = env("PULSE_SERVER") {
        // Each may have the id of its machine in braces in front.
        let names = list.split_whitespace().map(|one| match one.strip_prefix('{') {
            Some(rest) => rest.split_once('}').map_or(one, |(_, name)| name),
            None => one,
        });
        let paths = names.filter_map(|name| match name.strip_prefix("unix:") {
            Some(path) => Some(path.to_owned()),
            None => name.starts_with('/').then(|| name.to_owned()),
        });
        let paths: Vec<_> = paths.collect();
        if paths.is_empty() {
            let error = io::Error::other("PULSE_SERVER names no unix socket (unix:PATH)");
            return Err((list, error));
        }
        return Ok(paths);
    }
    let user = || format!("/run/user/{}", rustix::process::getuid().as_raw());
    let runtime = env("XDG_RUNTIME_DIR").unwrap_or_else(user);
    let own = env("PULSE_RUNTIME_PATH").unwrap_or_else(|| format!("{runtime}/pulse"));
    // The last is a server for the whole system.
    Ok(vec![format!("{own}/native"), "/run/pulse/native".to_owned()])
}

/// The secret, which a server wants only from other users. Zeros without a file.
pub(super) fn cookie() -> Vec<u8> {
    let found = cookie_paths(&environment).into_iter().find_map(|path| std::fs::read(path).ok());
    let mut cookie = found.unwrap_or_default();
    cookie.resize(COOKIE, 0);
    cookie
}

fn cookie_paths(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let home = env("HOME").map(PathBuf::from);
    let config = env("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let paths = [
        env("PULSE_COOKIE").map(PathBuf::from),
        config.map(|config| config.join("pulse/cookie")),
        home.map(|home| home.join(".pulse-cookie")),
    ];
    paths.into_iter().flatten().collect()
}

/// Receives what the server has sent.
///
/// # Errors
/// The end of the connection, and the errors of `handle`.
pub(super) fn receive(
    socket: &OwnedFd,
    mut handle: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = [0; READ];
    for _ in 0..READS {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            // The second, if it had not read everything.
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                return Err(io::Error::other("the server has closed the connection"));
            }
            Ok((length, _)) => {
                handle(&buffer[..length])?;
                if length < READ {
                    break;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends as much of `output` as the socket takes.
pub(super) fn flush(socket: &OwnedFd, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        match send(socket, output, SendFlags::NOSIGNAL) {
            Ok(sent) => drop(output.drain(..sent)),
            // What the server has said before its end comes first.
            Err(Errno::AGAIN | Errno::PIPE) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The source that the environment prefers.
pub(super) fn preferred_source() -> Option<String> {
    environment("PULSE_SOURCE")
}

/// The sink that the environment prefers.
pub(super) fn preferred_sink() -> Option<String> {
    environment("PULSE_SINK")
}

const COOKIE: usize = 256;

/// Bytes of one read, and reads before the caller does something else.
const READ: usize = 4_096;
const READS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_server() {
        let paths = |list: &[(&str, &str)]| {
            let find = |key: &str| {
                let found = list.iter().find(|(name, _)| *name == key);
                found.map(|(_, value)| (*value).to_owned())
            };
            socket_paths(&find).map_err(|(_, error)| error.to_string())
        };
        let server = ("PULSE_SERVER", "{ab12}unix:/a/native tcp:host /b");
        assert_eq!(paths(&[server, ("XDG_RUNTIME_DIR", "/r")]).unwrap(), ["/a/native", "/b"]);
        let error = paths(&[("PULSE_SERVER", "tcp:host:4713")]).unwrap_err();
        assert!(error.contains("names no unix socket"), "{error}");
        let system = "/run/pulse/native";
        assert_eq!(paths(&[("XDG_RUNTIME_DIR", "/r")]).unwrap(), ["/r/pulse/native", system]);
        let both = [("XDG_RUNTIME_DIR", "/r"), ("PULSE_RUNTIME_PATH", "/p")];
        assert_eq!(paths(&both).unwrap(), ["/p/native", system]);
        assert!(paths(&[]).unwrap()[0].starts_with("/run/user/"));
    }

    #[test]
    fn the_cookie_is_looked_for_where_servers_put_it() {
        let find = |key: &str| (key != "XDG_CONFIG_HOME").then(|| format!("/{key}"));
        let expected = ["/PULSE_COOKIE", "/HOME/.config/pulse/cookie", "/HOME/.pulse-cookie"];
        assert_eq!(cookie_paths(&find), expected.map(PathBuf::from));
    }
}
