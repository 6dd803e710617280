//! [`Table`]: what the fabric below has of each page of an area: how many bytes, of which bytes of the page, and what
//! proves them.
//!
//! Who touches what: a queue pair that writes a page says so before it posts ([`Table::begin_write`]), and finishes the
//! page when the write has ended. A reader looks before it posts, and again when the bytes are here: what changed
//! meanwhile was not read. Proof and shape change only while the page is being written, when nobody believes them.
//!
//! Invariant: a page whose last write failed is unknown, and nothing is read of it before the next write is done.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use yonder_units::{Narrow, PAGE_BYTES};
use zerocopy::FromZeros as _;

use crate::Vector;

/// Bits of a word: how many bytes are stored, whether they are compressed, the state, and the number of the last
/// change.
const BYTES_MASK: u32 = (1 << 13) - 1;
const IS_COMPRESSED: u32 = 1 << 13;
const STATE_SHIFT: u32 = 14;
const VERSION_SHIFT: u32 = 16;
const _: () = assert!(PAGE_BYTES <= BYTES_MASK as usize);

/// Never written: it is zeros. A page of zeros in the table is one.
const ZEROS: u32 = 0;
const STORED: u32 = 1;
const WRITING: u32 = 2;
const UNKNOWN: u32 = 3;

/// How many bytes are stored of a page, and what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub(super) bytes: usize,
    pub(super) is_compressed: bool,
}

/// What a reader sees of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Zeros,
    Stored(Stored),
    /// Its write has not ended.
    Writing,
    /// Its write has failed.
    Unknown,
}

/// A look at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen<P> {
    word: u32,
    pub(super) shape: Vector,
    pub(super) proof: P,
}

/// A write that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u32);

/// A write that is about to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begun {
    pub(super) ticket: Ticket,
    before: u32,
}

/// The pages of an area, with proofs of the type `P`.
pub(super) struct Table<P> {
    words: Box<[AtomicU32]>,
    /// So many words a page as a proof has.
    proofs: Box<[AtomicU64]>,
    /// Backed only where paging is guided: the word of a whole page is zero.
    shapes: Box<[AtomicU64]>,
    _proofs: PhantomData<P>,
}

impl<P> Seen<P> {
    pub(super) fn content(self) -> Content {
        match self.word >> STATE_SHIFT & 3 {
            ZEROS => Content::Zeros,
            STORED => {
                let bytes = (self.word & BYTES_MASK) as usize;
                Content::Stored(Stored { bytes, is_compressed: self.word & IS_COMPRESSED != 0 })
            }
            WRITING => Content::Writing,
            _ => Content::Unknown,
        }
    }
}

impl<P: Copy + Default + AsRef<[u64]> + AsMut<[u64]>> Table<P> {
    /// Of pages that are zeros, backed where they are used; `None` if there is no memory for it.
    pub(super) fn new(pages: usize) -> Option<Self> {
        let words = |count: usize| <[AtomicU64]>::new_box_zeroed_with_elems(count).ok();
        let small = <[AtomicU32]>::new_box_zeroed_with_elems(pages).ok()?;
        let of_proofs = P::default().as_ref().len();
        Some(Self { words: small, proofs: words(pages * of_proofs)?, shapes: words(pages)?, _proofs: PhantomData })
    }

    pub(super) fn look(&self, page: usize) -> Seen<P> {
        let word = self.words[page].load(Ordering::Acquire);
        let shape = Vector::from_word(self.shapes[page].load(Ordering::Acquire));
        let mut proof = P::default();
        let words = proof.as_mut().iter_mut().zip(self.proof(page));
        words.for_each(|(word, kept)| *word = kept.load(Ordering::Acquire));
        Seen { word, shape, proof }
    }

    fn proof(&self, page: usize) -> &[AtomicU64] {
        let words = P::default().as_ref().len();
        &self.proofs[page * words..][..words]
    }

    /// Whether nothing was written since `seen`, so that what was read meanwhile is what `seen` says.
    pub(super) fn is_still(&self, page: usize, seen: Seen<P>) -> bool {
        fence(Ordering::Acquire);
        self.words[page].load(Ordering::Acquire) == seen.word
    }

    /// A write of the page is about to be posted. An earlier one that has not ended changes nothing any more.
    pub(super) fn begin_write(&self, page: usize) -> Begun {
        let next = |word: u32| next_version(word) | WRITING << STATE_SHIFT;
        let update = self.words[page].fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(next(word)));
        let before = update.expect("it always changes");
        Begun { ticket: Ticket(next(before)), before }
    }

    /// The write was not posted: the page is what it was.
    pub(super) fn take_back_write(&self, page: usize, begun: Begun) {
        let word = &self.words[page];
        // Refused if the page was forgotten meanwhile.
        let _ = word.compare_exchange(begun.ticket.0, begun.before, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The write of `ticket` is done: the page is what was written.
    pub(super) fn finish_write(&self, page: usize, ticket: Ticket, stored: Stored, shape: Vector, proof: P) {
        if self.words[page].load(Ordering::Acquire) != ticket.0 {
            return;
        }
        if self.shapes[page].load(Ordering::Relaxed) != shape.to_word() {
            self.shapes[page].store(shape.to_word(), Ordering::Release);
        }
        let words = self.proof(page).iter().zip(proof.as_ref());
        words.for_each(|(kept, word)| kept.store(*word, Ordering::Release));
        let flag = if stored.is_compressed { IS_COMPRESSED } else { 0 };
        let stored = stored.bytes.narrow_u32() | flag | STORED << STATE_SHIFT;
        self.end(page, ticket, stored);
    }

    /// The write of `ticket` has failed, or nobody will know how it ended.
    pub(super) fn lose(&self, page: usize, ticket: Ticket) {
        self.end(page, ticket, UNKNOWN << STATE_SHIFT);
    }

    fn end(&self, page: usize, ticket: Ticket, rest: u32) {
        let version = ticket.0 >> VERSION_SHIFT << VERSION_SHIFT;
        // Refused if the page was forgotten or written again meanwhile.
        let _ = self.words[page].compare_exchange(ticket.0, version | rest, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The page is zeros again.
    pub(super) fn forget(&self, page: usize) {
        let next = |word| Some(next_version(word) | ZEROS << STATE_SHIFT);
        if self.words[page].load(Ordering::Acquire) != 0 {
            let _ = self.words[page].fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        }
    }
}

/// A word of the next version and nothing else.
fn next_version(word: u32) -> u32 {
    ((word >> VERSION_SHIFT).wrapping_add(1) & 0xffff) << VERSION_SHIFT
}
