//! [`FetchReservation`]: the local memory that a fetch has from its start to its end.

use yonder_units::FrameIndex;

use crate::budget::Account;
use crate::fault::Wants;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::queue_pair::ReadInto;

/// What was taken for a page that is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FetchReservation {
    /// A charged page; its bytes stay where far memory is mapped until they are copied into it.
    Page,
    /// A charged page, and the frame in which its bytes arrive.
    PageByFrame(FrameIndex),
    /// The frame in which the page will stay: it arrives there, or where far memory is mapped.
    Frame(FrameIndex),
}

impl FetchReservation {
    /// What a fetch needs on behalf of somebody who wants this of the page; `None` if local memory is full.
    #[inline]
    pub(crate) fn take<M: Machine>(pager: &Pager<M>, wants: Wants) -> Option<Self> {
        let take_frame = || pager.local.frames.take(&pager.local.budget, Account::Fault);
        if wants == Wants::Bytes {
            return take_frame().map(Self::Frame);
        }
        if !pager.local.budget.charge(Account::Fault) {
            return None;
        }
        if !pager.fetches_into_frames() {
            return Some(Self::Page);
        }
        let frame = take_frame();
        if frame.is_none() {
            pager.local.budget.uncharge(1);
        }
        frame.map(Self::PageByFrame)
    }

    /// The fetch came to nothing.
    #[inline]
    pub(crate) fn give_back<M: Machine>(self, pager: &Pager<M>) {
        if let Self::Page | Self::PageByFrame(_) = self {
            pager.local.budget.uncharge(1);
        }
        if let Self::PageByFrame(frame) | Self::Frame(frame) = self {
            pager.local.frames.release(frame);
        }
    }

    /// The page has been installed: what was taken for it is its own now.
    #[inline]
    pub(super) fn finished<M: Machine>(self, pager: &Pager<M>) {
        if let Self::PageByFrame(frame) = self {
            pager.local.frames.release(frame);
        }
    }

    /// The frame in which the bytes arrive; `None` if they stay where far memory is mapped until the page is installed.
    #[inline]
    pub(super) fn arrives_in<M: Machine>(self, pager: &Pager<M>) -> Option<FrameIndex> {
        match self {
            Self::Page => None,
            Self::PageByFrame(frame) => Some(frame),
            Self::Frame(frame) => pager.fetches_into_frames().then_some(frame),
        }
    }

    /// Where the read puts the bytes.
    #[inline]
    pub(super) fn read_into<M: Machine>(self, pager: &Pager<M>) -> ReadInto {
        self.arrives_in(pager).map_or(ReadInto::Mapped, ReadInto::Frame)
    }
}
