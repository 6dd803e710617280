//! The items of the server: [`Store::execute`] serves one command, from any thread or unithread.
//!
//! Far memory, reached through [`ItemMemory`], holds slots with header, key and value (`item`), and the chains through
//! the headers. Local memory holds bucket heads with tags (`bucket`), four bytes per slot for eviction and expiry
//! (`slots`), and the slab allocator (`arena` with `shape`, `runs` and `rebalance`). Commands are in `read`, `write`
//! and `meta`, making room is in `space`, and what becomes of items that are lost in `loss`.
//!
//! Invariants: an item in a chain is complete, unless a page of it was lost; a failed far access leaves every chain as
//! it was; a slot is free, owned by one request, linked once, or retired. Lock order is in `bucket`. Time comes in as a
//! parameter: seconds since 1970.

mod arena;
mod bucket;
mod item;
mod loss;
mod meta;
mod read;
mod rebalance;
mod shape;
mod slots;
mod space;
mod stats;
mod write;

#[cfg(test)]
mod arena_tests;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::arena::Arena;
use self::bucket::Table;
pub(crate) use self::item::VALUE_BYTES_LIMIT;
use self::item::{FlushEpoch, HEADER_BYTES, Header};
use self::shape::{Class, UNIT_BYTES, classes, item_bytes_max};
use self::slots::SlotTable;
use self::space::CrawlCursor;
use self::stats::{Counters, Stat};
use crate::memory::ItemMemory;
use crate::protocol::{Answer, Command, Exptime, reply};

/// Bytes of far memory per bucket when the number of items is not known.
const BYTES_PER_BUCKET: u64 = 256;

/// How a store is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Largest value, in bytes.
    pub value_bytes_max: usize,
    /// How many items are expected; fixes the number of hash buckets. None: one for every 256 bytes of memory.
    pub items: Option<u64>,
    /// Start of the hash; random in a server, so that clients cannot choose keys that collide.
    pub hash_seed: u64,
    /// Whether it is known when items were accessed, which takes four bytes of local memory for each slot.
    pub access_times: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { value_bytes_max: 1 << 20, items: None, hash_seed: 0, access_times: false }
    }
}

/// Why a store cannot be laid out. The text says what to type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The memory cannot hold two of the largest items.
    #[error("{bytes} bytes of memory are too few for values of {value_bytes_max} bytes: type --memory {least} or more")]
    MemoryTooSmall {
        /// What was given.
        bytes: u64,
        /// As configured.
        value_bytes_max: usize,
        /// What would do.
        least: u64,
    },
    /// The item size limit is beyond what item headers can describe.
    #[error("values of {value_bytes_max} bytes are too large: type --value-max {VALUE_BYTES_LIMIT} or less")]
    ValuesTooLarge {
        /// As configured.
        value_bytes_max: usize,
    },
}

/// The outcome of [`Store::execute`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Execution {
    /// What to send. Empty if the client wants no answer.
    pub reply: Vec<u8>,
    /// What remains to be executed, and answered behind `reply`, before the client's next command: a `get` whose reply
    /// would grow too large comes in parts.
    pub rest: Option<Command>,
}

/// Memory for what one command needs while it is executed: its reply, and values that it changes.
pub trait Room {
    /// Asks for so many bytes in all. Returns whether they may be allocated.
    fn grow_to(&mut self, bytes: usize) -> bool;
}

/// As much as is asked for.
struct Unbounded;

impl Room for Unbounded {
    fn grow_to(&mut self, _bytes: usize) -> bool {
        true
    }
}

/// A cache of items in far memory.
pub struct Store<M: ItemMemory> {
    memory: M,
    config: StoreConfig,
    classes: Vec<Class>,
    table: Table,
    slots: Arc<SlotTable>,
    arena: Mutex<Arena>,
    /// Held by the request that empties a slab, across far accesses; others wait for it when there is nothing else to
    /// free. Taken before a bucket, never while holding one.
    draining: yonder::sync::Mutex<()>,
    counters: Counters,
    cas_last: AtomicU64,
    flush: Flush,
    crawl_cursor: Mutex<CrawlCursor>,
}

/// What `flush_all` has invalidated, and will.
#[derive(Default)]
struct Flush {
    /// How many there were. Items of an earlier one are gone.
    flushes: AtomicU32,
    /// When the next flush takes place, in seconds since 1970; 0 is never.
    due_s: AtomicU32,
}

/// Why a stored item is not there any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Expired,
    Flushed,
}

/// Why a command was not done.
#[derive(Debug)]
enum Failure<E> {
    /// Far memory failed.
    Far(E),
    /// Nothing could be evicted, or the value could not be received.
    OutOfMemory,
    /// There is no room for the reply.
    NoRoomForReply,
    /// No slot is that large.
    TooLarge,
}

/// What a command answers: its bytes, or why it was not done.
type Answered<M> = Result<Vec<u8>, Failure<<M as ItemMemory>::Error>>;

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::Far(error)
    }
}

impl<M: ItemMemory> Store<M> {
    /// An empty store over the whole of `memory`.
    ///
    /// # Errors
    /// If the memory is too small for the item size, or the item size is out of range.
    pub fn new(memory: M, config: StoreConfig) -> Result<Self, StoreError> {
        let value_bytes_max = config.value_bytes_max;
        if value_bytes_max > VALUE_BYTES_LIMIT {
            return Err(StoreError::ValuesTooLarge { value_bytes_max });
        }
        let least = 2 * item_bytes_max(value_bytes_max).next_multiple_of(UNIT_BYTES) as u64;
        let bytes = memory.bytes();
        if bytes < least {
            return Err(StoreError::MemoryTooSmall { bytes, value_bytes_max, least });
        }
        let units = bytes / UNIT_BYTES as u64;
        let classes = classes(item_bytes_max(value_bytes_max), units as usize);
        let slots = Arc::new(SlotTable::new(units as u32, config.access_times));
        Ok(Self {
            table: Table::new(config.items.unwrap_or(bytes / BYTES_PER_BUCKET), config.hash_seed),
            arena: Mutex::new(Arena::new(classes.clone(), Arc::clone(&slots))),
            draining: yonder::sync::Mutex::new(()),
            counters: Counters::default(),
            cas_last: AtomicU64::new(0),
            flush: Flush::default(),
            crawl_cursor: Mutex::default(),
            memory,
            config,
            classes,
            slots,
        })
    }

    /// Largest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.config.value_bytes_max
    }

    /// A number for `key` that hardly any other key has. Touches nothing.
    pub fn key_number(&self, key: &[u8]) -> u64 {
        self.table.hash(key).number()
    }

    /// Serves one command at `now_s`. Never fails as a call: what goes wrong is in the reply.
    pub fn execute(&self, command: Command, now_s: u32) -> Execution {
        self.execute_in(command, now_s, &mut Unbounded)
    }

    /// The same, in so much memory beside the command's own.
    pub fn execute_in(&self, command: Command, now_s: u32, room: &mut dyn Room) -> Execution {
        self.flush.apply_due(now_s);
        let (answer, done) = match command {
            Command::Get { keys, cas, touch } => return self.get(keys, cas, touch, now_s, room),
            Command::Write { mode, item, flags, exptime, answer } => {
                (answer, self.write(mode, &item, flags, exptime, now_s, room).map(<[u8]>::to_vec))
            }
            Command::WriteRefused { mode, key, refusal, answer } => {
                (answer, self.refuse_write(mode, &key, refusal, now_s).map(<[u8]>::to_vec))
            }
            Command::Delete { key, answer } => (answer, self.delete(&key, now_s).map(<[u8]>::to_vec)),
            Command::Arithmetic { key, direction, delta, answer } => {
                (answer, self.arithmetic(&key, direction, delta, now_s, room))
            }
            Command::Touch { key, exptime, answer } => (answer, self.touch(&key, exptime, now_s).map(<[u8]>::to_vec)),
            Command::FlushAll { delay, answer } => (answer, Ok(self.flush_all(delay, now_s).to_vec())),
            // What is to be kept quiet depends on how it ends.
            Command::Meta(request) => (Answer::Wanted, self.meta(&request, now_s, room)),
        };
        let reply = done.unwrap_or_else(|failure| self.failed(&failure).to_vec());
        Execution { reply: if answer == Answer::Wanted { reply } else { Vec::new() }, rest: None }
    }

    /// General statistics, under memcached's names.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut stats: Vec<(&'static str, u64)> = self.counters.named().collect();
        let arena = self.arena();
        stats.extend([
            ("bytes", self.counters.bytes()),
            ("curr_items", self.counters.items()),
            ("limit_maxbytes", self.memory.bytes()),
            ("hash_power_level", u64::from(self.table.buckets().trailing_zeros())),
            ("hash_bytes", self.table.local_bytes() as u64),
            ("local_metadata_bytes", (self.table.local_bytes() + arena.local_bytes()) as u64),
            ("slabs_moved", arena.slabs_moved()),
            ("slab_global_page_pool", u64::from(arena.free_units())),
        ]);
        stats
    }

    /// Statistics of `stats slabs`: memory by size class.
    pub fn slab_stats(&self) -> Vec<(String, u64)> {
        let mut stats = Vec::new();
        let (mut active, mut bytes) = (0, 0);
        for (index, class) in self.arena().classes().enumerate().filter(|(_, class)| class.slabs > 0) {
            let number = index + 1;
            let slots = class.slabs * usize::from(class.shape.slots);
            active += 1;
            bytes += class.slabs * class.shape.slab_bytes();
            stats.extend([
                (format!("{number}:chunk_size"), class.shape.slot_bytes as u64),
                (format!("{number}:chunks_per_page"), u64::from(class.shape.slots)),
                (format!("{number}:total_pages"), class.slabs as u64),
                (format!("{number}:total_chunks"), slots as u64),
                (format!("{number}:used_chunks"), (slots - class.free_slots) as u64),
                (format!("{number}:free_chunks"), class.free_slots as u64),
            ]);
        }
        stats.extend([("active_slabs".to_owned(), active), ("total_malloced".to_owned(), bytes as u64)]);
        stats
    }

    /// Statistics of `stats items`: items by size class.
    pub fn item_stats(&self) -> Vec<(String, u64)> {
        let arena = self.arena();
        let used = arena.classes().enumerate().map(|(index, class)| {
            (
                format!("items:{}:number", index + 1),
                (class.slabs * usize::from(class.shape.slots) - class.free_slots) as u64,
            )
        });
        used.filter(|(_, number)| *number > 0).collect()
    }

    /// Sets the counters of events to zero.
    pub fn reset_stats(&self) {
        self.counters.reset();
    }

    fn flush_all(&self, delay: Exptime, now_s: u32) -> &'static [u8] {
        self.counters.add(Stat::CmdFlush, 1);
        match delay.deadline_s(now_s) {
            due_s if due_s > now_s => self.flush.due_s.store(due_s, Ordering::Relaxed),
            _ => {
                self.flush.due_s.store(0, Ordering::Relaxed);
                self.flush.apply();
                // Takes one, as memcached does: both count alike.
                self.next_cas();
            }
        }
        reply::OK
    }

    fn failed(&self, failure: &Failure<M::Error>) -> &'static [u8] {
        match failure {
            Failure::Far(error) => {
                // Few lines, however many requests fail: the first, the second, the fourth, and so on.
                if self.counters.far_error().is_power_of_two() {
                    tracing::warn!(%error, "requests fail");
                }
                reply::FAR_UNAVAILABLE
            }
            Failure::OutOfMemory => {
                self.counters.add(Stat::StoreNoMemory, 1);
                reply::OUT_OF_MEMORY
            }
            Failure::NoRoomForReply => reply::NO_ROOM_FOR_REPLY,
            Failure::TooLarge => {
                self.counters.add(Stat::StoreTooLarge, 1);
                reply::TOO_LARGE
            }
        }
    }

    fn read_header(&self, offset: u64) -> Result<Header, M::Error> {
        let mut bytes = [0; HEADER_BYTES];
        self.memory.read(offset, &mut bytes)?;
        Ok(Header::decode(&bytes))
    }

    /// Why an item that is still in its chain must not be seen any more, if so.
    fn death(&self, header: &Header, now_s: u32) -> Option<Death> {
        if header.deadline_s != 0 && header.deadline_s <= now_s {
            Some(Death::Expired)
        } else if header.epoch != self.flush.epoch() {
            Some(Death::Flushed)
        } else {
            None
        }
    }

    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flush {
    /// Invalidates all items that have been linked so far.
    fn apply(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// What items that are linked now belong to.
    fn epoch(&self) -> FlushEpoch {
        FlushEpoch::new(self.flushes.load(Ordering::Relaxed))
    }

    fn apply_due(&self, now_s: u32) {
        let due_s = self.due_s.load(Ordering::Relaxed);
        if due_s != 0
            && now_s >= due_s
            && self.due_s.compare_exchange(due_s, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.apply();
        }
    }
}
