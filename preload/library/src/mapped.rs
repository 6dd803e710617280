//! [`Maps`]: which ranges of far memory are mapped, and which of them are protected.
//!
//! Each mapping is one entry; unmapping or moving a part of one splits it, and its run of the far heap with it.
//!
//! Invariant: who holds the lock keeps the program's signal handlers away, because they may map memory too.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_paging::far_heap::Misuse;
use yonder_preload_protocol::WINDOW;

use crate::far::Far;

/// How far memory is unless the program protects it.
pub(crate) const PLAIN: c_int = libc::PROT_READ | libc::PROT_WRITE;

static MAPS: Mutex<Maps> = Mutex::new(Maps { runs: BTreeMap::new(), protected: BTreeMap::new(), copied: Vec::new() });
/// How many ranges are protected: few programs have any, and system calls need not ask then.
static PROTECTED: AtomicUsize = AtomicUsize::new(0);
/// Bytes that nobody may touch.
static UNTOUCHABLE: AtomicUsize = AtomicUsize::new(0);

/// The far mappings of this process, by their addresses.
pub(crate) struct Maps {
    /// Bytes of each, whole pages.
    pub(crate) runs: BTreeMap<usize, usize>,
    /// Ends of the ranges that are not as they were made, and what the program may do there, by their starts.
    protected: BTreeMap<usize, (usize, c_int)>,
    /// What was copied of files that the program has mapped there.
    copied: Vec<Range<usize>>,
}

/// Bytes that are being reserved or given back, and are not in use meanwhile.
static BETWEEN: AtomicUsize = AtomicUsize::new(0);

/// Says for as long as it is there that so much of what is mapped is not in use.
pub(crate) struct NotInUse(usize);

impl NotInUse {
    pub(crate) fn of(bytes: usize) -> Self {
        BETWEEN.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes)
    }
}

impl Drop for NotInUse {
    fn drop(&mut self) {
        BETWEEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

thread_local! {
    /// Whether this thread has the lock.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the program may do all of `prot` with a range of far memory. A thread that has the lock is told so of all:
/// what it passes to the kernel then is its own stack, which may be far.
pub(crate) fn is_allowed(range: Range<usize>, prot: c_int) -> bool {
    range.is_empty() || !is_any_protected() || IS_OURS.get() || yonder_trap::hold_back(|| maps().allow(range, prot))
}

/// Whether any far memory is protected.
pub(crate) fn is_any_protected() -> bool {
    PROTECTED.load(Ordering::Acquire) > 0
}

/// Bytes of far memory that nobody may touch: they are reserved, and in use perhaps later.
pub(crate) fn untouchable_bytes() -> usize {
    UNTOUCHABLE.load(Ordering::Relaxed)
}

/// How much of `used` bytes, which are counted while nothing changes, is in use for certain.
pub(crate) fn in_use(used: impl FnOnce() -> u64) -> u64 {
    yonder_trap::hold_back(|| {
        let _maps = maps();
        used().saturating_sub((untouchable_bytes() + BETWEEN.load(Ordering::Relaxed)) as u64)
    })
}

/// Keeps mappings from changing.
pub(crate) struct Held {
    _maps: Locked,
}

/// The maps, which nobody else changes.
pub(crate) struct Locked(MutexGuard<'static, Maps>);

impl Deref for Locked {
    type Target = Maps;

    fn deref(&self) -> &Maps {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Maps {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        IS_OURS.set(false);
    }
}

/// Keeps mappings from changing until this is dropped.
pub(crate) fn hold() -> Held {
    Held { _maps: maps() }
}

pub(crate) fn maps() -> Locked {
    let locked = Locked(MAPS.lock().unwrap_or_else(PoisonError::into_inner));
    IS_OURS.set(true);
    locked
}

impl Maps {
    /// Whether all of a range is mapped.
    pub(crate) fn cover(&self, range: Range<usize>) -> bool {
        let mut covered = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (start, bytes) in before.into_iter().chain(self.runs.range(range.clone())) {
            if *start <= covered {
                covered = covered.max(start + bytes);
            }
        }
        covered >= range.end
    }

    /// What is in `range` from now on was copied of a file, or was not.
    pub(crate) fn set_copied(&mut self, range: Range<usize>, is_copied: bool) {
        if is_copied || !self.copied.is_empty() {
            let rest =
                |part: &Range<usize>| [part.start..part.end.min(range.start), part.start.max(range.end)..part.end];
            self.copied = self.copied.iter().flat_map(rest).filter(|part| !part.is_empty()).collect();
            self.copied.extend(is_copied.then_some(range));
        }
    }

    /// Whether any of `range` was copied of a file.
    pub(crate) fn has_copied(&self, range: &Range<usize>) -> bool {
        self.copied.iter().any(|part| part.start < range.end && range.start < part.end)
    }

    /// Makes `address` a border between two mappings, if it lies within one.
    pub(crate) fn split_at(&mut self, far: &Far, address: usize) {
        let Some((start, bytes)) = self.runs.range(..address).next_back().map(|(start, bytes)| (*start, *bytes)) else {
            return;
        };
        if start + bytes <= address {
            return;
        }
        let head = address - start;
        let split = far.heap.with(|heap| heap.split((start - WINDOW.start) as u64, head as u64));
        split.unwrap_or_else(|_| crate::malloc::die_of(Misuse { address: start }));
        self.runs.insert(start, head);
        self.runs.insert(address, bytes - head);
    }

    /// What the program may do in `range` is `prot` from now on.
    pub(crate) fn protect(&mut self, range: Range<usize>, prot: c_int) {
        self.forget_protection(range.clone());
        if prot != PLAIN {
            self.insert_protected(range, prot);
            PROTECTED.store(self.protected.len(), Ordering::Release);
        }
    }

    fn insert_protected(&mut self, range: Range<usize>, prot: c_int) {
        if prot == libc::PROT_NONE {
            UNTOUCHABLE.fetch_add(range.len(), Ordering::Relaxed);
        }
        self.protected.insert(range.start, (range.end, prot));
    }

    /// The parts of `range` that are protected, and how.
    pub(crate) fn protections(&self, range: Range<usize>) -> Vec<(Range<usize>, c_int)> {
        let clip =
            |(start, (end, prot)): (&usize, &(usize, c_int))| ((*start).max(range.start)..(*end).min(range.end), *prot);
        self.overlapping(&range).into_iter().map(clip).collect()
    }

    /// What the program may do in all of `range`; `None` if that differs, as between mappings of the kernel's.
    pub(crate) fn protection(&self, range: Range<usize>) -> Option<c_int> {
        let mut parts = self.overlapping(&range).into_iter().peekable();
        let Some(&(_, &(_, prot))) = parts.peek() else { return Some(PLAIN) };
        let covered = parts
            .try_fold(range.start, |covered, (start, (end, has))| (*start <= covered && *has == prot).then_some(*end));
        covered.filter(|covered| *covered >= range.end).map(|_| prot)
    }

    /// What is protected of a range, in order. Ranges that are protected do not overlap: those before it end before it.
    fn overlapping(&self, range: &Range<usize>) -> Vec<(&usize, &(usize, c_int))> {
        let before = self.protected.range(..range.end).rev();
        let mut found: Vec<_> = before.take_while(|(_, (end, _))| *end > range.start).collect();
        found.reverse();
        found
    }

    fn allow(&self, range: Range<usize>, prot: c_int) -> bool {
        let before = self.protected.range(..range.end);
        // What can be written can be read, by the processor's page tables.
        let allows = |has: c_int| has & prot == prot || prot == libc::PROT_READ && has & libc::PROT_WRITE != 0;
        before.rev().take_while(|(_, (end, _))| *end > range.start).all(|(_, (_, has))| allows(*has))
    }

    /// Forgets that parts of `range` are protected, and tells which.
    pub(crate) fn forget_protection(&mut self, range: Range<usize>) -> Vec<Range<usize>> {
        let overlapping: Vec<usize> = self.overlapping(&range).into_iter().map(|(start, _)| *start).collect();
        let clip = |start: usize| {
            let (end, prot) = self.protected.remove(&start).expect("just found");
            if prot == libc::PROT_NONE {
                UNTOUCHABLE.fetch_sub(end - start, Ordering::Relaxed);
            }
            // What is left of it stays as it is.
            for rest in [start..range.start.min(end), range.end.max(start)..end] {
                if !rest.is_empty() {
                    self.insert_protected(rest, prot);
                }
            }
            start.max(range.start)..end.min(range.end)
        };
        let forgotten = overlapping.into_iter().map(clip).collect();
        PROTECTED.store(self.protected.len(), Ordering::Release);
        forgotten
    }
}
