//! [`Server`]: a key-value server in a process of its own, in a limited control group if the kernel is to swap it.
//!
//! Neighbours: `ycsb` and `peers` start servers, each with words of its own; `kernel_swap` makes the groups.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::children::Launch;
use crate::kernel_swap::{Group, KernelCounts, Limited};
use crate::process::{End, Running};

/// How long a server may run: longer than any series of requests.
const RUN_TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// How long it may take until it listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(2);

/// Which server to start.
pub(crate) struct Start<'a> {
    pub(crate) launch: &'a dyn Launch,
    /// What to type.
    pub(crate) words: Vec<OsString>,
    /// Where it is told to listen.
    pub(crate) address: SocketAddr,
    /// The group that it is to run in, from [`crate::kernel_swap::KernelSwap::group_to_start`], if the kernel is to
    /// limit it.
    pub(crate) group: Option<Group>,
    /// Memory of that group, beside what the server takes before it has items.
    pub(crate) local_bytes: u64,
    /// Where its temporary files are, which are gone with that folder, however it ends.
    pub(crate) temporary: &'a Path,
    /// Becomes true when the user wants to stop.
    pub(crate) stop: &'a Arc<AtomicBool>,
}

/// A running server. Its group goes after it.
pub(crate) struct Server {
    running: Running,
    group: Option<Limited>,
    pub(crate) address: SocketAddr,
}

/// An address of this machine that nobody listens at. Another program may take it before the server does; then the
/// server ends, and that is said.
pub(crate) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

impl Server {
    /// Starts a server, and returns once it listens; else why the kernel does not limit it.
    pub(crate) fn start(start: Start<'_>) -> Result<Result<Self, String>, BenchError> {
        let mut words = start.group.as_ref().map(Group::prefix).unwrap_or_default();
        words.extend(start.words);
        let (program, arguments) = words.split_first().expect("a server has a program");
        let mut command = start.launch.guarded(Path::new(program));
        command.args(arguments).env("TMPDIR", start.temporary);
        let running = Running::start(&mut command, RUN_TIME_MAX, start.stop)?;
        let mut server = Self { running, group: start.group.map(Limited::new), address: start.address };
        server.wait_until_it_listens()?;
        let limited = server.group.as_mut().map_or(Ok(()), |group| group.leave(start.local_bytes));
        Ok(limited.map(|()| server))
    }

    fn wait_until_it_listens(&self) -> Result<(), BenchError> {
        let give_up = Instant::now() + START_TIME_MAX;
        loop {
            match TcpStream::connect(self.address) {
                Ok(_) => return Ok(()),
                // An end of its own is told by the load, with what the server said.
                Err(_) if self.running.is_over() => return Ok(()),
                Err(_) if Instant::now() < give_up => std::thread::sleep(CONNECT_PAUSE),
                Err(error) => return Err(BenchError::Child(format!("the server does not listen: {error}"))),
            }
        }
    }

    /// Whether the kernel has killed it because memory was short.
    pub(crate) fn was_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Limited::was_out_of_memory)
    }

    /// What the kernel has done for it so far; none if its memory is not the kernel's business.
    pub(crate) fn kernel_counts(&self) -> Option<KernelCounts> {
        self.group.as_ref().map(Limited::counts)
    }

    /// Ends it. Returns how it had ended before, if it had, or failed to end well.
    pub(crate) fn end(self) -> Result<Option<String>, BenchError> {
        let Self { running, group, .. } = self;
        let ended = running.end();
        drop(group);
        Ok(match ended?.end {
            // Whoever has to read everything back from swap to let go of it may be late.
            End::Well | End::Late => None,
            End::Badly(how) => Some(how),
            End::Killed => Some("it was killed".to_owned()),
            End::Stopped => Some("it was stopped".to_owned()),
        })
    }
}
