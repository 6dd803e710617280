//! [`Memory`]: the model of memory that the kernel maps: regions with userfaultfd, the frames, and far memory that a
//! fabric maps.
//!
//! A page of a region is missing or mapped, and if it is mapped, perhaps write-protected or damaged; a program may have
//! protected it against reading. A page of other memory is backed or not, and reads as zeros if not. Every change
//! counts what the kernel backs, which is what the limit of local memory is about.

use std::cell::Cell;
use std::sync::Mutex;

use yonder_units::PAGE_BYTES;

use crate::world::violate;

thread_local! {
    /// Pages that the kernel backs: mapped ones, and frames. Apart from the world, which looks at memory.
    static BACKED: Cell<i64> = const { Cell::new(0) };
}

/// Pages that the kernel backs.
pub(crate) fn backed() -> u64 {
    BACKED.get() as u64
}

/// The kernel backs nothing: a seed begins.
pub(crate) fn begin() {
    BACKED.set(0);
}

/// The bytes of a page.
pub(crate) type Bytes = Box<[u8; PAGE_BYTES]>;

/// Which memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Region,
    Frames,
    Far,
}

/// A range of memory of the model.
pub(crate) struct Memory {
    pub(crate) kind: Kind,
    pub(crate) address: usize,
    pages: Mutex<Vec<Page>>,
}

#[derive(Default)]
struct Page {
    /// The content; none if the page is missing or not backed.
    bytes: Option<Bytes>,
    is_protected: bool,
    is_damaged: bool,
    /// Whether a program has protected it against reading, mapped or not.
    is_hidden: bool,
    /// Whether the kernel maps it when it is touched, and tells nobody.
    is_lent: bool,
}

/// What an access of a region comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access<T> {
    Done(T),
    Missing,
    Damaged,
    Hidden,
}

pub(crate) fn zeros() -> Bytes {
    Box::new([0; PAGE_BYTES])
}

/// The page that `offset` is in, and where in it.
fn place(offset: u64) -> (usize, usize) {
    ((offset / PAGE_BYTES as u64) as usize, (offset % PAGE_BYTES as u64) as usize)
}

impl Memory {
    pub(crate) fn new(kind: Kind, address: usize, pages: usize) -> Self {
        Self { kind, address, pages: Mutex::new((0..pages).map(|_| Page::default()).collect()) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.lock().expect("no panic").len() * PAGE_BYTES
    }

    fn page<T>(&self, page: usize, look: impl FnOnce(&mut Page) -> T) -> T {
        look(&mut self.pages.lock().expect("no panic")[page])
    }

    /// The kernel backs a page more.
    fn back(&self) {
        if self.kind != Kind::Far {
            BACKED.set(BACKED.get() + 1);
        }
    }

    fn unback(&self) {
        if self.kind != Kind::Far {
            BACKED.set(BACKED.get() - 1);
        }
    }

    /// Copies bytes out, of memory that is no region or of a page that is mapped.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let (page, at) = place(offset);
        let found = self.page(page, |page| match &page.bytes {
            Some(_) if page.is_hidden => false,
            Some(bytes) => {
                into.copy_from_slice(&bytes[at..at + into.len()]);
                true
            }
            None => {
                into.fill(0);
                self.kind != Kind::Region
            }
        });
        if !found {
            violate(format!("page {page} is read by the pager and cannot be"));
        }
    }

    /// Copies bytes into memory that is no region.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) {
        let (page, at) = place(offset);
        let is_new = self.page(page, |page| {
            let is_new = page.bytes.is_none();
            page.bytes.get_or_insert_with(zeros)[at..at + from.len()].copy_from_slice(from);
            is_new
        });
        if is_new {
            self.back();
        }
    }

    /// The content of a page of memory that is no region.
    pub(crate) fn content(&self, offset: u64) -> Bytes {
        self.page(place(offset).0, |page| page.bytes.clone()).unwrap_or_else(zeros)
    }

    /// Replaces the content of a page of memory that is no region.
    pub(crate) fn fill(&self, offset: u64, bytes: Bytes) {
        if self.page(place(offset).0, |page| page.bytes.replace(bytes)).is_none() {
            self.back();
        }
    }

    /// Calls `visit` with the content of a page.
    pub(crate) fn visit<T>(&self, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        self.page(place(offset).0, |page| visit(page.bytes.as_deref().unwrap_or(&ZEROS)))
    }

    /// The content of a page of a region, as whoever sweeps it reads it.
    pub(crate) fn sweep(&self, offset: u64) -> Access<Bytes> {
        self.page(place(offset).0, |page| match &page.bytes {
            _ if page.is_hidden => Access::Hidden,
            Some(_) if page.is_damaged => Access::Damaged,
            Some(bytes) => Access::Done(bytes.clone()),
            None => Access::Missing,
        })
    }

    /// Takes the backing of a page away.
    pub(crate) fn drop_page(&self, page: usize) {
        let before = self.page(page, |page| {
            (page.is_protected, page.is_damaged) = (false, false);
            page.bytes.take()
        });
        if before.is_some() {
            self.unback();
        }
    }

    /// Maps a page; false if one is mapped.
    pub(crate) fn map(&self, offset: u64, bytes: Bytes) -> bool {
        if self.is_lent(place(offset).0) {
            violate(format!("page {} is installed and lent", place(offset).0));
        }
        let is_new = self.page(place(offset).0, |page| {
            let is_new = page.bytes.is_none();
            if is_new {
                (page.bytes, page.is_protected, page.is_damaged) = (Some(bytes), false, false);
            }
            is_new
        });
        if is_new {
            self.back();
        }
        is_new
    }

    pub(crate) fn protect(&self, page: usize) {
        if self.is_lent(page) {
            violate(format!("page {page} is swept and lent"));
        }
        self.page(page, |page| page.is_protected = page.bytes.is_some());
    }

    pub(crate) fn is_mapped(&self, page: usize) -> bool {
        self.page(page, |page| page.bytes.is_some())
    }

    pub(crate) fn is_protected(&self, page: usize) -> bool {
        self.page(page, |page| page.is_protected)
    }

    pub(crate) fn unprotect(&self, page: usize) {
        self.page(page, |page| page.is_protected = false);
    }

    /// A program protects a page against reading, or does so no more.
    pub(crate) fn hide(&self, page: usize, is_hidden: bool) {
        self.page(page, |page| page.is_hidden = is_hidden);
    }

    /// Damages a page, if it is mapped; whether it was.
    pub(crate) fn damage(&self, page: usize) -> bool {
        self.page(page, |page| {
            page.is_damaged = page.bytes.is_some();
            page.is_damaged
        })
    }

    /// Leaves a page to the kernel, or takes it back: whether it is mapped.
    pub(crate) fn lend(&self, page: usize, is_lent: bool) -> bool {
        self.page(page, |page| page.is_lent = is_lent);
        self.is_mapped(page)
    }

    /// All pages are in the range of a userfaultfd: that of a forked child.
    pub(crate) fn recall_all(&self) {
        self.pages.lock().expect("no panic").iter_mut().for_each(|page| page.is_lent = false);
    }

    pub(crate) fn is_lent(&self, page: usize) -> bool {
        self.page(page, |page| page.is_lent)
    }

    /// A program touches a page: if it is lent and missing, the kernel maps it.
    pub(crate) fn touch(&self, page: usize) {
        let is_new = self.page(page, |page| {
            let is_new = page.is_lent && page.bytes.is_none() && !page.is_hidden;
            if is_new {
                page.bytes = Some(zeros());
            }
            is_new
        });
        if is_new {
            self.back();
            crate::oracle::check_limit();
        }
    }

    /// A load of a program.
    pub(crate) fn load(&self, offset: u64) -> Access<u64> {
        let (page, at) = place(offset);
        self.touch(page);
        self.page(page, |page| match &page.bytes {
            _ if page.is_hidden => Access::Hidden,
            Some(_) if page.is_damaged => Access::Damaged,
            Some(bytes) => Access::Done(u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))),
            None => Access::Missing,
        })
    }

    /// A store of a program.
    pub(crate) fn store(&self, offset: u64, value: u64) -> Access<()> {
        let (page, at) = place(offset);
        self.touch(page);
        self.page(page, |page| match &mut page.bytes {
            _ if page.is_hidden => Access::Hidden,
            Some(_) if page.is_damaged => Access::Damaged,
            Some(bytes) if !page.is_protected => {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                Access::Done(())
            }
            Some(_) | None => Access::Missing,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What is left mapped goes with its region.
        let backed = self.pages.get_mut().map_or(0, |pages| pages.iter().filter(|page| page.bytes.is_some()).count());
        if self.kind != Kind::Far && backed > 0 {
            BACKED.set(BACKED.get() - backed as i64);
        }
    }
}
