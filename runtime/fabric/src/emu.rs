//! `emu://`: far memory inside the process, behind a modelled link.
//!
//! An operation completes `latency` after the link has carried its bytes; the link is one clock that all queue pairs of
//! the fabric share, so bandwidth is contended as on a real port. Failures can be injected: extra delay, error
//! completions and lost operations. For tests, demos and comparisons that others can repeat; always labelled emulated.
//!
//! URL: `emu://?latency=2.5us&gbps=100&depth=1024&size=64GiB&delay=1ms@0.01&error=0.001&drop=0.001&seed=7`, all
//! optional. [`EmuControl`] changes the failures while the fabric runs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use yonder_mapping::Mapping;
use yonder_units::{Nanos, Narrow, PAGE_BYTES, parse_bytes, parse_duration, saturating_nanos};

use crate::ranges::Ranges;
use crate::vector::{MoveBytes as _, Operation};
use crate::{
    Completion, Fabric, FabricError, Module, PageRead, PageWrite, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto,
    RemoteAddress, Status, WorkId,
};

/// What `emu://` may say, for messages.
const USAGE: &str = "type emu://?latency=2.5us&gbps=100, and if wanted depth=, size=, delay=1ms@0.01, error=0.001, drop=0.001, seed=, reads=frames";
/// Probabilities are kept in units of 2^-32.
const CERTAIN: f64 = 4_294_967_296.0;

/// Failures and their probabilities, changeable while operations run.
#[derive(Debug, Default)]
pub struct EmuControl {
    extra_delay: AtomicU64,
    delay_chance: AtomicU32,
    error_chance: AtomicU32,
    drop_chance: AtomicU32,
    dead: AtomicBool,
    loss_chance: AtomicU32,
    /// Losses since the start.
    losses: AtomicU64,
    /// Pages whose reads end as [`Status::Lost`], and how many they are.
    lost: Mutex<HashSet<u64>>,
    lost_count: AtomicUsize,
}

impl EmuControl {
    /// From now on an operation takes `extra` longer with probability `chance`.
    pub fn set_delay(&self, extra: Nanos, chance: f64) {
        self.extra_delay.store(extra, Ordering::Relaxed);
        self.delay_chance.store(scaled(chance), Ordering::Relaxed);
    }

    /// From now on an operation fails with probability `chance`; it has no effect then.
    pub fn set_errors(&self, chance: f64) {
        self.error_chance.store(scaled(chance), Ordering::Relaxed);
    }

    /// From now on an operation is lost with probability `chance`: it has no effect and never completes.
    pub fn set_drops(&self, chance: f64) {
        self.drop_chance.store(scaled(chance), Ordering::Relaxed);
    }

    /// The node dies (every operation completes [`Status::Disconnected`]) or comes back with its memory.
    pub fn set_dead(&self, dead: bool) {
        self.dead.store(dead, Ordering::Release);
    }

    /// From now on a read finds with probability `chance` that the node has lost the page.
    pub fn set_losses(&self, chance: f64) {
        self.loss_chance.store(scaled(chance), Ordering::Relaxed);
    }

    /// Pages that the node has lost since the start.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// The node loses what it has of the page at `address`: reads end as [`Status::Lost`] until it is written again.
    pub fn lose(&self, address: RemoteAddress) {
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.change_lost(|lost| _ = lost.insert(page_of(address)));
    }

    fn is_lost(&self, address: RemoteAddress) -> bool {
        self.lost_count.load(Ordering::Acquire) > 0 && self.lost().contains(&page_of(address))
    }

    fn written(&self, address: RemoteAddress) {
        if self.lost_count.load(Ordering::Acquire) > 0 {
            self.change_lost(|lost| _ = lost.remove(&page_of(address)));
        }
    }

    fn change_lost(&self, change: impl FnOnce(&mut HashSet<u64>)) {
        let mut lost = self.lost();
        change(&mut lost);
        self.lost_count.store(lost.len(), Ordering::Release);
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.lost.lock().expect("no code panics while it holds this lock")
    }
}

fn page_of(address: RemoteAddress) -> u64 {
    address.0 / PAGE_BYTES as u64
}

fn scaled(chance: f64) -> u32 {
    whole((chance.clamp(0.0, 1.0) * CERTAIN).min(CERTAIN - 1.0)).narrow_u32()
}

/// The whole part of a number, or the nearest that there is.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the part is dropped, and ends saturate")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// The link that every queue pair shares, and the memory behind it.
#[derive(Debug)]
struct Link {
    memory: Arc<Mapping>,
    latency: Nanos,
    /// Time the link needs for one page.
    page_time: Nanos,
    /// When the link has carried everything posted so far.
    busy_until: AtomicU64,
    control: Arc<EmuControl>,
}

impl Link {
    /// Puts `bytes` bytes on the link and returns when they have been carried and travelled.
    fn carry(&self, bytes: usize, now: Nanos) -> Nanos {
        if self.page_time == 0 {
            return now + self.latency;
        }
        let time = self.page_time * bytes as u64 / PAGE_BYTES as u64;
        let mut free = self.busy_until.load(Ordering::Relaxed);
        loop {
            let carried = free.max(now) + time;
            match self.busy_until.compare_exchange_weak(free, carried, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return carried + self.latency,
                Err(current) => free = current,
            }
        }
    }
}

/// Where the bytes of a read arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// Pages are installed from far memory itself.
    Mapped,
    /// The fabric copies them into frames first, as one does that cannot map far memory.
    Frames,
}

/// Far memory inside the process.
#[derive(Debug)]
pub struct EmuFabric {
    url: String,
    link: Arc<Link>,
    depth: usize,
    reads: Reads,
    seeds: AtomicU64,
    ranges: Mutex<Ranges>,
}

impl EmuFabric {
    /// Opens the fabric that `url` describes, for callers that want its [`EmuFabric::control`].
    pub fn open(url: &str) -> Result<Self, FabricError> {
        let rest =
            url.strip_prefix("emu://").ok_or_else(|| FabricError::BadUrl(format!("{url} is not emulated: {USAGE}")))?;
        Self::from_query(url, &crate::url::query(url, rest)?)
    }

    /// Opens the fabric that the query of `url` describes.
    pub fn from_query(url: &str, pairs: &[(String, String)]) -> Result<Self, FabricError> {
        let bad = |what: String| FabricError::BadUrl(format!("{url}: {what}: {USAGE}"));
        let (mut latency, mut gbps, mut depth, mut size, mut seed, mut reads) =
            (2_500, 100.0, QUEUE_DEPTH_MAX, 1u64 << 36, 0x5eed, Reads::Mapped);
        let control = EmuControl::default();
        let chance = |key: &str, text: &str| {
            let value = text.parse::<f64>().ok().filter(|value| (0.0..=1.0).contains(value));
            value.ok_or_else(|| bad(format!("{key}={text} is not a probability between 0 and 1")))
        };
        for (key, value) in pairs {
            let time = |text: &str| parse_duration(text).map(saturating_nanos).map_err(|e| bad(e.to_string()));
            let number = |text: &str| text.parse::<f64>().map_err(|_| bad(format!("{key}={text} is not a number")));
            match key.as_str() {
                "latency" => latency = time(value)?,
                "gbps" => gbps = number(value)?,
                "depth" => depth = whole(number(value)?).narrow_usize(),
                "size" => size = parse_bytes(value).map_err(|error| bad(error.to_string()))?,
                "reads" => {
                    reads = match value.as_str() {
                        "mapped" => Reads::Mapped,
                        "frames" => Reads::Frames,
                        _ => return Err(bad(format!("reads={value} is neither mapped nor frames"))),
                    }
                }
                "seed" => seed = whole(number(value)?),
                "error" => control.set_errors(chance(key, value)?),
                "drop" => control.set_drops(chance(key, value)?),
                "delay" => {
                    let (extra, share) =
                        value.split_once('@').ok_or_else(|| bad(format!("delay={value} has no @probability")))?;
                    control.set_delay(time(extra)?, chance(key, share)?);
                }
                _ => return Err(bad(format!("'{key}' is not known"))),
            }
        }
        if depth == 0 || depth > QUEUE_DEPTH_MAX {
            return Err(bad(format!("depth={depth} is not between 1 and {QUEUE_DEPTH_MAX}")));
        }
        if gbps < 0.0 {
            return Err(bad(format!("gbps={gbps} is negative (0 means without limit)")));
        }
        let page_time = if gbps == 0.0 { 0 } else { whole(PAGE_BYTES as f64 * 8.0 / gbps) };
        Self::new(url, Model { latency, page_time, depth, size, seed, reads }, control)
    }

    fn new(url: &str, model: Model, control: EmuControl) -> Result<Self, FabricError> {
        let bytes = (model.size / PAGE_BYTES as u64).max(1) * PAGE_BYTES as u64;
        let memory = Mapping::huge(bytes.narrow_usize())
            .map_err(|error| FabricError::System { url: url.to_owned(), cause: error.to_string() })?;
        let link = Link {
            memory: Arc::new(memory),
            latency: model.latency,
            page_time: model.page_time,
            busy_until: AtomicU64::new(0),
            control: Arc::new(control),
        };
        Ok(Self {
            url: url.to_owned(),
            link: Arc::new(link),
            depth: model.depth,
            reads: model.reads,
            seeds: AtomicU64::new(model.seed),
            ranges: Mutex::new(Ranges::new(bytes)),
        })
    }

    /// The failures of this fabric, to change them while it runs.
    #[must_use]
    pub fn control(&self) -> Arc<EmuControl> {
        Arc::clone(&self.link.control)
    }
}

struct Model {
    latency: Nanos,
    page_time: Nanos,
    depth: usize,
    size: u64,
    seed: u64,
    reads: Reads,
}

impl EmuFabric {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().expect("no code panics while it holds this lock")
    }
}

impl Fabric for EmuFabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let seed = self.seeds.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        Ok(Box::new(EmuQueuePair {
            link: Arc::clone(&self.link),
            frames,
            due: BinaryHeap::with_capacity(self.depth),
            lost: Vec::with_capacity(self.depth),
            depth: self.depth,
            random: seed | 1,
        }))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let start = self.ranges().allocate(bytes);
        start.map(RemoteAddress).ok_or_else(|| FabricError::OutOfMemory { url: self.url.clone(), bytes })
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        // Held until the content is dropped, so that nobody else has been given it before.
        let mut ranges = self.ranges();
        let bytes = ranges.release(start.0);
        let cause = || format!("the address {} is not in memory allocated to this client", start.0);
        let bytes = bytes.ok_or_else(|| FabricError::System { url: self.url.clone(), cause: cause() })?;
        self.discard(start, bytes)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        let result = self.link.memory.discard(start.0, bytes.narrow_usize());
        result.map_err(|error| FabricError::System { url: self.url.clone(), cause: error.to_string() })
    }

    fn is_inherited(&self) -> bool {
        self.mapped().is_some()
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        (self.reads == Reads::Mapped).then_some(&self.link.memory)
    }
}

/// An operation, ordered by when it completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Due {
    at: Nanos,
    id: WorkId,
    operation: Operation,
    fails: bool,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.id.0).cmp(&(other.at, other.id.0))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct EmuQueuePair {
    link: Arc<Link>,
    frames: Arc<Mapping>,
    /// Operations that will complete, the next on top.
    due: BinaryHeap<Reverse<Due>>,
    /// Operations that were lost: they hold a place until they are cancelled.
    lost: Vec<WorkId>,
    depth: usize,
    random: u64,
}

impl EmuQueuePair {
    fn post(&mut self, id: WorkId, operation: Operation, now: Nanos) -> Result<(), PostError> {
        if self.outstanding() >= self.depth {
            return Err(PostError::Full);
        }
        let (Operation::Read(PageRead { vector, .. }) | Operation::Write(PageWrite { vector, .. })) = operation;
        let mut at = self.link.carry(vector.bytes(), now);
        if self.happens(self.link.control.drop_chance.load(Ordering::Relaxed)) {
            self.lost.push(id);
            return Ok(());
        }
        if self.happens(self.link.control.delay_chance.load(Ordering::Relaxed)) {
            at += self.link.control.extra_delay.load(Ordering::Relaxed);
        }
        if let Operation::Read(PageRead { from, .. }) = operation
            && self.happens(self.link.control.loss_chance.load(Ordering::Relaxed))
        {
            self.link.control.lose(from);
        }
        let fails = self.happens(self.link.control.error_chance.load(Ordering::Relaxed));
        self.due.push(Reverse(Due { at, id, operation, fails }));
        Ok(())
    }

    /// Whether an event of probability `chance` (in 2^-32) happens now.
    fn happens(&mut self, chance: u32) -> bool {
        if chance == 0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 32) as u32) < chance
    }

    fn execute(&self, due: &Due) -> Status {
        if due.fails {
            return Status::Failed;
        }
        match due.operation {
            Operation::Read(PageRead { from, .. }) if self.link.control.is_lost(from) => return Status::Lost,
            Operation::Read(PageRead { into: ReadInto::Mapped, .. }) => {}
            Operation::Read(PageRead { from, into: ReadInto::Frame(frame), vector }) => {
                vector.copy(&self.frames, frame.offset(), &self.link.memory, from.0);
            }
            Operation::Write(PageWrite { to, from, vector }) => {
                vector.copy(&self.link.memory, to.0, &self.frames, from.offset());
                self.link.control.written(to);
            }
        }
        Status::Done
    }
}

impl QueuePair for EmuQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.post(id, Operation::Read(read), now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        self.post(id, Operation::Write(write), now)
    }

    #[inline]
    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        if self.due.is_empty() && self.lost.is_empty() {
            return;
        }
        let dead = self.link.control.dead.load(Ordering::Acquire);
        while dead && !self.lost.is_empty() && completions.len() < completions.capacity() {
            let id = self.lost.pop().expect("checked");
            completions.push(Completion { id, status: Status::Disconnected });
        }
        while completions.len() < completions.capacity() {
            match self.due.peek() {
                Some(Reverse(due)) if due.at <= now || dead => {}
                _ => return,
            }
            let Some(Reverse(due)) = self.due.pop() else { return };
            let status = if dead { Status::Disconnected } else { self.execute(&due) };
            completions.push(Completion { id: due.id, status });
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.lost.retain(|lost| *lost != id);
        self.due.retain(|due| due.0.id != id);
    }

    fn may_still_write(&self, _start: RemoteAddress, _bytes: u64) -> bool {
        // What is cancelled is forgotten.
        false
    }

    fn outstanding(&self) -> usize {
        self.due.len() + self.lost.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

#[cfg(test)]
mod tests;
