//! [`Nodes`]: the nodes of a controller that a fabric uses, each with a number; and the lanes to them.
//!
//! A queue pair has a lane to each node, which takes a while to open and is never opened by the queue pair itself:
//! where a node comes into use, lanes to it are opened here for all queue pairs first, and put into their inboxes
//! ([`Inbox`]). A node that is known stays known, so that numbers stay what they are.
//!
//! Calls that are not on the fault path, such as allocation, have a lane of their own to each node.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use yonder_client::{Config, Operation};
use yonder_mapping::Mapping;
use yonder_placement::NodeId;
use yonder_protect::health::{Health, LaneSilence, State, others};
use yonder_protect::laggards::{Ended, Laggards, Writes};
use yonder_protect::pace::Pace;
use yonder_session::Protection;
use yonder_units::{Nanos, Narrow};
use yonder_wire::{ErrorCode, Kind};

use super::group::Entry;
use crate::areas::Area;
use crate::cluster::Location;
use crate::lane::{Answer, CallError, Lane, NodeAddress, NodeSession, await_aborts, call};
use crate::queue::{LaneQueue, lane_config};
use crate::{Counter, Credentials, FabricError};

/// Most nodes that one fabric uses. A number more stands for the file of `backup`.
pub(super) const NODES_MAX: u16 = 1023;
/// Operations of a lane for calls: one, and those that were given up and not yet acknowledged.
const CONTROL_OPERATIONS_MAX: usize = 32;

/// A node that was silent is left out for so long after it was last waited for.
const SILENT_FOR: Nanos = 5_000_000_000;

/// The number of a node in [`Nodes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeIndex(pub(super) u16);

/// One node.
pub(super) struct Node {
    pub(super) id: NodeId,
    urls: Vec<String>,
    session: Arc<NodeSession>,
    right: Credentials,
    pub(super) health: Health,
    /// Links to it that find it slow.
    slow_links: AtomicU64,
    /// Writes of pages there that have ended, and the time that they took together.
    writes: AtomicU64,
    write_time: AtomicU64,
    /// How long any was under way, and until when that is counted.
    write_busy: AtomicU64,
    write_busy_until: AtomicU64,
    /// Its places are moved to other nodes, because writes wait for it.
    is_left: AtomicBool,
    control: Mutex<Option<Lane>>,
    /// Areas with a place that has moved here, of which the mender asks whether it is there.
    moved_here: Mutex<VecDeque<Weak<Area<Entry>>>>,
    has_moved_here: AtomicBool,
}

/// All nodes that are known.
pub(super) struct Nodes {
    pid: u32,
    protection: Protection,
    list: RwLock<Vec<Arc<Node>>>,
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

/// A queue pair's way to a node.
pub(super) struct Link {
    pub(super) node: Arc<Node>,
    pub(super) queue: LaneQueue,
    /// Of reads there.
    pace: Pace,
    /// Those that the node was not told of yet.
    ended: Ended,
    silence: LaneSilence,
    /// How many answers had come of it when it was last waited for.
    heard: u64,
    /// To the address space there.
    pub(super) right: Credentials,
}

/// Where a queue pair finds the lanes that were opened for it.
pub(super) struct Inbox {
    frames: Arc<Mapping>,
    has_arrived: AtomicBool,
    arrived: Mutex<Vec<(NodeIndex, Box<Link>)>>,
    /// The nodes that it has or will find a lane to.
    linked: Mutex<Vec<NodeIndex>>,
}

impl Nodes {
    pub(super) fn new(pid: u32, protection: Protection) -> Self {
        Self { pid, protection, list: RwLock::default(), inboxes: Mutex::default() }
    }

    /// The number of the node that has a region; the node is known from now on. One that was told to forget the address
    /// space, and then of it anew, has another number: it knows another capability. Controllers tell a node to forget
    /// only when no region is there, so what they say is there now came later.
    pub(super) fn know(&self, location: &Location) -> Result<NodeIndex, FabricError> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = list.iter().position(|node| node.is_at(location)) {
            return Ok(NodeIndex(known.narrow_u16()));
        }
        if list.len() == usize::from(NODES_MAX) {
            let cause = format!("more than {NODES_MAX} nodes were used: start the program again");
            return Err(FabricError::System { url: location.urls.join(","), cause });
        }
        let session = NodeSession::protecting(self.protection).called(location.name.clone());
        list.push(Arc::new(Node {
            id: location.node,
            urls: location.urls.clone(),
            session: Arc::new(session),
            right: Credentials { pid: self.pid, capability: location.capability },
            health: Health::default(),
            slow_links: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            write_time: AtomicU64::new(0),
            write_busy: AtomicU64::new(0),
            write_busy_until: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
            control: Mutex::default(),
            moved_here: Mutex::default(),
            has_moved_here: AtomicBool::new(false),
        }));
        Ok(NodeIndex((list.len() - 1).narrow_u16()))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The node with this number.
    pub(super) fn get(&self, index: NodeIndex) -> Arc<Node> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner)[usize::from(index.0)])
    }

    /// Decides which of them answer, and what becomes of those that do not.
    pub(super) fn judge(&self, now: Nanos) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for node in list.iter() {
            if node.session.is_lost() {
                node.health.lose();
            }
            node.health.judge(others(list.iter().map(|node| &node.health), &node.health, now));
        }
    }

    /// Bytes that were exchanged with all of them.
    pub(super) fn counters(&self) -> Vec<Counter> {
        let mut sum: Vec<Counter> = Vec::new();
        for node in self.list.read().unwrap_or_else(PoisonError::into_inner).iter() {
            for counter in node.session.counters() {
                match sum.iter_mut().find(|known| known.name == counter.name) {
                    Some(known) => known.value += counter.value,
                    None => sum.push(counter),
                }
            }
        }
        sum
    }

    /// How many bytes that were.
    pub(super) fn bytes(&self) -> u64 {
        self.counters().iter().map(|counter| counter.value).sum()
    }

    /// An inbox for a new queue pair, which finds lanes to all nodes there that can be reached.
    pub(super) fn inbox(&self, frames: Arc<Mapping>) -> Arc<Inbox> {
        let inbox = Inbox::without_sender(frames);
        lock(&self.inboxes).push(Arc::downgrade(&inbox));
        let known = self.list.read().unwrap_or_else(PoisonError::into_inner).len();
        for index in (0..known.narrow_u16()).map(NodeIndex) {
            if !matches!(self.get(index).health.state(), State::Silent | State::Lost) {
                // One that cannot be reached now is tried again by the keeper.
                let _ = self.link(index, &inbox);
            }
        }
        inbox
    }

    /// Sees to it that all queue pairs have a lane to a node.
    pub(super) fn connect(&self, index: NodeIndex) -> Result<(), FabricError> {
        let inboxes: Vec<Arc<Inbox>> = {
            let mut inboxes = lock(&self.inboxes);
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            inboxes.iter().filter_map(Weak::upgrade).collect()
        };
        inboxes.iter().try_for_each(|inbox| self.link(index, inbox))
    }

    /// Sees to it that all queue pairs have a lane to each node that answers.
    pub(super) fn connect_all(&self) {
        for index in (0..self.len().narrow_u16()).map(NodeIndex) {
            if self.get(index).is_asked() {
                // It is tried again later.
                let _ = self.connect(index);
            }
        }
    }

    /// Those that do not answer. One that is not asked any more may be back.
    pub(super) fn silent(&self, now: Nanos) -> Vec<NodeId> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |node: &&Arc<Node>| {
            let is_asked = now.saturating_sub(node.health.last_waited()) < SILENT_FOR;
            is_asked && matches!(node.health.state(), State::Suspect | State::Silent)
        };
        list.iter().filter(is_silent).map(|node| node.id).collect()
    }

    /// Those that are left, because writes wait for them.
    pub(super) fn left(&self) -> Vec<NodeId> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|node| node.is_left()).map(|node| node.id).collect()
    }

    /// Decides which are left.
    pub(super) fn leave(&self, laggards: &mut Laggards, now: Nanos) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        laggards.saw(list.iter().map(|node| node.is_asked().then(|| node.writes())), now);
        for (number, node) in list.iter().enumerate() {
            let is_left = laggards.is_left(number, now);
            if is_left && !node.is_left.swap(is_left, Ordering::Relaxed) {
                tracing::warn!(node = node.url(), "writes wait for a node: its pages are moved to others");
            }
            node.is_left.store(is_left, Ordering::Relaxed);
        }
    }

    /// How many there are that a queue pair finds slow.
    pub(super) fn slow(&self) -> u64 {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let is_slow = |node: &&Arc<Node>| node.slow_links.load(Ordering::Relaxed) > 0 && node.is_asked();
        list.iter().filter(is_slow).count() as u64
    }

    fn link(&self, index: NodeIndex, inbox: &Inbox) -> Result<(), FabricError> {
        // Held meanwhile, so that a queue pair gets one lane to each node.
        let mut linked = lock(&inbox.linked);
        if !linked.contains(&index) {
            let node = self.get(index);
            let queue = LaneQueue::new(node.open(lane_config)?, Arc::clone(&inbox.frames));
            inbox.put(
                index,
                Box::new(Link {
                    queue,
                    pace: Pace::default(),
                    ended: Ended::default(),
                    silence: LaneSilence::default(),
                    heard: 0,
                    right: node.right,
                    node,
                }),
            );
            linked.push(index);
        }
        Ok(())
    }
}

impl Link {
    /// A poll, so long after the last one, has brought nothing that is waited for. If an answer has come all the same,
    /// such as that a region moves just now, the node is not silent. What answers nothing that was asked does not
    /// count.
    pub(super) fn wait(&mut self, since: Nanos, now: Nanos) {
        let heard = self.queue.answers_heard();
        if std::mem::replace(&mut self.heard, heard) != heard {
            self.silence.end();
            return self.node.health.hear(now);
        }
        self.silence.wait(since);
        self.node.health.wait(now);
    }

    /// It has done what it was asked, or refused.
    #[inline]
    pub(super) fn has_answered(&mut self) {
        self.heard = self.queue.answers_heard();
        self.silence.end();
    }

    /// Nothing is waited for.
    #[inline]
    pub(super) fn end_silence(&mut self) {
        self.silence.end();
    }

    /// Whether it answers in time.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        !self.silence.is_suspect() && self.node.health.state().is_up()
    }

    /// How it answers reads.
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The write of a page has ended there.
    #[inline]
    pub(super) fn wrote(&mut self, begun: Nanos, end: Nanos) {
        self.ended.wrote(begun, end);
    }

    /// Tells the node of the writes since the last time, so that queue pairs share no line of memory for each.
    pub(super) fn tell_writes(&mut self) {
        let node = &self.node;
        let told = self.ended.tell(|end| node.write_busy_until.fetch_max(end, Ordering::Relaxed));
        if told.count > 0 {
            node.writes.fetch_add(told.count, Ordering::Relaxed);
            node.write_time.fetch_add(told.time, Ordering::Relaxed);
            node.write_busy.fetch_add(told.busy, Ordering::Relaxed);
        }
    }

    /// It has answered a read so late, or was waited for for so long, where hedges wait for `hedge_after`.
    pub(super) fn took(&mut self, span: Nanos, hedge_after: Nanos) {
        let was_slow = self.pace.is_slow();
        self.pace.took(span, hedge_after);
        match (was_slow, self.pace.is_slow()) {
            (false, true) => _ = self.node.slow_links.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.node.slow_links.fetch_sub(1, Ordering::Relaxed),
            (false, false) | (true, true) => {}
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.pace.is_slow() {
            self.node.slow_links.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Node {
    /// Whether anything is asked of it.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.health.state(), State::Up | State::Suspect)
    }

    /// A place of an area has moved here.
    pub(super) fn note_moved(&self, area: &Arc<Area<Entry>>) {
        let mut moved = lock(&self.moved_here);
        let area = Arc::downgrade(area);
        if !moved.iter().any(|known| known.ptr_eq(&area)) {
            moved.push_back(area);
        }
        self.has_moved_here.store(true, Ordering::Release);
    }

    /// Whether there are areas of which a place has moved here.
    pub(super) fn has_moved_here(&self) -> bool {
        self.has_moved_here.load(Ordering::Acquire)
    }

    /// The first of them.
    pub(super) fn take_moved(&self) -> Option<Weak<Area<Entry>>> {
        let mut moved = lock(&self.moved_here);
        let area = moved.pop_front();
        self.has_moved_here.store(!moved.is_empty(), Ordering::Release);
        area
    }

    /// Whether its places are moved to other nodes.
    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    fn writes(&self) -> Writes {
        let [count, time, busy] =
            [&self.writes, &self.write_time, &self.write_busy].map(|of| of.load(Ordering::Relaxed));
        Writes { count, time, busy }
    }

    /// Whether it is that of a location, and knows the address space as it was then.
    fn is_at(&self, location: &Location) -> bool {
        self.id == location.node && self.right.capability == location.capability
    }

    /// Where it is, for messages.
    pub(super) fn url(&self) -> String {
        self.urls.join(",")
    }

    /// Opens a lane to it, at the first of its addresses that answers.
    fn open(&self, adjust: impl Fn(Config) -> Config) -> Result<Lane, FabricError> {
        let mut refused = "the node has no address".to_owned();
        for url in &self.urls {
            for address in NodeAddress::resolve(url)? {
                match Lane::open_with(&address, &self.session, &adjust) {
                    Ok(opened) => return Ok(opened.lane),
                    Err(error) => refused = error.to_string(),
                }
            }
        }
        Err(FabricError::Unreachable { url: self.url(), cause: refused })
    }

    /// Asks it for something in the address space, and waits for the answer.
    pub(super) fn call(&self, kind: Kind, address: u64, length: u64, body: &[u8]) -> Result<Answer, FailedCall> {
        let mut control = lock(&self.control);
        let lane = match &mut *control {
            Some(lane) => lane,
            none => {
                let opened = self.open(|config| Config { operations_max: CONTROL_OPERATIONS_MAX, ..config });
                none.insert(opened.map_err(FailedCall::Open)?)
            }
        };
        let Credentials { pid, capability } = self.right;
        let operation = Operation { kind, pid, capability, address, length, body, deadline: Nanos::MAX, token: 0 };
        let called = call(lane, &operation, &[]);
        if matches!(called, Ok(_) | Err(CallError::Refused(_))) {
            self.health.hear(yonder_clock::now());
        }
        called.map_err(FailedCall::Call)
    }
}

impl Node {
    /// Whether a call that was given up may still change what is there.
    pub(super) fn may_still_change(&self, address: u64, bytes: u64) -> bool {
        let control = lock(&self.control);
        control.as_ref().is_some_and(|lane| lane.may_still_change(self.right.pid, address, bytes))
    }

    /// Waits until that is not so any more.
    pub(super) fn await_aborts(&self, address: u64, bytes: u64) -> Result<(), CallError> {
        let mut control = lock(&self.control);
        control.as_mut().map_or(Ok(()), |lane| await_aborts(lane, self.right.pid, address, bytes))
    }
}

/// Why a node has not done what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum FailedCall {
    /// There is no lane to it.
    #[error(transparent)]
    Open(FabricError),
    /// It was asked.
    #[error(transparent)]
    Call(CallError),
}

impl Inbox {
    /// One that nothing arrives at.
    pub(super) fn without_sender(frames: Arc<Mapping>) -> Arc<Self> {
        let (has_arrived, arrived, linked) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Arc::new(Self { frames, has_arrived, arrived, linked })
    }

    fn put(&self, index: NodeIndex, link: Box<Link>) {
        lock(&self.arrived).push((index, link));
        self.has_arrived.store(true, Ordering::Release);
    }

    /// Hands over what has arrived. It neither waits nor frees memory: what is being put in is found the next time.
    #[inline]
    pub(super) fn take(&self, mut each: impl FnMut(NodeIndex, Box<Link>)) {
        if !self.has_arrived.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut arrived) = self.arrived.try_lock() else { return };
        self.has_arrived.store(false, Ordering::Release);
        while let Some((index, link)) = arrived.pop() {
            each(index, link);
        }
    }
}

/// Whether a refusal may mean that the memory is at another node.
pub(super) fn may_have_moved(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Moved | ErrorCode::BadAddress | ErrorCode::BadCapability)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
