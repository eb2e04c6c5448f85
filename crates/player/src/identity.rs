//! What a player says of itself and its host.

use std::fs;
use std::path::Path;

use aulos_proto::snap::wire::Hello;

/// A Hello that describes this host.
///
/// `id` is that under which the server keeps name, volume and group of this player; by default the
/// MAC address of the host. `name` is what the server calls the host, by default its name.
#[must_use]
pub fn hello(id: Option<&str>, name: Option<&str>, instance: u32) -> Hello {
    let system = rustix::system::uname();
    let host_name = system.nodename().to_string_lossy().into_owned();
    let mac = mac_address(Path::new("/sys/class/net"));
    let own_id = mac.clone().unwrap_or_else(|| host_name.clone());
    let mut hello = Hello::new(id.filter(|id| !id.is_empty()).unwrap_or(&own_id));
    if let Some(mac) = mac {
        hello.mac = mac;
    }
    hello.host_name = name.map_or(host_name, str::to_owned);
    hello.version = env!("CARGO_PKG_VERSION").to_owned();
    hello.client_name = "aulos-player".to_owned();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    hello.os = operating_system(&release)
        .unwrap_or_else(|| system.sysname().to_string_lossy().into_owned());
    hello.arch = std::env::consts::ARCH.to_owned();
    hello.instance = instance;
    hello
}

/// The MAC address of the network interface that the system has found first.
fn mac_address(interfaces: &Path) -> Option<String> {
    let read = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned())
    };
    let entries = fs::read_dir(interfaces).ok()?;
    let found = entries.flatten().filter_map(|entry| {
        let folder = entry.path();
        let address = read(&folder, "address")?;
        let is_mac = address.len() == 17 && address != "00:00:00:00:00:00";
        let number: u32 = read(&folder, "ifindex")?.parse().ok()?;
        is_mac.then_some((number, address))
    });
    found.min().map(|(_, address)| address)
}

/// The name in a file of os-release(5).
fn operating_system(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_introduces_its_host() {
        let own = hello(None, None, 2);
        assert!(!own.id.is_empty() && !own.os.is_empty() && !own.arch.is_empty(), "{own:?}");
        assert_eq!((own.instance, own.client_name.as_str()), (2, "aulos-player"));
        let named = hello(Some("kitchen"), Some("Kitchen"), 1);
        assert_eq!((named.client_id().as_str(), named.host_name.as_str()), ("kitchen", "Kitchen"));
    }

    #[test]
    fn the_system_is_named_as_it_names_itself() {
        let release = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(operating_system(release).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(operating_system("ID=x\n"), None);
    }
}
