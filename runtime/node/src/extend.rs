//! The extend path's thread: runs offloads, one call after the other, in turns of time of each sender.
//!
//! Every offload has an address space of its own, which it gets and fills through the slow path. Bytes it reaches
//! directly, as data threads do: each access is a visit, so that it never holds up freed memory while it waits for the
//! slow path.
//!
//! The slow path tells it which address spaces there are, so that an offload keeps nothing for one that has ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use crossbeam_queue::SegQueue;
use yonder_board::{CallEffect, ExtendPath, Handled, Pid};
use yonder_offload::{Call, Effect, Offload, OffloadMemory, Space};
use yonder_wire::{AllocateRequest, AtomicOperation, Backing, ErrorCode, Header, MESSAGE_BYTES_MAX, Permission};

use crate::Shared;
use crate::forward::SlowPathQueue;
use crate::gate::Gate;
use crate::serve::code_of;

/// Longest time between two looks at the order to stop.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often the slow path is asked again when it is busy.
const BUSY_RETRIES_MAX: u32 = 1000;

/// What the extend path's thread works from.
#[derive(Debug)]
pub(crate) struct Extension {
    /// Calls.
    pub(crate) queue: SlowPathQueue,
    /// Address spaces that have begun or ended. An address space is here before its owner knows it.
    spaces: SegQueue<Change>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Created(Pid),
    Ended(Pid),
}

impl Extension {
    pub(crate) fn new() -> Self {
        Self { queue: SlowPathQueue::new(), spaces: SegQueue::new() }
    }

    /// Notes that there is an address space.
    pub(crate) fn created(&self, pid: Pid) {
        self.spaces.push(Change::Created(pid));
    }

    /// Notes that an address space has ended.
    pub(crate) fn ended(&self, pid: Pid) {
        self.spaces.push(Change::Ended(pid));
        self.queue.wake();
    }
}

/// One offload and its address space.
struct Hosted {
    offload: Box<dyn Offload>,
    own: Pid,
}

/// The thread's state.
struct Host {
    shared: Arc<Shared>,
    path: ExtendPath,
    gate: Gate,
    /// Number of the thread among those that visit the page table.
    visitor: usize,
    offloads: HashMap<u64, Hosted>,
    /// Address spaces that there are, those of the offloads among them.
    spaces: HashSet<Pid>,
}

/// The body of the thread `visitor`, whose gate it is: serves until the node stops. `ready` is told when the offloads
/// have their address spaces.
pub(crate) fn serve(
    shared: Arc<Shared>,
    (visitor, gate): (usize, Gate),
    offloads: Vec<Box<dyn Offload>>,
    ready: &SyncSender<()>,
) {
    shared.extend.queue.serve_on_this_thread();
    let path = shared.board.extend_path();
    let mut host = Host { path, gate, visitor, offloads: HashMap::new(), spaces: HashSet::new(), shared };
    for offload in offloads {
        let created = host.shared.on_slow_path(|slow, _| slow.create_space(None, 0, yonder_clock::now()));
        match created.unwrap_or(Err(ErrorCode::System)) {
            Ok(own) => {
                host.offloads.insert(offload.number(), Hosted { offload, own });
            }
            // Only a node that stops refuses it.
            Err(code) => tracing::error!("the offload {} is not served: {code}", offload.name()),
        }
    }
    // A node that no longer waits has failed to start.
    let _ = ready.send(());
    let (mut reply, mut answer) = (vec![0; MESSAGE_BYTES_MAX].into_boxed_slice(), Vec::new());
    while !host.shared.stop.load(Ordering::Acquire) {
        host.serve_waiting(&mut reply, &mut answer);
        thread::park_timeout(PAUSE_MAX);
    }
}

impl Host {
    /// Executes what is in the queue.
    fn serve_waiting(&mut self, reply: &mut [u8], answer: &mut Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        self.note_changes();
        while let Some(request) = shared.extend.queue.take() {
            self.note_changes();
            let message = request.message.get();
            let now = yonder_clock::now();
            let bytes_max = request.answer_to.bytes_max();
            let spaces = &self.spaces;
            let handled = match self.path.admit(&message, now, |pid| spaces.contains(&pid), &mut reply[..bytes_max]) {
                Handled::Slow => {
                    answer.clear();
                    let (effect, result) = self.call(&message.header, message.payload, answer);
                    let result = result.map(|()| answer.as_slice());
                    self.path.answer(&message, yonder_clock::now(), effect, result, &mut reply[..bytes_max])
                }
                handled => handled,
            };
            let (party, source) = (request.party, request.answer_to.source());
            let sent = if let Handled::Reply(bytes) = handled {
                shared.counters.answered(&message.header, code_of(&reply[..]));
                request.answer_to.send(&mut self.gate, &mut reply[..], bytes)
            } else {
                0
            };
            shared.charge_work(&shared.extend.queue, party, source, now, sent);
        }
    }

    fn call(&mut self, header: &Header, arguments: &[u8], answer: &mut Vec<u8>) -> (CallEffect, Result<(), ErrorCode>) {
        let Some(hosted) = self.offloads.get_mut(&header.address) else {
            return (CallEffect::Repeatable, Err(ErrorCode::NoOffload));
        };
        let caller = Pid::new(header.pid).expect("the right to the address space was checked");
        let effect = match hosted.offload.effect(arguments) {
            Effect::Repeatable => CallEffect::Repeatable,
            Effect::Once => CallEffect::Once,
        };
        let mut memory =
            HostMemory { shared: &self.shared, visitor: self.visitor, own: hosted.own, caller: Some(caller) };
        (effect, hosted.offload.call(Call { pid: header.pid, arguments, memory: &mut memory, answer }))
    }

    fn note_changes(&mut self) {
        while let Some(change) = self.shared.extend.spaces.pop() {
            match change {
                Change::Created(pid) => {
                    self.spaces.insert(pid);
                }
                Change::Ended(pid) => self.space_ended(pid),
            }
        }
    }

    fn space_ended(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
        for hosted in self.offloads.values_mut() {
            let mut memory = HostMemory { shared: &self.shared, visitor: self.visitor, own: hosted.own, caller: None };
            hosted.offload.space_ended(pid.get(), &mut memory);
        }
    }
}

/// Memory as an offload sees it during a call.
struct HostMemory<'a> {
    shared: &'a Shared,
    visitor: usize,
    own: Pid,
    /// Whose call it is; `None` when a space has ended, and there is no caller.
    caller: Option<Pid>,
}

impl HostMemory<'_> {
    fn pid(&self, space: Space) -> Result<Pid, ErrorCode> {
        match space {
            Space::Own => Ok(self.own),
            Space::Caller => self.caller.ok_or(ErrorCode::BadCapability),
        }
    }
}

impl OffloadMemory for HostMemory<'_> {
    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        let pid = self.pid(space)?;
        if into.is_empty() {
            return Ok(());
        }
        let _visit = self.shared.quiet.visit(self.visitor);
        self.shared.board.access(&self.shared.memory, &self.shared.memory).read(pid, address, into)
    }

    fn write(&mut self, space: Space, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        let pid = self.pid(space)?;
        if from.is_empty() {
            return Ok(());
        }
        self.until_not_busy(|memory| {
            let _visit = memory.shared.quiet.visit(memory.visitor);
            memory.shared.board.access(&memory.shared.memory, &memory.shared.memory).write(pid, address, from)
        })
    }

    fn atomic(&mut self, space: Space, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        let pid = self.pid(space)?;
        self.until_not_busy(|memory| {
            let _visit = memory.shared.quiet.visit(memory.visitor);
            memory.shared.board.access(&memory.shared.memory, &memory.shared.memory).atomic(pid, address, operation)
        })
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, ErrorCode> {
        let request =
            AllocateRequest { bytes, permission: Permission::ReadWrite, backing: Backing::OnDemand, from: 0, to: 0 };
        let own = self.own;
        let allocated = self.shared.on_slow_path(move |slow, shell| slow.allocate(own, &request, shell));
        allocated.unwrap_or(Err(ErrorCode::System)).map(|(address, _)| address)
    }

    fn free(&mut self, address: u64) -> Result<(), ErrorCode> {
        let own = self.own;
        self.shared.on_slow_path(move |slow, _| slow.free(own, address)).unwrap_or(Err(ErrorCode::System))
    }
}

impl HostMemory<'_> {
    /// Repeats a first write while the slow path is filling the ring of zeroed pages.
    fn until_not_busy<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        for _ in 0..BUSY_RETRIES_MAX {
            match attempt(self) {
                Err(ErrorCode::Busy) if !self.shared.stop.load(Ordering::Relaxed) => {
                    self.shared.slow.wake();
                    thread::yield_now();
                }
                result => return result,
            }
        }
        Err(ErrorCode::Busy)
    }
}
