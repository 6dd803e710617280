//! [`HeldPages`]: far memory that stays here for good, because the kernel may use it at any time: stacks that signal
//! handlers or contexts run on, words of thread lists.
//!
//! One bit for each page of far memory, so that what was held before is not held again, and what was discarded all the
//! same, since the program has given it back and got it again, is brought back. It is fixed from the start and takes no
//! lock: a program asks for this also in system calls that come back by a signal, at any instruction.
//!
//! Who touches what: any thread sets bits; none is ever cleared. A page's bit is set after its block is held for it,
//! and by one thread alone, whose hold is the one that stays.
//!
//! UNSAFETY: words in a mapping, which is zeros at first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use yonder_mapping::{MapError, Mapping};
use yonder_paging::PagingError;
use yonder_units::PAGE_BYTES;

use crate::far::{Far, far};

const WORD_PAGES: usize = u64::BITS as usize;

/// Which pages are held for good.
pub(crate) struct HeldPages {
    words: Mapping,
    /// Whether there is any, so that most programs never look.
    are_any: AtomicBool,
}

impl HeldPages {
    /// None of the pages of so much far memory. Costs memory where pages are held only.
    pub(crate) fn none_of(bytes: u64) -> Result<Self, MapError> {
        let words = (bytes as usize).div_ceil(PAGE_BYTES * WORD_PAGES);
        let bytes = (words * size_of::<u64>()).next_multiple_of(PAGE_BYTES);
        Ok(Self { words: Mapping::anonymous(bytes)?, are_any: AtomicBool::new(false) })
    }

    /// The bit of a page, and the word that has it.
    fn place(&self, page: usize) -> (&AtomicU64, u64) {
        let at = page / WORD_PAGES * size_of::<u64>();
        assert!(at < self.words.len(), "page {page} is not of far memory");
        // SAFETY: the word is in the mapping, which lives as long as `self`, begins with a page, and is used in no
        // other way.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(self.words.address() + at)) };
        (word, 1 << (page % WORD_PAGES))
    }

    fn contains(&self, page: usize) -> bool {
        let (word, bit) = self.place(page);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Adds a page; whether it is new.
    fn add(&self, page: usize) -> bool {
        let (word, bit) = self.place(page);
        self.are_any.store(true, Ordering::Release);
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }
}

/// Holds far memory that the kernel may use from now on at any time; nothing to do for other memory. An error if it
/// cannot be had.
pub(crate) fn hold_for_good(address: usize, bytes: usize) -> Result<(), PagingError> {
    match far() {
        Some(far) if bytes > 0 => far.hold_for_good(address, bytes),
        _ => Ok(()),
    }
}

impl Far {
    fn hold_for_good(&self, address: usize, bytes: usize) -> Result<(), PagingError> {
        let last = address.checked_add(bytes - 1).and_then(|last| self.offset(last));
        let (Some(first), Some(last)) = (self.offset(address), last) else { return Ok(()) };
        yonder_trap::hold_back(|| {
            // All of it comes at once, and stays until each page has a hold of its own.
            let _all = self.region().hold(first, bytes)?;
            for page in first as usize / PAGE_BYTES..=last as usize / PAGE_BYTES {
                if !self.held.contains(page) {
                    let hold = self.region().hold((page * PAGE_BYTES) as u64, PAGE_BYTES)?;
                    if self.held.add(page) {
                        std::mem::forget(hold);
                    }
                }
            }
            Ok(())
        })
    }

    /// Brings those pages of a range back that are held for good and were discarded: they are zeros now.
    pub(crate) fn bring_held(&self, address: usize, bytes: u64) -> Result<(), PagingError> {
        if bytes == 0 || !self.held.are_any.load(Ordering::Acquire) {
            return Ok(());
        }
        let start = self.offset(address).expect("what was discarded is far");
        let pages = start as usize / PAGE_BYTES..(start + bytes).div_ceil(PAGE_BYTES as u64) as usize;
        let held = pages.filter(|page| self.held.contains(*page));
        let bring = |page| self.region().hold((page * PAGE_BYTES) as u64, PAGE_BYTES).map(drop);
        yonder_trap::hold_back(|| held.into_iter().try_for_each(bring))
    }
}
