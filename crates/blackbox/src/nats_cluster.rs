//! A cluster of real `nats-server`s with `JetStream`, on loopback or in network namespaces.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::net::NetNamespaces;
use crate::peer::Process;
use crate::ports::free_port;
use crate::scratch::ScratchDir;

/// Servers with routes between them. They do not outlive this value.
#[derive(Debug)]
pub struct NatsCluster<'a> {
    program: PathBuf,
    /// If there are namespaces, node N is in namespace N.
    net: Option<&'a NetNamespaces>,
    folder: ScratchDir,
    nodes: Vec<NatsNode>,
}

/// A server of the cluster.
#[derive(Debug)]
pub struct NatsNode {
    /// Its address.
    pub address: Ipv4Addr,
    /// Port for clients, the same after a restart.
    pub port: u16,
    /// Port of the routes.
    route: u16,
    /// Port of the monitoring.
    monitor: u16,
    /// Port for leaf nodes.
    pub leaf: u16,
    process: Option<Process>,
}

/// Timeout until the servers have elected a leader of `JetStream`. Not a target.
const START_TIMEOUT: Duration = Duration::from_secs(40);

impl<'a> NatsCluster<'a> {
    /// Starts a server at each address; all on loopback without `net`.
    ///
    /// # Errors
    /// If one ends, or the cluster is not complete in time.
    pub fn start(
        program: &Path,
        addresses: &[Ipv4Addr],
        net: Option<&'a NetNamespaces>,
    ) -> io::Result<Self> {
        let node = |address: &Ipv4Addr| {
            let [port, route, monitor, leaf] =
                [free_port()?, free_port()?, free_port()?, free_port()?];
            Ok(NatsNode { address: *address, port, route, monitor, leaf, process: None })
        };
        let nodes = addresses.iter().map(node).collect::<io::Result<Vec<_>>>()?;
        let folder = ScratchDir::new("nats-cluster")?;
        let mut cluster = Self { program: program.to_path_buf(), net, folder, nodes };
        for node in 0..addresses.len() {
            cluster.restart(node)?;
        }
        for node in 0..addresses.len() {
            cluster.wait_until_healthy(node)?;
        }
        Ok(cluster)
    }

    /// The servers.
    #[must_use]
    pub fn nodes(&self) -> &[NatsNode] {
        &self.nodes
    }

    /// Kills a server as `kill -9` does.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].process = None;
    }

    /// Starts a server again on its ports, with what `JetStream` has stored. It may not be ready
    /// yet.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn restart(&mut self, node: usize) -> io::Result<()> {
        self.kill(node);
        let routes =
            self.nodes.iter().map(|node| format!("\"nats://{}:{}\"", node.address, node.route));
        let routes: Vec<_> = routes.collect();
        let NatsNode { address, port, route, monitor, leaf, .. } = &self.nodes[node];
        let store = self.folder.join(format!("jetstream{node}"));
        let text = format!(
            "server_name: \"n{node}\"\nlisten: \"{address}:{port}\"\nhttp: \"{address}:{monitor}\"\n\
             jetstream: {{ store_dir: \"{}\" }}\nleafnodes: {{ listen: \"{address}:{leaf}\" }}\n\
             cluster: {{ name: \"test\", listen: \"{address}:{route}\", routes: [{}] }}\n",
            store.display(),
            routes.join(", ")
        );
        let config = self.folder.join(format!("nats{node}.conf"));
        std::fs::write(&config, text)?;
        let printed = ["out", "err"].map(|end| self.folder.join(format!("nats{node}.{end}")));
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&config);
        let process =
            self.inside(node, || Process::start(&mut command, &printed[0], &printed[1]))?;
        self.nodes[node].process = Some(process);
        Ok(())
    }

    /// Waits until a server says that it and its `JetStream` are ready.
    ///
    /// # Errors
    /// If it has ended, or does not become ready.
    pub fn wait_until_healthy(&mut self, node: usize) -> io::Result<()> {
        let start = Instant::now();
        while !self.monitor(node, "/healthz").is_ok_and(|body| body.contains("\"ok\"")) {
            let process = self.nodes[node].process.as_mut();
            let ended = process.map_or(Ok(None), Process::ended)?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                let why = std::fs::read_to_string(self.folder.join(format!("nats{node}.err")))?;
                return Err(io::Error::other(format!("no cluster of NATS; {ended:?}: {why}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What the monitoring of a server answers.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn monitor(&self, node: usize, path: &str) -> io::Result<String> {
        let NatsNode { address, monitor, .. } = self.nodes[node];
        self.inside(node, || monitored(address, monitor, path))
    }

    fn inside<T: Send>(&self, node: usize, act: impl FnOnce() -> T + Send) -> T {
        match self.net {
            Some(net) => net.run_inside(node, act),
            None => act(),
        }
    }
}

/// What the monitoring at a port answers to a request for `path`.
///
/// # Errors
/// If it does not answer.
pub fn monitored(address: Ipv4Addr, port: u16, path: &str) -> io::Result<String> {
    let mut socket = TcpStream::connect((address, port))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(socket, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(body.to_owned())
}
