//! What a range of an address space is to the slow path: where it may lie ([`Window`]), what it was allocated for
//! ([`Terms`]), and a range that is allocated ([`Allocated`]).
//!
//! Plain values; `allocator` keeps them and `slow_path` and `migration` look at them.

use yonder_wire::{Backing, Permission};

use crate::address::VirtualPage;

/// Address 0 is nobody's: it lies in the page before.
pub(crate) const FIRST_PAGE: u32 = 1;

/// What an allocation is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) permission: Permission,
    pub(crate) backing: Backing,
    /// Whether a client was told where its memory is, and so reaches it without the page table.
    pub(crate) exposed: Exposed,
}

/// Whether a client knows where an allocation's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exposed {
    No,
    Yes,
}

/// Pages that may be allocated, from `from` to before `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Window {
    /// Every page but that of address 0.
    pub(crate) const ALL: Self = Self { from: FIRST_PAGE, to: u32::MAX };

    pub(crate) fn new(from: u32, to: u32) -> Self {
        Self { from: from.max(FIRST_PAGE), to }
    }

    /// A single page.
    pub(crate) const fn page(page: VirtualPage) -> Self {
        Self { from: page.0, to: page.0.saturating_add(1) }
    }

    pub(crate) const fn pages(self) -> u32 {
        self.to.saturating_sub(self.from)
    }
}

/// An allocated range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocated {
    pub(crate) first: u32,
    pub(crate) pages: u32,
    pub(crate) terms: Terms,
}

impl Allocated {
    /// Its pages.
    pub(crate) fn each(self) -> impl Iterator<Item = VirtualPage> {
        (self.first..self.first + self.pages).map(VirtualPage)
    }
}
