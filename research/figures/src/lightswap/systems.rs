//! [`System`]: what handles page faults, and through which stages.

use yonder_units::Nanos;

use super::stages::Stage;
use crate::costs::testbed::page_wire_ns;
use crate::costs::{lightswap, yonder};

/// The link to the memory server, as a resource; those before it are the locks of the eBPF maps.
const LINK: usize = lightswap::MAPS.value as usize;
/// Resources in all.
pub(super) const RESOURCES: usize = LINK + 1;

/// Where pages are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Store {
    /// In a memory server, read over 100 GbE with one-sided RDMA.
    Remote,
    /// On an SSD.
    Ssd,
}

/// How a fault comes to its handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// By an eBPF program, which stores the thread's context in a map with a lock (section 4.2).
    Ebpf,
    /// By SIGBUS on the faulting thread (Yonder).
    Signal,
    /// The kernel handles it.
    Kernel,
}

/// A swapping system.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) entry: Entry,
    pub(super) store: Store,
    /// All of its own time in a fault by itself, the entry's with it.
    pub(super) software_ns: Nanos,
}

impl System {
    pub(super) const LIGHTSWAP_RDMA: Self = Self {
        name: "Lightswap-RDMA",
        entry: Entry::Ebpf,
        store: Store::Remote,
        software_ns: lightswap::LIGHTSWAP_RDMA.ns(),
    };
    pub(super) const LIGHTSWAP_SSD: Self = Self {
        name: "Lightswap-SSD",
        entry: Entry::Ebpf,
        store: Store::Ssd,
        software_ns: lightswap::LIGHTSWAP_SSD.ns(),
    };
    pub(super) const INFINISWAP: Self = Self {
        name: "Infiniswap",
        entry: Entry::Kernel,
        store: Store::Remote,
        software_ns: lightswap::INFINISWAP.ns(),
    };
    pub(super) const LINUX: Self =
        Self { name: "Linux swap", entry: Entry::Kernel, store: Store::Ssd, software_ns: lightswap::LINUX.ns() };
    /// Yonder with what was measured of it, and the paper's network.
    pub(super) const YONDER: Self = Self {
        name: "Yonder, measured costs",
        entry: Entry::Signal,
        store: Store::Remote,
        software_ns: yonder::EXCEPTION.ns()
            + yonder::POST.ns()
            + yonder::AWAY.ns()
            + yonder::INSTALL.ns()
            + yonder::BACK.ns()
            + yonder::RETURN.ns(),
    };

    /// From the touch to the handler, with nobody else there; nothing is known of it where the kernel handles faults.
    pub(super) fn notify_ns(&self) -> Nanos {
        match self.entry {
            Entry::Ebpf => lightswap::NOTIFY.ns(),
            Entry::Signal => yonder::EXCEPTION.ns(),
            Entry::Kernel => 0,
        }
    }

    pub(super) fn fetch_ns(&self) -> Nanos {
        match self.store {
            Store::Remote => lightswap::RDMA.ns(),
            Store::Ssd => lightswap::SSD.ns(),
        }
    }

    /// The stages of a fault of one of so many threads.
    pub(super) fn stages(&self, thread: usize, threads: usize) -> Vec<Stage> {
        let mut stages = match self.entry {
            Entry::Ebpf => notification(thread).to_vec(),
            Entry::Signal => vec![Stage::Delay(self.notify_ns())],
            Entry::Kernel => vec![Stage::Delay(flush_ns(threads))],
        };
        stages.push(Stage::Delay(self.software_ns - self.notify_ns()));
        match self.store {
            Store::Ssd => stages.push(Stage::Delay(self.fetch_ns())),
            Store::Remote => {
                stages.extend([Stage::Delay(self.fetch_ns() - page_wire_ns()), Stage::Serve(LINK, page_wire_ns())]);
            }
        }
        stages
    }
}

/// LightSwap's way into user space (section 4.2): a map's lock, then the rest.
pub(super) fn notification(thread: usize) -> [Stage; 2] {
    let lock = thread % lightswap::MAPS.value as usize;
    let held = lightswap::MAP_LOCK.ns();
    [Stage::Serve(lock, held), Stage::Delay(lightswap::NOTIFY.ns() - held)]
}

/// What the kernel takes to tell every other CPU that a page is unmapped; section 5.3 does not say why latency grows.
fn flush_ns(threads: usize) -> Nanos {
    (lightswap::FLUSH.value * (threads - 1) as f64) as Nanos
}
