//! [`Contender`]: what is run in a turn, by the peers and the work that were asked for.

use yonder_load::Rate;

use super::{Peer, Settings, SwapTo, Work};

/// One variant to have data that is larger than local memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Variant {
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
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Contender {
    pub(super) variant: Variant,
    /// Threads that read the array; none of a server, which has as many as it has.
    pub(super) threads: Option<usize>,
    /// How fast requests are started.
    pub(super) rate: Rate,
}

impl Variant {
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

impl Contender {
    /// What it is called, with its threads where there may be several numbers of them.
    pub(super) fn label(&self) -> String {
        let name = self.variant.name();
        match self.threads.filter(|_| self.variant.is_kernel()) {
            Some(1) => format!("{name}, 1 thread"),
            Some(threads) => format!("{name}, {threads} threads"),
            None => name.to_owned(),
        }
    }

    /// The same while it runs, with its rate.
    pub(super) fn label_at_rate(&self) -> String {
        match self.rate {
            Rate::Max => self.label(),
            Rate::PerSecond(rate) => format!("{}, at {rate:.0}/s", self.label()),
        }
    }
}

impl Settings {
    /// What is run of a piece of work in a turn.
    pub(super) fn contenders(&self, work: Work) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for peer in &self.peers {
            let variants = match peer {
                Peer::Yield => vec![Variant::Yield],
                Peer::Probe => vec![Variant::Probe],
                Peer::Busy => vec![Variant::Busy],
                Peer::Run => vec![Variant::Run],
                Peer::Kv => vec![Variant::Kv],
                Peer::KvBusy => vec![Variant::KvBusy],
                Peer::Swap => self.swaps.iter().cloned().map(Variant::Swap).collect(),
                Peer::Mmap => vec![Variant::Mmap],
            };
            for variant in variants {
                let is_one = match (work, &variant) {
                    (Work::Array, Variant::Run | Variant::Kv | Variant::KvBusy) => false,
                    (Work::Array, _) => true,
                    // kv speaks memcached's protocol.
                    (Work::Memcached, Variant::Kv | Variant::KvBusy) => true,
                    (_, variant) => matches!(variant, Variant::Run | Variant::Swap(_)),
                };
                let threads = match work {
                    Work::Array if variant.is_kernel() => self.threads.iter().copied().map(Some).collect(),
                    Work::Array => vec![Some(1)],
                    Work::Memcached | Work::Redis => vec![None],
                };
                let one = |threads| Contender { variant: variant.clone(), threads, rate: Rate::Max };
                contenders.extend(threads.into_iter().filter(|_| is_one).map(one));
            }
        }
        contenders
    }
}
