//! What a run is made of: its setup, its events, and what requests, workers and dispatchers are at.

use std::collections::VecDeque;

use yonder_dispatch::{Chooser, DispatchPolicy, Order};
use yonder_units::{Nanos, PageIndex};

use super::measure::Spent;
use super::system::Profile;
use super::workload::Workload;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// What the system does and costs.
    pub(crate) profile: Profile,
    /// What requests do.
    pub(crate) workload: Workload,
    /// Share of the pages that local memory holds, in percent.
    pub(crate) local_percent: f64,
    /// Arrivals a second, in all.
    pub(crate) rate: f64,
    /// Requests that arrive, of which the first fifth warms up.
    pub(crate) requests: u64,
    /// Which worker gets a request.
    pub(crate) policy: DispatchPolicy,
    /// Whether what is ready goes before what is new.
    pub(crate) order: Order,
    /// Workers; each dispatcher has as many of them as the others, but for one.
    pub(crate) workers: usize,
    /// Dispatchers.
    pub(crate) dispatchers: usize,
    /// Reclaimers.
    pub(crate) reclaimers: usize,
    /// Memory nodes, each with a link; pages are spread over them.
    pub(crate) nodes: usize,
    /// Of all that is random.
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The next request is at the node.
    Arrive,
    /// A dispatcher has done what it was at.
    Dispatched(u16),
    /// A worker has what a dispatcher gave it.
    Given { worker: u16, request: u32 },
    /// A dispatcher sees that a worker has room.
    Room(u16),
    /// A worker has come to the end of what it was at.
    Ran(u16),
    /// A page is at the node's end of the link.
    Sent { worker: u16, page: u32, request: u32 },
    /// A page is in local memory.
    Came { worker: u16, page: u32, request: u32 },
    /// A worker that waits for a request's page, since then, gives up waiting.
    SpunOut { worker: u16, request: u32, since: Nanos },
    /// The reclaimer has evicted some pages, or been woken.
    Reclaim,
    /// The kernel takes a worker's CPU.
    Stall(u16),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    pub(super) arrived: Nanos,
    /// The workers' busy-waiting up to its arrival, of all, in worker-nanoseconds.
    pub(super) busy_before: Nanos,
    pub(super) spent: Spent,
    /// Touches that are left.
    pub(super) touches: u32,
    /// What it touches next, once that is drawn.
    pub(super) page: Option<PageIndex>,
    /// When it last began to wait for a page, or to be ready.
    pub(super) since: Nanos,
    /// Running time since it was last put on a CPU.
    pub(super) slice: Nanos,
    pub(super) started: bool,
    /// The worker that it last ran on: a unithread never leaves its worker.
    pub(super) worker: u16,
}

/// What a worker is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// Nothing: it looks for work.
    Looking,
    /// It runs a request up to a page that is not here.
    ToFault(u32),
    /// It runs a request up to a checkpoint at which that goes back to the queue.
    ToCheckpoint(u32),
    /// It runs a request to its end.
    ToEnd(u32),
    /// It busy-waits for the request's page, or for room in the queue pair or in local memory.
    Waiting(u32),
    /// It leaves a request whose page has not come.
    Leaving,
    /// It busy-waits for the transmission of a reply.
    Sending,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) doing: Doing,
    /// Counts the ends that were put off by a stall.
    pub(super) put_off: Nanos,
    /// It has told its dispatcher that it has room, and has not been given a request since.
    pub(super) told: bool,
    /// Its dispatcher has seen that.
    pub(super) room: bool,
    /// What it was given, and when.
    pub(super) given: Option<(u32, Nanos)>,
    pub(super) ready: VecDeque<u32>,
    /// Of those that are ready, how many were at the last poll.
    pub(super) polled: usize,
    /// Since that poll no new request has begun.
    pub(super) new_is_due: bool,
    pub(super) outstanding: u32,
}

#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) queue: VecDeque<u32>,
    pub(super) at_work: bool,
    /// Transmissions to be reaped.
    pub(super) sent: u32,
    pub(super) chooser: Chooser,
    pub(super) first_worker: usize,
    pub(super) workers: usize,
}
