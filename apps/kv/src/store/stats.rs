//! Counters of the store, under the names that memcached gives them.
//!
//! [`Counters`] keeps a few copies of its words so that workers do not contend for cache lines; a sum is taken when
//! somebody asks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// Copies of every counter. More threads than this share copies.
const SHARDS: usize = 16;

macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Stat {
            $($(#[$doc])* $variant,)+
        }

        /// All counters and their names, in the order in which `stats` shows them.
        const NAMED: &[(Stat, &str)] = &[$((Stat::$variant, $name)),+];
    };
}

stats! {
    CmdGet = "cmd_get",
    CmdSet = "cmd_set",
    CmdFlush = "cmd_flush",
    CmdTouch = "cmd_touch",
    CmdMeta = "cmd_meta",
    GetHits = "get_hits",
    GetMisses = "get_misses",
    GetExpired = "get_expired",
    GetFlushed = "get_flushed",
    DeleteMisses = "delete_misses",
    DeleteHits = "delete_hits",
    IncrMisses = "incr_misses",
    IncrHits = "incr_hits",
    DecrMisses = "decr_misses",
    DecrHits = "decr_hits",
    CasMisses = "cas_misses",
    CasHits = "cas_hits",
    CasBadval = "cas_badval",
    TouchHits = "touch_hits",
    TouchMisses = "touch_misses",
    StoreTooLarge = "store_too_large",
    StoreNoMemory = "store_no_memory",
    FarErrors = "far_memory_errors",
    /// Items that were dropped because a page of them was lost.
    LostItems = "lost_items",
    /// Slots that are not used any more because nothing can be written to them.
    RetiredSlots = "retired_slots",
    TotalItems = "total_items",
    Evictions = "evictions",
    Reclaimed = "reclaimed",
    CrawlerReclaimed = "crawler_reclaimed",
}

#[derive(Default)]
struct Shard {
    counts: [AtomicU64; NAMED.len()],
    /// Items now, and their bytes: differences that only add up over all shards.
    items: AtomicU64,
    bytes: AtomicU64,
}

/// The counters of a store.
#[derive(Default)]
pub(super) struct Counters {
    shards: [CachePadded<Shard>; SHARDS],
}

impl Counters {
    pub(super) fn add(&self, stat: Stat, count: u64) {
        self.shard().counts[stat as usize].fetch_add(count, Relaxed);
    }

    /// A request has failed for want of far memory. Returns how many have, of those that this thread counts.
    pub(super) fn far_error(&self) -> u64 {
        self.shard().counts[Stat::FarErrors as usize].fetch_add(1, Relaxed) + 1
    }

    pub(super) fn item_added(&self, bytes: usize) {
        let shard = self.shard();
        shard.items.fetch_add(1, Relaxed);
        shard.bytes.fetch_add(bytes as u64, Relaxed);
        shard.counts[Stat::TotalItems as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn item_removed(&self, bytes: usize) {
        let shard = self.shard();
        shard.items.fetch_sub(1, Relaxed);
        shard.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// An item is gone whose size nobody knows any more: its bytes stay counted, as the slot's.
    pub(super) fn item_lost(&self) {
        self.shard().items.fetch_sub(1, Relaxed);
    }

    /// Sets what counts events to zero; items and bytes stay.
    pub(super) fn reset(&self) {
        for shard in &self.shards {
            for count in &shard.counts {
                count.store(0, Relaxed);
            }
        }
    }

    pub(super) fn items(&self) -> u64 {
        self.sum(|shard| &shard.items)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sum(|shard| &shard.bytes)
    }

    /// All event counters by name.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMED.iter().map(|(stat, name)| (*name, self.sum(|shard| &shard.counts[*stat as usize])))
    }

    fn sum(&self, pick: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(pick(shard).load(Relaxed)))
    }

    fn shard(&self) -> &Shard {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static SHARD: usize = THREADS.fetch_add(1, Relaxed) % SHARDS;
        }
        &self.shards[SHARD.with(|shard| *shard)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_span_threads() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    counters.add(Stat::GetHits, 2);
                    counters.item_added(10);
                });
            }
        });
        counters.item_removed(10);
        assert_eq!((counters.items(), counters.bytes()), (2, 20));
        let get_hits = |counters: &Counters| counters.named().find(|(name, _)| *name == "get_hits");
        assert_eq!(get_hits(&counters), Some(("get_hits", 6)));
        counters.reset();
        assert_eq!((get_hits(&counters), counters.items()), (Some(("get_hits", 0)), 2));
    }
}
