//! [`Server`]: a peer in a process of its own, on a port of its own, without persistence.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use super::dialect::{Dialect, PeerFlow};
use crate::BenchError;
use crate::children::{Child, Launch, find_program};

/// Memory that memcached may use, in MiB: more than all items take.
const MEMCACHED_MIB: &str = "4096";

/// A running peer.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) dialect: Dialect,
    pub(super) child: Child,
    pub(super) address: SocketAddr,
}

impl Server {
    /// Starts a peer; `None` if it is not installed.
    pub(super) fn start(dialect: Dialect, launch: &dyn Launch) -> Result<Option<Self>, BenchError> {
        let Some(program) = find_program(dialect.program()) else { return Ok(None) };
        // The port may be taken by another program before the peer has it; then the peer ends, and that is said.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = launch.guarded(&program);
        add_arguments(dialect, address.port(), &mut command);
        let mut child = Child::start(&mut command, dialect.program())?;
        child.connect(address)?;
        Ok(Some(Self { dialect, child, address }))
    }

    /// A connection for values of `bytes` bytes, at most `depth` at a time, which asks again for `spin` before it
    /// sleeps.
    pub(super) fn connect(&mut self, bytes: usize, depth: usize, spin: Duration) -> Result<PeerFlow, BenchError> {
        PeerFlow::new(self.dialect, self.child.connect(self.address)?, bytes, depth, spin)
    }
}

fn add_arguments(dialect: Dialect, port: u16, command: &mut Command) {
    let port = port.to_string();
    match dialect {
        Dialect::Redis => command.args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
        ]),
        Dialect::Memcached => {
            command.args(["-p", &port, "-U", "0", "-l", "127.0.0.1", "-m", MEMCACHED_MIB]);
            // Root has to say as whom it wants to serve.
            if rustix::process::geteuid().is_root() { command.args(["-u", "root"]) } else { command }
        }
    };
}
