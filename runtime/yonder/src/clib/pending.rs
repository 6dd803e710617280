//! What was begun and has not ended: [`Pending`], [`PendingAllocation`] and [`PendingFree`], all of them [`Begun`].

use std::marker::PhantomData;

use super::ClibError;
use super::table::{Completed, Content, Index};

/// An asynchronous operation, as [`Thread::rpoll`](super::Thread::rpoll) and [`Thread::rwait`](super::Thread::rwait)
/// take it.
pub trait Begun<B>: Sized + Sealed {
    /// What it comes to.
    type Completed;

    /// What it has come to, out of what the thread has kept for it.
    #[doc(hidden)]
    fn completed(content: Content<B>, result: Result<(), ClibError>) -> Self::Completed;
}

/// Its place in the thread's table. Nothing outside implements it.
pub trait Sealed {
    #[doc(hidden)]
    fn index(&self) -> Index;
}

/// An asynchronous read or write whose result was not taken yet. Its buffer stays with the thread if it is dropped.
#[must_use = "its result is never seen, and its place never free again"]
#[derive(Debug)]
pub struct Pending<B> {
    index: Index,
    buffer: PhantomData<B>,
}

/// An asynchronous allocation whose result was not taken yet: the address, or why there is none. If it is dropped
/// nobody learns the address, and the memory is free again when the address space ends.
#[must_use = "its address is never seen, and its place never free again"]
#[derive(Debug)]
pub struct PendingAllocation {
    index: Index,
}

/// An asynchronous release whose result was not taken yet. It is executed if it is dropped, too.
#[must_use = "its result is never seen, and its place never free again"]
#[derive(Debug)]
pub struct PendingFree {
    index: Index,
}

impl<B> Pending<B> {
    pub(super) fn new(index: Index) -> Self {
        Self { index, buffer: PhantomData }
    }
}

impl PendingAllocation {
    pub(super) fn new(index: Index) -> Self {
        Self { index }
    }
}

impl PendingFree {
    pub(super) fn new(index: Index) -> Self {
        Self { index }
    }
}

impl<B> Sealed for Pending<B> {
    fn index(&self) -> Index {
        self.index
    }
}

impl Sealed for PendingAllocation {
    fn index(&self) -> Index {
        self.index
    }
}

impl Sealed for PendingFree {
    fn index(&self) -> Index {
        self.index
    }
}

/// What is said of an operation that is asked of a thread that did not begin it.
const STRANGER: &str = "an operation is asked for at the thread that began it";

impl<B> Begun<B> for Pending<B> {
    type Completed = Completed<B>;

    fn completed(content: Content<B>, result: Result<(), ClibError>) -> Completed<B> {
        let Content::Buffer(buffer) = content else { panic!("{STRANGER}") };
        Completed { buffer, result }
    }
}

impl<B> Begun<B> for PendingAllocation {
    type Completed = Result<u64, ClibError>;

    fn completed(content: Content<B>, result: Result<(), ClibError>) -> Result<u64, ClibError> {
        let Content::Allocation(allocation) = content else { panic!("{STRANGER}") };
        result.map(|()| allocation.address)
    }
}

impl<B> Begun<B> for PendingFree {
    type Completed = Result<(), ClibError>;

    fn completed(content: Content<B>, result: Result<(), ClibError>) -> Result<(), ClibError> {
        assert!(matches!(content, Content::Free), "{STRANGER}");
        result
    }
}
