//! The two sides of a server: where requests come from and what handles them.

use std::sync::Arc;
use std::time::Duration;

use yonder_units::Nanos;

/// Handles requests. Runs on a unithread of a worker; many run interleaved on one worker thread.
pub trait Handler: Send + Sync + 'static {
    /// What arrives. It travels in the unithread's buffer: keep it within a KiB and boxes beyond.
    type Request: Send + 'static;
    /// What goes back.
    type Reply: Send + 'static;

    /// Handles one request. Accesses to far memory may yield; a `std` lock must not be held across them.
    fn handle(&self, request: Self::Request) -> Self::Reply;

    /// A number that requests for the same data share, and hardly any others: by it the history of a request is known
    /// when faults are predicted. `None` has no history and is taken for a request that will not fault. Called on the
    /// dispatcher's thread, so it must not touch far memory.
    fn key(&self, request: &Self::Request) -> Option<u64> {
        let _ = request;
        None
    }
}

/// Whether a poll did anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// There may be more at once.
    Busy,
    /// Nothing was there.
    Idle,
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<R> {
    /// The handler returned.
    Reply(R),
    /// The handler panicked; the worker and all other requests go on.
    Panicked,
}

/// Where a request's time went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Timing {
    /// When the frontend admitted the request.
    pub admitted: Nanos,
    /// From admission to its first instruction.
    pub queued_ns: Nanos,
    /// On the CPU.
    pub running_ns: Nanos,
    /// Parked: for pages, for locks, or preempted.
    pub waiting_ns: Nanos,
    /// Page faults that needed a fetch.
    pub major_faults: u32,
    /// Page faults that needed none of their own.
    pub minor_faults: u32,
}

/// A finished request.
#[derive(Debug)]
pub struct Done<R> {
    /// How it ended.
    pub outcome: Outcome<R>,
    /// Where its time went.
    pub timing: Timing,
}

/// The dispatcher's side of a server: owns sockets, or generates load.
pub trait Frontend {
    /// What it admits.
    type Request;
    /// What it gets back.
    type Reply;

    /// Collects new requests and calls `admit` for each, at most `room` times.
    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Self::Request)) -> Activity;

    /// A request is over: its reply is to be sent.
    fn complete(&mut self, now: Nanos, done: Done<Self::Reply>);

    /// There is nothing to do: blocks until there may be, until the waker is called, or for `timeout`.
    fn wait(&mut self, timeout: Duration);

    /// What ends `wait` from another thread.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;

    /// Whether no request will come any more. The server ends when this holds and every request is over.
    fn is_finished(&self) -> bool;
}
