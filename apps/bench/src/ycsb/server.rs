//! [`Server`]: a key-value server in a process of its own, in a limited control group if the kernel is to swap it.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use yonder::units::PAGE_BYTES;

use super::{KernelCounts, Leg, Settings, Way};
use crate::BenchError;
use crate::children::{Launch, find_program};
use crate::kernel_swap::{Group, KernelSwap};
use crate::process::{End, Running};

/// How long a server may run: longer than any series of requests.
const RUN_TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// How long it may take until it listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(2);
/// Memory of a group, beside the local one, until it is known what the server takes before it has items.
const START_BYTES: u64 = 256 << 20;
/// Connections beside those of the load, for its questions; memcached counts files of its own among them.
const MORE_CONNECTIONS: usize = 128;

/// Which server to start.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) leg: Leg,
    pub(super) far: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) launch: &'a dyn Launch,
}

/// A running server. Its group goes after it.
pub(super) struct Server {
    running: Running,
    group: Option<Limited>,
    pub(super) address: SocketAddr,
}

/// A group, and how much memory it has.
struct Limited {
    group: Group,
    bytes: u64,
}

impl Server {
    /// Starts a server, and returns once it listens; else what is missing on this machine.
    pub(super) fn start(
        task: &Task<'_>,
        kernel: &Result<KernelSwap, String>,
    ) -> Result<Result<Self, String>, BenchError> {
        let local_bytes = task.settings.local_bytes();
        let group = if task.leg.way.is_kernel() {
            match kernel.as_ref().map_err(String::clone).and_then(|kernel| kernel.group(local_bytes + START_BYTES)) {
                Ok(group) => Some(group),
                Err(missing) => return Ok(Err(missing)),
            }
        } else {
            None
        };
        if task.leg.way == Way::SwapMemcached && find_program("memcached").is_none() {
            return Ok(Err("memcached is not installed: type `apt-get install memcached` as root".to_owned()));
        }
        // The port may be taken by another program before the server has it; then the server ends, and that is said.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let running = task.spawn(group.as_ref(), address)?;
        let mut server = Self { running, group: None, address };
        server.wait_until_it_listens()?;
        server.group = match group.map(|group| limited(group, local_bytes)) {
            Some(Ok(limited)) => Some(limited),
            Some(Err(missing)) => return Ok(Err(missing)),
            None => None,
        };
        Ok(Ok(server))
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
    pub(super) fn was_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(|limited| limited.group.was_out_of_memory())
    }

    /// What the kernel has done for it so far; none if its memory is not the kernel's business. Swap is counted for the whole
    /// machine.
    pub(super) fn kernel_counts(&self) -> Option<KernelCounts> {
        let limited = self.group.as_ref()?;
        let faults = limited.group.faults();
        let pages = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let bytes = |name| count(&pages, name) * PAGE_BYTES as u64;
        Some(KernelCounts {
            major_faults: faults.major,
            minor_faults: faults.minor,
            swapped_in_bytes: bytes("pswpin"),
            swapped_out_bytes: bytes("pswpout"),
            group_bytes: limited.bytes,
        })
    }

    /// Ends it. Returns how it had ended before, if it had, or failed to end well.
    pub(super) fn end(self) -> Result<Option<String>, BenchError> {
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

impl Task<'_> {
    fn spawn(&self, group: Option<&Group>, address: SocketAddr) -> Result<Running, BenchError> {
        let mut words = group.map(Group::prefix).unwrap_or_default();
        words.extend(self.words(address));
        let (program, arguments) = words.split_first().expect("a server has a program");
        let mut command = self.launch.guarded(Path::new(program));
        command.args(arguments);
        Running::start(&mut command, RUN_TIME_MAX, &self.settings.stop)
    }

    /// What to type.
    fn words(&self, address: SocketAddr) -> Vec<OsString> {
        let settings = self.settings;
        let connections = settings.connections + MORE_CONNECTIONS;
        if self.leg.way == Way::SwapMemcached {
            let mib = settings.server_bytes().div_ceil(1 << 20);
            let flags = format!(
                "memcached -l {} -p {} -U 0 -u root -m {mib} -t {} -c {connections}",
                address.ip(),
                address.port(),
                settings.swap_workers
            );
            return flags.split(' ').map(Into::into).collect();
        }
        // What the kernel is to swap is all local, so that nothing is ever fetched; twice as much, so that nothing is reclaimed.
        let (far, local, faults, workers) = match self.leg.way {
            Way::Yield => (self.far, settings.local_bytes(), "yield", settings.workers),
            Way::Busy => (self.far, settings.local_bytes(), "busy", settings.workers),
            Way::Swap | Way::SwapMemcached => ("emu://", 2 * settings.server_bytes(), "busy", settings.swap_workers),
        };
        let flags = [
            ("--far", far.to_owned()),
            ("--memory", settings.server_bytes().to_string()),
            ("--local", local.to_string()),
            ("--listen", address.to_string()),
            ("--faults", faults.to_owned()),
            ("--workers", workers.to_string()),
            ("--max-inflight", settings.connections.div_ceil(workers).to_string()),
            ("--connections", connections.to_string()),
        ];
        let dispatch = self.leg.dispatch_name().map(|name| ("--dispatch", name.to_owned()));
        let flags = flags.into_iter().chain(dispatch).flat_map(|(flag, value)| [flag.into(), value.into()]);
        settings.kv.iter().cloned().chain(flags).collect()
    }
}

/// Leaves a server's group the local memory, and what the server takes before it has items.
fn limited(group: Group, local_bytes: u64) -> Result<Limited, String> {
    let bytes = local_bytes + group.usage()?;
    group.limit(bytes)?;
    Ok(Limited { group, bytes })
}

/// A count in `/proc/vmstat`; 0 where the kernel does not tell.
fn count(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_read() {
        assert_eq!(count("nr_free 5\npswpin 12\npswpin_zero 9\npswpout 7\n", "pswpin"), 12);
        assert_eq!(count("pswpin_zero 9\n", "pswpin"), 0);
    }
}
