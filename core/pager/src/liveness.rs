//! [`Liveness`]: what a region's owner says of its pages, so that only what is live of them travels.
//!
//! Guided paging is DiLOS' (section 4.4): the allocator knows which bytes of a page somebody still needs. The evictor
//! asks for those of each page that it puts on standby; they alone are compared with what the node has, written to it,
//! and fetched from it later. A page of which nothing is live is forgotten.
//!
//! DiLOS keeps the segments in the entries of its page table. Here they stand beside the hash of what the node has
//! (`digest`), because they are needed also while the page is local: a page of which something was freed and nothing
//! stored is clean, and only who knows what the node has of it can tell.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use yonder_heap::PageMap;
use yonder_units::{PageIndex, Vector};

/// Which bytes of a region's pages are live.
///
/// It is asked by the reclaimer, so it must neither wait nor panic nor touch far memory.
pub trait Liveness: Send + Sync {
    /// The bytes of `page` that have to be kept: all others may read as anything once the page has been away;
    /// `None` if none has.
    ///
    /// While it is asked, no store reaches the page: the answer has to have every byte that was stored before and that
    /// somebody still needs. What is stored later is none of its concern.
    fn live(&self, page: PageIndex) -> Option<Vector>;

    /// How many pages the object has that begins with `page`, if one does and that is known: who touches its first page
    /// will probably want them all. Asked on the fault path.
    fn object_at(&self, _page: PageIndex) -> Option<u32> {
        None
    }

    /// The pages of the small object that the byte at `offset` belongs to, if it lies in several and that is known: who
    /// touches one of them will probably want the others. Asked on the fault path.
    fn small_object_at(&self, _offset: u64) -> Option<Range<u32>> {
        None
    }
}

/// Of a region whose bytes are the heap's, the first page for the first. See [`PageMap`] for why no lock is needed.
impl Liveness for PageMap {
    fn live(&self, page: PageIndex) -> Option<Vector> {
        Self::live(self, page)
    }

    fn object_at(&self, page: PageIndex) -> Option<u32> {
        self.run_at(page)
    }

    fn small_object_at(&self, offset: u64) -> Option<Range<u32>> {
        self.pages_of_object(offset)
    }
}

/// Who owns a region, if that is told: its [`Liveness`].
#[derive(Default)]
pub(crate) struct Owner(OnceLock<Arc<dyn Liveness>>);

impl Owner {
    /// False if there is one already.
    pub(crate) fn set(&self, liveness: Arc<dyn Liveness>) -> bool {
        self.0.set(liveness).is_ok()
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// See [`Liveness::object_at`].
    #[inline]
    pub(crate) fn object_at(&self, page: PageIndex) -> Option<u32> {
        self.0.get()?.object_at(page)
    }

    /// See [`Liveness::small_object_at`].
    #[inline]
    pub(crate) fn small_object_at(&self, offset: u64) -> Option<Range<u32>> {
        self.0.get()?.small_object_at(offset)
    }

    /// What has to be kept of a page that no store can reach; `None` if nothing.
    pub(crate) fn live(&self, page: PageIndex) -> Option<Vector> {
        self.0.get().map_or(Some(Vector::WHOLE), |liveness| liveness.live(page))
    }
}
