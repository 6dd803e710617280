//! [`PageMap`]: what is where, for any thread and without a lock.
//!
//! For each page there are a byte that says what it is, four words, and a bit that says whether it lies in a run:
//!
//! | page | byte | words | bit |
//! |---|---|---|---|
//! | of objects, the first of a slab | 1 + class | a bit for each slot: live or not | 0 |
//! | another of a slab | 1 + class | zeros | 0 |
//! | first of a run | `RUN` | word 0: where its bytes end, from the page's start; word 1: where they begin | 1 |
//! | last of a run (perhaps also its first) | | word 3: where live bytes end, 0 if with the page | 1 |
//! | between them | 0 | zeros | 1 |
//! | other | 0 | zeros | 0 |
//!
//! All changes are made by the one [`Heap`](crate::Heap), under its caller's lock; reads are made by any thread at any
//! time. Every table is zero at first and is backed by the kernel where it is used, not before.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use yonder_units::{Narrow, PAGE_BYTES, PageIndex, Vector};
use zerocopy::FromZeros;

use crate::NotAllocated;
use crate::bits::{self, Words};
use crate::class::Class;
use crate::live;

/// Words of a page: a bit for each of the smallest slots.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / crate::GRANULE_BYTES / u64::BITS as usize;
/// The byte of the first page of a run.
const RUN: u8 = u8::MAX;
/// The words of a run.
const END: usize = 0;
const START: usize = 1;
const TAIL_BYTES: usize = PAGE_WORDS - 1;
const _: () = assert!(crate::CLASSES < RUN as usize && START < TAIL_BYTES);

/// What an offset that is allocated is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocated {
    /// A small object: it may go into a [`Magazine`](crate::Magazine).
    Object(Class),
    /// A run of whole pages, of which this many bytes are usable.
    Run(u64),
}

/// A run: whole pages, of which the usable bytes begin in the first and end in the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Its first page.
    pub(crate) first: u32,
    /// Bytes of that page before the usable ones.
    pub(crate) start: u64,
    /// Usable bytes.
    pub(crate) bytes: u64,
}

impl Run {
    /// Bytes from the first page's start to the end of the usable ones.
    fn end(self) -> u64 {
        self.start + self.bytes
    }

    /// Where its usable bytes begin.
    pub(crate) fn offset(self) -> u64 {
        PageIndex(self.first).offset() + self.start
    }

    /// Its pages.
    pub(crate) fn pages(self) -> Range<u32> {
        self.first..self.first + yonder_units::pages_for(self.end()).narrow_u32()
    }
}

impl Allocated {
    /// Bytes that its owner may use, at least as many as it asked for.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Object(class) => class.bytes() as u64,
            Self::Run(bytes) => bytes,
        }
    }
}

/// What every page of a heap is, and which of its slots are live.
///
/// # Why a read without the lock is right
///
/// *The owner of an object* may look it up: what is said of its page and slot was said before the offset was handed
/// out, and stays until the object is freed.
///
/// *The reclaimer* may ask for the [live bytes](Self::live) of a page, if no store can reach the page while it asks:
/// it write-protects the page or unmaps it, waits until every CPU knows, and then asks. Take an object whose content
/// matters to its owner.
///
/// - It was stored before the page was closed. The bit of its slot was set before the store: the heap sets it, and
///   publishes it with a release fence, before it hands out the offset. Whoever closed the page
///   waited for the store, and so finds the bit. Neither bit nor kind of page changes while the object lives, which is
///   to say while it is asked for: it is reported.
/// - It was stored later: then the store met the closed page, trapped, and waited for the page to be mapped again. It
///   is made on the next copy, and no question for an earlier one has to report it. What that copy has at the place of
///   the object does not matter, because the content of a new object is undefined.
/// - A page that becomes something else meanwhile held no live object at that moment, so what is said of its old kind
///   loses nothing, and of its new kind the second case holds. A question that sees a part of each gets an answer that
///   means nothing, and loses nothing.
///
/// So the answer has to be taken from a page that is closed, kept with the copy that was made of it, and used for this
/// copy only. A page that is mapped again before it is written back is asked anew.
#[derive(Debug)]
pub struct PageMap {
    kinds: Box<[AtomicU8]>,
    words: Box<[AtomicU64]>,
    in_run: Box<[AtomicU64]>,
}

/// Where a slot's bit is.
#[derive(Clone, Copy)]
struct SlotBit {
    word: usize,
    mask: u64,
}

impl PageMap {
    /// A map of free pages.
    pub(crate) fn new(pages: usize) -> Self {
        let words = |count| <[AtomicU64]>::new_box_zeroed_with_elems(count).expect("the map is 1/120 of its range");
        Self {
            kinds: <[AtomicU8]>::new_box_zeroed_with_elems(pages).expect("the map is 1/120 of its range"),
            words: words(pages * PAGE_WORDS),
            in_run: words(pages.div_ceil(u64::BITS as usize)),
        }
    }

    /// What begins at `offset`, and is live. Needs no lock.
    ///
    /// To be asked by the owner of `offset`, to free it or for its size. An object in a magazine is live for the map.
    #[inline]
    pub fn look_up(&self, offset: u64) -> Result<Allocated, NotAllocated> {
        let error = NotAllocated { offset };
        let page = usize::try_from(offset / PAGE_BYTES as u64).map_err(|_| error)?;
        match self.kinds.get(page).ok_or(error)?.load(Ordering::Acquire) {
            0 => Err(error),
            RUN => {
                let run = self.run(page.narrow_u32());
                if run.offset() == offset { Ok(Allocated::Run(run.bytes)) } else { Err(error) }
            }
            kind => {
                let class = Class::at(kind - 1);
                let bit = slot_bit(class, offset).ok_or(error)?;
                let live = self.words[bit.word].load(Ordering::Acquire) & bit.mask != 0;
                if live { Ok(Allocated::Object(class)) } else { Err(error) }
            }
        }
    }

    /// The bytes of `page` that have to be kept; `None` if there are none. Needs no lock, but a page that no store can
    /// reach meanwhile: see [`PageMap`] for why that is enough. Magazines and the end of a class's slot count as live,
    /// what lies behind the last usable byte of a run does not.
    ///
    /// # Panics
    /// If the heap has no such page.
    #[must_use]
    pub fn live(&self, page: PageIndex) -> Option<Vector> {
        // Pairs with the fence in `publish`: the stores that the caller knows to be over came after the bits.
        fence(Ordering::Acquire);
        let page = page.index();
        let words = || -> [u64; PAGE_WORDS] {
            std::array::from_fn(|word| self.words[page * PAGE_WORDS + word].load(Ordering::Acquire))
        };
        match self.kinds[page].load(Ordering::Acquire) {
            kind if kind != 0 && kind != RUN => {
                let class = Class::at(kind - 1);
                if class.slab_pages() == 1 {
                    return live::of_slots(class, words());
                }
                let first = class.slab_of(page.narrow_u32()) as usize;
                let slots = self.words[first * PAGE_WORDS].load(Ordering::Acquire);
                live::of_large_slots(class, slots, page - first)
            }
            _ if self.in_run[page / 64].load(Ordering::Acquire) >> (page % 64) & 1 == 0 => None,
            _ => {
                let words = words();
                Some(live::of_run_page(words[START], words[TAIL_BYTES]))
            }
        }
    }

    /// How many pages the run has that begins with `page`, if one does now. Needs no lock.
    #[must_use]
    #[inline]
    pub fn run_at(&self, page: PageIndex) -> Option<u32> {
        let is_run = self.kinds.get(page.index())?.load(Ordering::Acquire) == RUN;
        is_run.then(|| self.run(page.0).pages().len().narrow_u32())
    }

    /// The pages of the slot that the byte at `offset` lies in, whether that is live or not, if it is of a slab and in
    /// more than one page. Needs no lock.
    #[must_use]
    pub fn pages_of_object(&self, offset: u64) -> Option<Range<u32>> {
        let page = u32::try_from(offset / PAGE_BYTES as u64).ok()?;
        let kind = self.kinds.get(page as usize)?.load(Ordering::Acquire);
        let class = if kind == 0 || kind == RUN { return None } else { Class::at(kind - 1) };
        let (slab, bytes) = (PageIndex(class.slab_of(page)).offset(), class.bytes() as u64);
        let slot = (offset - slab) / bytes;
        if slot >= class.slots() as u64 {
            return None;
        }
        let start = slab + slot * bytes;
        let pages = PageIndex::containing(start).0..PageIndex::containing(start + bytes - 1).0 + 1;
        (pages.len() > 1).then_some(pages)
    }

    /// The run that begins with a page, where one does.
    pub(crate) fn run(&self, first: u32) -> Run {
        let [end, start] = [END, START].map(|word| self.word(first, word).load(Ordering::Acquire));
        Run { first, start, bytes: end.saturating_sub(start) }
    }

    /// Bytes of address space that it has.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&*self.kinds) + size_of_val(&*self.words) + size_of_val(&*self.in_run)) as u64
    }

    /// Everything said so far is seen by whoever sees a store that this thread makes from now on, or that any thread
    /// makes to an offset it got after this.
    pub(crate) fn publish(&self) {
        fence(Ordering::Release);
    }

    /// Makes a page a slab without live slots.
    pub(crate) fn open_slab(&self, page: u32, class: Class) {
        assert!(self.live_slots(page) == 0, "the words of a free page are zeros");
        for kind in &self.kinds[page as usize..(page + class.slab_pages()) as usize] {
            kind.store(1 + class.index().narrow_u8(), Ordering::Release);
        }
    }

    /// Makes a slab without live slots a free page.
    pub(crate) fn close_slab(&self, page: u32, class: Class) {
        assert!(self.live_slots(page) == 0, "a slab with live objects is closed");
        self.kinds[page as usize..(page + class.slab_pages()) as usize]
            .iter()
            .for_each(|kind| kind.store(0, Ordering::Release));
    }

    /// Live slots of a slab.
    pub(crate) fn live_slots(&self, page: u32) -> u32 {
        self.slab_words(page).iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Makes up to `wanted` slots of a slab live, the lowest first, and passes their offsets on.
    pub(crate) fn set_slots(&self, page: u32, class: Class, wanted: usize, mut each: impl FnMut(u64)) -> usize {
        let base = u64::from(page) * PAGE_BYTES as u64;
        let mut set = 0;
        for (index, word) in self.slab_words(page).iter().enumerate() {
            let mut live = word.load(Ordering::Relaxed);
            let mut dead = !live & class.slot_mask(index);
            while dead != 0 && set < wanted {
                let slot = index * u64::BITS as usize + dead.trailing_zeros() as usize;
                live |= dead & dead.wrapping_neg();
                dead &= dead - 1;
                set += 1;
                each(base + (slot * class.bytes()) as u64);
            }
            word.store(live, Ordering::Release);
        }
        set
    }

    /// Makes the slot at `offset` of a slab dead, if it is live.
    pub(crate) fn clear_slot(&self, class: Class, offset: u64) -> Result<(), NotAllocated> {
        let page = (offset / PAGE_BYTES as u64).narrow_usize();
        let error = NotAllocated { offset };
        let kind = self.kinds.get(page).ok_or(error)?.load(Ordering::Relaxed);
        let bit = slot_bit(class, offset).filter(|_| usize::from(kind) == 1 + class.index()).ok_or(error)?;
        let live = self.words[bit.word].load(Ordering::Relaxed);
        self.words[bit.word].store(live & !bit.mask, Ordering::Release);
        if live & bit.mask != 0 { Ok(()) } else { Err(error) }
    }

    /// Makes free pages a run.
    pub(crate) fn open_run(&self, run: Run) {
        self.set_in_run(run.pages(), |word, mask| word | mask);
        self.describe_run(run);
        self.kinds[run.first as usize].store(RUN, Ordering::Release);
    }

    /// Makes a run free pages.
    pub(crate) fn close_run(&self, run: Run) {
        debug_assert!(self.run_at(PageIndex(run.first)).is_some() && self.run(run.first) == run, "there is no {run:?}");
        let pages = run.pages();
        self.kinds[run.first as usize].store(0, Ordering::Release);
        for word in [END, START] {
            self.word(run.first, word).store(0, Ordering::Release);
        }
        self.word(pages.end - 1, TAIL_BYTES).store(0, Ordering::Release);
        self.set_in_run(pages, |word, mask| word & !mask);
    }

    /// Gives a run another size. Meanwhile its live bytes are what they were, or what they become, or more than both.
    pub(crate) fn resize_run(&self, run: Run, bytes: u64) {
        let resized = Run { bytes, ..run };
        let (old, new) = (run.pages(), resized.pages());
        if new.end > old.end {
            self.word(old.end - 1, TAIL_BYTES).store(0, Ordering::Release);
            self.set_in_run(old.end..new.end, |word, mask| word | mask);
        }
        self.describe_run(resized);
        if new.end < old.end {
            self.set_in_run(new.end..old.end, |word, mask| word & !mask);
            self.word(old.end - 1, TAIL_BYTES).store(0, Ordering::Release);
        }
    }

    /// Makes two runs of one that begins with its page, the first of `bytes` bytes, whole pages. Live bytes stay what
    /// they were.
    pub(crate) fn split_run(&self, run: Run, bytes: u64) {
        debug_assert!(run.start == 0, "{run:?} does not begin with its page");
        debug_assert!(bytes < run.bytes && bytes.is_multiple_of(PAGE_BYTES as u64), "{bytes} of {run:?}");
        let first = Run { bytes, ..run };
        let second = Run { first: first.pages().end, start: 0, bytes: run.bytes - bytes };
        self.describe_run(second);
        self.kinds[second.first as usize].store(RUN, Ordering::Release);
        self.describe_run(first);
    }

    fn describe_run(&self, run: Run) {
        self.word(run.pages().end - 1, TAIL_BYTES).store(run.end() % PAGE_BYTES as u64, Ordering::Release);
        self.word(run.first, START).store(run.start, Ordering::Release);
        self.word(run.first, END).store(run.end(), Ordering::Release);
    }

    fn set_in_run(&self, pages: Range<u32>, change: impl Fn(u64, u64) -> u64) {
        let Words { partial, whole } = bits::words_of(pages);
        for (word, mask) in partial.into_iter().flatten() {
            let word = &self.in_run[word];
            word.store(change(word.load(Ordering::Relaxed), mask), Ordering::Release);
        }
        self.in_run[whole].iter().for_each(|word| word.store(change(0, !0), Ordering::Release));
    }

    fn word(&self, page: u32, word: usize) -> &AtomicU64 {
        &self.words[page as usize * PAGE_WORDS + word]
    }

    fn slab_words(&self, page: u32) -> &[AtomicU64] {
        &self.words[page as usize * PAGE_WORDS..][..PAGE_WORDS]
    }
}

/// Where the bit of the slot at `offset` is, if a slot begins there.
#[inline]
fn slot_bit(class: Class, offset: u64) -> Option<SlotBit> {
    let slab_bytes = u64::from(class.slab_pages()) * PAGE_BYTES as u64;
    let slot = class.slot_at((offset % slab_bytes).narrow_usize())?;
    let page = ((offset - offset % slab_bytes) / PAGE_BYTES as u64).narrow_usize();
    Some(SlotBit { word: page * PAGE_WORDS + slot / 64, mask: 1 << (slot % 64) })
}
