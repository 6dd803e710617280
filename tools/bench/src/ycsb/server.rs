//! Which server is started, and what it is told.

use std::ffi::OsString;
use std::net::SocketAddr;

use yonder_load::Protocol;

use super::{Bench, Contender, Variant};
use crate::stock;

/// Connections beside those of the load, for its questions; memcached counts files of its own among them.
const MORE_CONNECTIONS: usize = 128;

impl Bench<'_> {
    /// Why a contender cannot be run on this machine, whatever its swap.
    pub(super) fn missing(&self, contender: Contender) -> Option<String> {
        (contender.variant == Variant::SwapMemcached).then(|| stock::missing(Protocol::Memcached)).flatten()
    }

    /// What to type.
    pub(super) fn words(&self, contender: Contender, address: SocketAddr) -> Vec<OsString> {
        let settings = self.settings;
        let connections = settings.connections + MORE_CONNECTIONS;
        if contender.variant == Variant::SwapMemcached {
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
        let (far, local, faults, workers) = match contender.variant {
            Variant::Yield => (&*self.far, settings.local_bytes(), "yield", settings.workers),
            Variant::Busy => (&*self.far, settings.local_bytes(), "busy", settings.workers),
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
            // With the dispatcher's CPU, faults that yield would have another one than those that busy-wait.
            ("--install-delegation", "off".to_owned()),
        ];
        let dispatch = contender.dispatch_name().map(|name| ("--dispatch", name.to_owned()));
        let flags = flags.into_iter().chain(dispatch).flat_map(|(flag, value)| [flag.into(), value.into()]);
        settings.kv.iter().cloned().chain(flags).collect()
    }
}
