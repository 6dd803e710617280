//! [`Task`]: which server is started, and what it is told.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use super::{Contender, Settings, Variant};
use crate::BenchError;
use crate::children::{Launch, find_program};
use crate::kernel_swap::KernelSwap;
use crate::limited_server::{Server, Start, free_address};

/// Connections beside those of the load, for its questions; memcached counts files of its own among them.
const MORE_CONNECTIONS: usize = 128;

/// Which server to start.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) contender: Contender,
    pub(super) far: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) launch: &'a dyn Launch,
    /// Where its temporary files are.
    pub(super) temporary: &'a Path,
}

impl Task<'_> {
    /// Starts a server, and returns once it listens; else what is missing on this machine.
    pub(super) fn start(&self, kernel: &Result<KernelSwap, String>) -> Result<Result<Server, String>, BenchError> {
        let local_bytes = self.settings.local_bytes();
        let group = if self.contender.variant.is_kernel() {
            match kernel.as_ref().map_err(String::clone).and_then(|kernel| kernel.group_to_start(local_bytes)) {
                Ok(group) => Some(group),
                Err(missing) => return Ok(Err(missing)),
            }
        } else {
            None
        };
        if self.contender.variant == Variant::SwapMemcached && find_program("memcached").is_none() {
            return Ok(Err("memcached is not installed: type `apt-get install memcached` as root".to_owned()));
        }
        let address = free_address()?;
        let Self { launch, temporary, settings, .. } = *self;
        let (words, stop) = (self.words(address), &settings.stop);
        Server::start(Start { launch, words, address, group, local_bytes, temporary, stop })
    }

    /// What to type.
    fn words(&self, address: SocketAddr) -> Vec<OsString> {
        let settings = self.settings;
        let connections = settings.connections + MORE_CONNECTIONS;
        if self.contender.variant == Variant::SwapMemcached {
            let mib = settings.server_bytes().div_ceil(1 << 20);
            let flags = format!(
                "memcached -l {} -p {} -U 0 -u root -m {mib} -t {} -c {connections}",
                address.ip(),
                address.port(),
                settings.swap_workers
            );
            return flags.split(' ').map(Into::into).collect();
        }
        // What the kernel is to swap is all local, so that nothing is ever fetched; twice as much, so that nothing is
        // reclaimed.
        let (far, local, faults, workers) = match self.contender.variant {
            Variant::Yield => (self.far, settings.local_bytes(), "yield", settings.workers),
            Variant::Busy => (self.far, settings.local_bytes(), "busy", settings.workers),
            Variant::Swap | Variant::SwapMemcached => {
                ("emu://", 2 * settings.server_bytes(), "busy", settings.swap_workers)
            }
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
        let dispatch = self.contender.dispatch_name().map(|name| ("--dispatch", name.to_owned()));
        let flags = flags.into_iter().chain(dispatch).flat_map(|(flag, value)| [flag.into(), value.into()]);
        settings.kv.iter().cloned().chain(flags).collect()
    }
}
