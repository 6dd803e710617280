//! [`Unlinking`]: a free of many pages, or the end of an address space, that goes in pieces, so that no tenant waits
//! for another's.
//!
//! The range is no allocation any more when it begins: requests of the slow path find nothing there. Its pages are
//! taken out of the page table a piece at a time, by [`SlowPath::work`], between other requests. The request that asked
//! for it is refused as busy meanwhile, and so are its copies and its abort: whether it was executed is said when it
//! has been, and then as once for all.
//!
//! An allocation that waits for memory, in `allocation`, is work of the same kind.
//!
//! Invariant: a request whose work is under way is neither executed again nor aborted.

use std::ops::Range;

use yonder_wire::{ErrorCode, Header};

use crate::address::{Pid, VirtualPage};
use crate::messages::Outcome;
use crate::node_core::{PageSource, Upkeep};
use crate::range::Window;
use crate::recent::{NodeTime, Party};
use crate::slow_path::{Shell, SlowPath};

/// Pages that a node takes out of the page table in one piece: some tens of microseconds. A simulator takes fewer.
pub const PIECE_PAGES_MAX: u32 = 256;

/// What is left of one.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rest {
    /// Pages of a range that was freed.
    Range(Range<u32>),
    /// All that the address space has from a page on.
    Space(u32),
}

/// Work that was begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unlinking {
    pid: Pid,
    rest: Rest,
    /// The request that asked for it, if one did.
    asked: Option<Header>,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// There is nothing left of it.
    Done,
    /// [`SlowPath::work`] goes on with it.
    Begun,
}

impl Progress {
    /// What the request is answered now.
    pub(crate) fn result(self) -> Result<(), ErrorCode> {
        match self {
            Self::Done => Ok(()),
            Self::Begun => Err(ErrorCode::Busy),
        }
    }
}

impl SlowPath {
    /// Takes the pages of a range that the allocator has freed out of the page table.
    pub(crate) fn unlink_range(&mut self, pid: Pid, pages: Range<u32>, asked: Option<&Header>) -> Progress {
        self.begin(Unlinking { pid, rest: Rest::Range(pages), asked: asked.copied() })
    }

    /// Frees all that an address space has, which nobody can use any more.
    pub(crate) fn unlink_space(&mut self, pid: Pid, asked: Option<&Header>) -> Progress {
        self.begin(Unlinking { pid, rest: Rest::Space(0), asked: asked.copied() })
    }

    /// Whether the request with `header`, or the one that it aborts, is under way.
    #[must_use]
    pub fn is_under_way(&self, header: &Header) -> bool {
        let is_asked = |work: &Unlinking| work.asked.as_ref().is_some_and(|asked| asked.first_id == header.first_id);
        self.provisions.has(header.first_id) || self.unlinking.iter().any(is_asked)
    }

    /// Whether pages of a range that was freed may still be found there: they belong to no allocation, so they would
    /// neither move with the range nor be held up while it does.
    pub(crate) fn is_unlinking(&self, pid: Pid, pages: Window) -> bool {
        self.unlinking.iter().filter(|work| work.pid == pid).any(|work| match &work.rest {
            Rest::Range(rest) => rest.start < pages.to && pages.from < rest.end,
            Rest::Space(_) => true,
        })
    }

    /// Whether there is work that was begun and not finished.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.unlinking.is_empty() && self.provisions.is_empty())
    }

    /// One bounded piece of each kind of work that was begun, for another request each time, if there are several.
    /// Returns whether there is more: to be called between requests.
    pub fn work<M, P: PageSource, U: Upkeep>(&mut self, now: NodeTime, shell: &mut Shell<'_, M, P, U>) -> bool {
        self.unlink_next(now);
        self.work_on_provisions(now, shell);
        self.has_work()
    }

    fn unlink_next(&mut self, now: NodeTime) {
        let Some(mut work) = self.unlinking.pop_front() else { return };
        match self.unlink_piece(&mut work) {
            Progress::Begun => self.unlinking.push_back(work),
            Progress::Done => {
                if let Some(header) = &work.asked {
                    self.recent.keep_ended(Party::of(header), header, Ok(Outcome::Done), now);
                }
            }
        }
    }

    fn begin(&mut self, mut work: Unlinking) -> Progress {
        let progress = self.unlink_piece(&mut work);
        if progress == Progress::Begun {
            if let Some(header) = &work.asked {
                self.recent.begin(Party::of(header), header);
            }
            self.unlinking.push_back(work);
        }
        progress
    }

    fn unlink_piece(&mut self, work: &mut Unlinking) -> Progress {
        let mut left = self.board.config.piece_pages_max;
        match &mut work.rest {
            Rest::Range(pages) => {
                self.unlink_some(work.pid, pages, &mut left);
                if pages.start == pages.end { Progress::Done } else { Progress::Begun }
            }
            Rest::Space(from) => {
                while let Some(range) = self.allocator.first_allocated(work.pid, *from) {
                    if left == 0 {
                        return Progress::Begun;
                    }
                    // Nothing is allocated there any more, so what was passed is passed for good.
                    *from = range.first + range.pages;
                    let mut pages = range.first..range.first + range.pages;
                    self.allocator.begin_free(work.pid, VirtualPage(range.first)).expect("it was found just now");
                    self.unlink_some(work.pid, &mut pages, &mut left);
                    if pages.start < pages.end {
                        let rest = Unlinking { pid: work.pid, rest: Rest::Range(pages), asked: None };
                        // The rest of the range first, then the rest of the address space.
                        self.unlinking.push_front(rest);
                        return Progress::Begun;
                    }
                }
                if self.unlinking.iter().any(|other| other.pid == work.pid) {
                    return Progress::Begun;
                }
                self.space_has_ended(work.pid);
                Progress::Done
            }
        }
    }

    /// Takes at most `left` of the first of `pages` out of the page table.
    fn unlink_some(&mut self, pid: Pid, pages: &mut Range<u32>, left: &mut u32) {
        let piece = (pages.end - pages.start).min(*left);
        if piece > 0 {
            let freed = self.allocator.unlink(pid, VirtualPage(pages.start), piece);
            self.retire(freed);
            pages.start += piece;
            *left -= piece;
        }
    }
}
