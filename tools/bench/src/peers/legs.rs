//! [`Leg`]: what is run in a turn, by the peers and the work that were asked for.

use super::{Peer, Settings, SwapTo, Work};

/// One way to have data that is larger than local memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Yield,
    Probe,
    Busy,
    Run,
    Kv,
    KvBusy,
    Swap(SwapTo),
    Mmap,
}

/// What is run in a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leg {
    pub(super) way: Way,
    /// Threads that read the array; none of a server, which has as many as it has.
    pub(super) threads: Option<usize>,
}

impl Way {
    /// Its name, as results have it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Yield => "yield",
            Self::Probe => "probe",
            Self::Busy => "busy",
            Self::Run => "run",
            Self::Kv => "kv",
            Self::KvBusy => "kv-busy",
            Self::Swap(SwapTo::Zram) => "swap-zram",
            Self::Swap(SwapTo::File(_)) => "swap-file",
            Self::Mmap => "mmap",
        }
    }

    /// Whether the kernel pages.
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, Self::Swap(_) | Self::Mmap)
    }

    /// Whether others are compared with it: Yonder as it is meant to be used.
    pub(super) fn is_measure(&self) -> bool {
        matches!(self, Self::Yield | Self::Run)
    }
}

impl Leg {
    /// What it is called, with its threads where there may be several numbers of them.
    pub(super) fn label(&self) -> String {
        let name = self.way.name();
        match self.threads.filter(|_| self.way.is_kernel()) {
            Some(1) => format!("{name}, 1 thread"),
            Some(threads) => format!("{name}, {threads} threads"),
            None => name.to_owned(),
        }
    }
}

impl Settings {
    /// What is run of a piece of work in a turn.
    pub(super) fn legs(&self, work: Work) -> Vec<Leg> {
        let mut legs = Vec::new();
        for peer in &self.peers {
            let ways = match peer {
                Peer::Yield => vec![Way::Yield],
                Peer::Probe => vec![Way::Probe],
                Peer::Busy => vec![Way::Busy],
                Peer::Run => vec![Way::Run],
                Peer::Kv => vec![Way::Kv],
                Peer::KvBusy => vec![Way::KvBusy],
                Peer::Swap => self.swaps.iter().cloned().map(Way::Swap).collect(),
                Peer::Mmap => vec![Way::Mmap],
            };
            for way in ways {
                match (work, &way) {
                    (Work::Array, Way::Run | Way::Kv | Way::KvBusy) => {}
                    (Work::Array, way) if way.is_kernel() => {
                        legs.extend(
                            self.threads.iter().map(|threads| Leg { way: way.clone(), threads: Some(*threads) }),
                        );
                    }
                    (Work::Array, _) => legs.push(Leg { way, threads: Some(1) }),
                    (_, Way::Run | Way::Swap(_)) => legs.push(Leg { way, threads: None }),
                    // It speaks memcached's protocol.
                    (Work::Memcached, Way::Kv | Way::KvBusy) => legs.push(Leg { way, threads: None }),
                    (_, Way::Yield | Way::Probe | Way::Busy | Way::Kv | Way::KvBusy | Way::Mmap) => {}
                }
            }
        }
        legs
    }
}
