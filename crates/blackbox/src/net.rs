//! Networks of their own: two namespaces and a pair of virtual interfaces, or namespaces alone.

use std::io;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces, which are removed on drop.
#[derive(Debug)]
pub struct NetNamespaces(Vec<String>);

impl NetNamespaces {
    /// Creates two with a pair of interfaces between them; `10.77.0.1` and `fd77::1` are one end,
    /// `10.77.0.2` and `fd77::2` the other. Multicast goes through their interfaces.
    ///
    /// # Errors
    /// If this process lacks the privilege, or there is no `ip`.
    pub fn new() -> io::Result<Self> {
        let net = Self::isolated(2)?;
        net.add_interfaces()?;
        Ok(net)
    }

    /// Makes the interfaces of [`new`](Self::new) again, after [`Self::remove_interfaces`].
    ///
    /// # Errors
    /// If they are there.
    pub fn add_interfaces(&self) -> io::Result<()> {
        let [a, b] = &self.0[..] else { return Err(io::ErrorKind::InvalidData.into()) };
        ip(&format!("-n {a} link add card type veth peer name card netns {b}"))?;
        for (number, end) in [(1, a), (2, b)] {
            ip(&format!("-n {end} address add 10.77.0.{number}/24 dev card"))?;
            ip(&format!("-n {end} address add fd77::{number}/64 dev card nodad"))?;
            ip(&format!("-n {end} link set card up"))?;
            ip(&format!("-n {end} route add 224.0.0.0/4 dev card"))?;
        }
        Ok(())
    }

    /// Removes the interfaces between two namespaces, as when an adapter is pulled out.
    ///
    /// # Errors
    /// If they are gone.
    pub fn remove_interfaces(&self) -> io::Result<()> {
        ip(&format!("-n {} link del card", self.0[0]))
    }

    /// Creates namespaces that have loopback only.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn isolated(count: usize) -> io::Result<Self> {
        // Tests of one process may have networks at the same time.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("aulos-{}-{number}-{end}", std::process::id());
        let net = Self((0..count).map(name).collect());
        for end in &net.0 {
            ip(&format!("netns add {end}"))?;
            ip(&format!("-n {end} link set lo up"))?;
        }
        Ok(net)
    }

    /// Runs `act` on a new thread in one of the namespaces; processes that it starts are in the
    /// namespace too.
    ///
    /// # Panics
    /// If the namespace is gone, and if `act` panics.
    #[allow(clippy::unwrap_used, reason = "a test can go on with nothing else")]
    pub fn run_inside<T: Send>(&self, end: usize, act: impl FnOnce() -> T + Send) -> T {
        let space = std::fs::File::open(format!("/run/netns/{}", self.0[end])).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), kind).unwrap();
                act()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for NetNamespaces {
    fn drop(&mut self) {
        for end in &self.0 {
            drop(ip(&format!("netns del {end}")));
        }
    }
}

pub(crate) fn ip(arguments: &str) -> io::Result<()> {
    let done = Command::new("ip").args(arguments.split(' ')).output()?;
    if done.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("ip {arguments}: {}", why.trim())))
}
