//! [`Turn`]: what a port works with while it does one thing after another at one time.
//!
//! Invariant: `now` is what the caller read, or was given, when the turn began. Code that has to know how late it is
//! since then reads the clock itself.

use yonder_units::Nanos;

use crate::machine::Machine;
use crate::pager::Pager;
use crate::port::Port;

/// A port, its pager, and the time: see the head of this file.
pub(crate) struct Turn<'a, M: Machine> {
    pub(crate) port: &'a Port<M>,
    pub(crate) pager: &'a Pager<M>,
    pub(crate) now: Nanos,
}

impl<M: Machine> Clone for Turn<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Turn<'_, M> {}
