//! [`Digest`]: which bytes of a content count, and their hash; [`Digests`]: what the node has of each page of a region.
//!
//! Two contents are taken for the same if their digests are: the same bytes of the page count, and their hash is the
//! same under the key of the region ([`PageHasher`]). Contents that differ in bytes that count have one hash with a
//! probability of at most 2^-64, whoever has chosen them without having seen a hash. Whatever the other bytes are makes
//! no difference.
//!
//! Who touches what: the reclaimer writes, under its lock. Whoever has moved an entry to `Fetching` reads what the node
//! has of the page, which stays what it is until the page has been mapped and swept again: so nobody sees half of a
//! hash.
//!
//! Invariant: if a page is `Remote`, the node has those of its bytes that its digest names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pagetable::{HASH_GRANULE_BYTES, PageHash, PageHasher};
use yonder_units::{PAGE_BYTES, PageIndex};
use zerocopy::FromZeros as _;

use yonder_units::{GRANULE_BYTES, Vector};

const _: () = assert!(GRANULE_BYTES.is_multiple_of(HASH_GRANULE_BYTES), "a segment can be hashed");

/// Words of a hash.
pub(crate) const HASH_WORDS: usize = 2;

/// A content, as far as it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digest {
    /// The bytes that count.
    pub(crate) vector: Vector,
    hash: PageHash,
}

impl Digest {
    #[inline]
    pub(crate) fn from_words(vector: u64, hash: [u64; HASH_WORDS]) -> Self {
        Self { vector: Vector::from_word(vector), hash: PageHash::from_words(hash) }
    }

    #[inline]
    pub(crate) fn to_words(self) -> (u64, [u64; HASH_WORDS]) {
        (self.vector.to_word(), self.hash.to_words())
    }

    /// Whether all that counts is zeros.
    #[inline]
    pub(crate) fn is_zeros(&self) -> bool {
        self.hash == PageHash::ZEROS
    }
}

/// What the node has of each page of a region.
pub(crate) struct Digests {
    hashes: Box<[[AtomicU64; HASH_WORDS]]>,
    /// Which bytes they are of; all of each page before the region's paging is guided.
    vectors: OnceLock<Box<[AtomicU64]>>,
    /// With the region's own key, so that nothing is known of collisions.
    hasher: PageHasher,
}

impl Digests {
    /// Of `pages` pages that the node has never been sent.
    pub(crate) fn new(pages: usize, hasher: PageHasher) -> Self {
        Self { hashes: zeroed(pages), vectors: OnceLock::new(), hasher }
    }

    /// From now on the node may have less than all of a page.
    pub(crate) fn keep_vectors(&self) {
        self.vectors.get_or_init(|| zeroed(self.hashes.len()));
    }

    /// The digest of a content of which the bytes of `vector` count.
    #[inline]
    pub(crate) fn of(&self, vector: Vector, content: &[u8; PAGE_BYTES]) -> Digest {
        Digest { vector, hash: self.hash(vector, content) }
    }

    /// What the node has of a page.
    #[inline]
    pub(crate) fn get(&self, page: PageIndex) -> Digest {
        let words = self.hashes[page.index()].each_ref().map(|word| word.load(Ordering::Acquire));
        Digest { vector: self.vector(page), hash: PageHash::from_words(words) }
    }

    /// Which bytes of a page the node has.
    #[inline]
    pub(crate) fn vector(&self, page: PageIndex) -> Vector {
        match self.vectors.get() {
            Some(vectors) => Vector::from_word(vectors[page.index()].load(Ordering::Acquire)),
            None => Vector::WHOLE,
        }
    }

    #[inline]
    pub(crate) fn set(&self, page: PageIndex, digest: Digest) {
        match self.vectors.get() {
            Some(vectors) => vectors[page.index()].store(digest.vector.to_word(), Ordering::Release),
            None => assert!(digest.vector == Vector::WHOLE, "a part of a page in a region whose paging is not guided"),
        }
        self.set_hash(page, digest.hash);
    }

    /// The node has zeros, or nothing.
    #[inline]
    pub(crate) fn forget(&self, page: PageIndex) {
        self.set_hash(page, PageHash::ZEROS);
    }

    #[inline]
    fn set_hash(&self, page: PageIndex, hash: PageHash) {
        for (word, value) in self.hashes[page.index()].iter().zip(hash.to_words()) {
            word.store(value, Ordering::Release);
        }
    }

    /// Notes that of what the node has of a page only the bytes of `digest` count any more, if that is all that sets it
    /// apart from `content`: what was freed since it was fetched makes no page dirty.
    pub(crate) fn narrow(&self, page: PageIndex, digest: Digest, content: &[u8; PAGE_BYTES]) {
        let node = self.get(page);
        if node.vector != digest.vector
            && node.vector.covers(digest.vector)
            && self.hash(node.vector, content) == node.hash
        {
            self.set(page, digest);
        }
    }

    /// Whether the bytes of `content` that the node has of a page are what the node has.
    #[inline]
    pub(crate) fn matches(&self, page: PageIndex, content: &[u8; PAGE_BYTES]) -> bool {
        let node = self.get(page);
        self.hash(node.vector, content) == node.hash
    }

    /// Local memory for each page, in bytes.
    pub(crate) fn bytes_per_page(&self) -> u64 {
        let words = HASH_WORDS + usize::from(self.vectors.get().is_some());
        (words * size_of::<u64>()) as u64
    }

    #[inline]
    fn hash(&self, vector: Vector, content: &[u8; PAGE_BYTES]) -> PageHash {
        if vector == Vector::WHOLE {
            return self.hasher.page(content);
        }
        let parts = vector.segments().map(|segment| self.hasher.part(segment, content));
        parts.fold(PageHash::ZEROS, PageHash::with)
    }
}

/// Zeros, backed where they are used: a region may be far larger than what is ever put into it.
fn zeroed<T: zerocopy::FromZeros>(pages: usize) -> Box<[T]> {
    <[T]>::new_box_zeroed_with_elems(pages).expect("some words a page are a small part of its region")
}

#[cfg(test)]
mod tests {
    use crate::pagetable::HASH_KEY_BYTES;
    use rand::rngs::SmallRng;
    use rand::{RngCore as _, SeedableRng as _};

    use super::*;

    const PAGE: PageIndex = PageIndex(1);

    fn content(fill: u8) -> [u8; PAGE_BYTES] {
        std::array::from_fn(|byte| byte as u8 ^ fill)
    }

    fn hasher() -> PageHasher {
        let mut key = [0; HASH_KEY_BYTES];
        SmallRng::seed_from_u64(42).fill_bytes(&mut key);
        PageHasher::new(&key)
    }

    fn guided() -> Digests {
        let digests = Digests::new(2, hasher());
        digests.keep_vectors();
        digests
    }

    #[test]
    fn what_does_not_count_makes_no_difference() {
        let (digests, vector) = (guided(), Vector::new([16..32, 512..2000]));
        let (one, mut two) = (content(1), content(2));
        vector.segments().for_each(|segment| two[segment.clone()].copy_from_slice(&one[segment]));
        assert_eq!(digests.of(vector, &one), digests.of(vector, &two));
        for byte in [16, 31, 512, 1999] {
            let mut other = two;
            other[byte] ^= 1;
            assert_ne!(digests.of(vector, &one), digests.of(vector, &other), "byte {byte}");
        }
        assert_ne!(digests.of(Vector::WHOLE, &one), digests.of(Vector::WHOLE, &two));
    }

    #[test]
    fn zeros_are_zeros_whichever_bytes_count() {
        let digests = guided();
        let mut page = [0; PAGE_BYTES];
        page[100] = 1;
        for (vector, expected) in
            [(Vector::WHOLE, false), (Vector::new([0..96, 112..4096]), true), (Vector::new([0..16, 96..112]), false)]
        {
            assert_eq!(digests.of(vector, &page).is_zeros(), expected, "{vector:?}");
        }
        assert!(digests.of(Vector::WHOLE, &[0; PAGE_BYTES]).is_zeros() && digests.get(PAGE).is_zeros());
    }

    #[test]
    fn less_of_the_same_is_what_the_node_has() {
        let (digests, page) = (guided(), content(1));
        let [all, part, other] =
            [vec![0..64, 128..256], vec![128..160, 160..192], vec![128..200, 200..320]].map(Vector::new);
        digests.set(PAGE, digests.of(all, &page));
        digests.narrow(PAGE, digests.of(other, &page), &page);
        assert_eq!(digests.get(PAGE), digests.of(all, &page), "the node has not got all of it");
        let mut changed = page;
        changed[0] ^= 1;
        digests.narrow(PAGE, digests.of(part, &changed), &changed);
        assert_eq!(digests.vector(PAGE), all, "what else the node has is not known to be the same");
        digests.narrow(PAGE, digests.of(part, &page), &page);
        assert_eq!(digests.get(PAGE), digests.of(part, &page));
        assert!(digests.matches(PAGE, &changed) && !digests.matches(PAGE, &content(2)));
    }

    #[test]
    #[should_panic(expected = "not guided")]
    fn a_part_of_a_page_is_never_forgotten_to_be_one() {
        let digests = Digests::new(2, hasher());
        digests.set(PAGE, digests.of(Vector::new([0..16, 32..48]), &content(1)));
    }
}
