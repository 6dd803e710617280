//! [`NodeSession`]: whether a node still is the one that has this client's memory.
//!
//! It is shared by all lanes to a node. The first welcome says which incarnation of the node that is; a welcome of
//! another one means that the memory is gone, and so does a refused capability. From then on the node is lost for good,
//! because an address of the new incarnation would read as somebody else's bytes instead of failing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_wire::Welcome;

/// One node, as its client knows it.
#[derive(Default, Debug)]
pub struct NodeSession {
    incarnation: OnceLock<u64>,
    is_lost: AtomicBool,
}

impl NodeSession {
    /// Notes a welcome. False if the node is lost.
    pub(crate) fn accept(&self, welcome: &Welcome) -> bool {
        if *self.incarnation.get_or_init(|| welcome.incarnation) != welcome.incarnation {
            self.lose();
        }
        !self.is_lost()
    }

    /// Gives the node up for good.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// Whether the node was given up.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_incarnation_is_never_accepted() {
        let welcome = |incarnation| Welcome { home: 0, page_bytes: 4096, memory_bytes: 4096, incarnation };
        let standing = NodeSession::default();
        assert!(standing.accept(&welcome(1)) && standing.accept(&welcome(1)));
        assert!(!standing.accept(&welcome(2)));
        assert!(!standing.accept(&welcome(1)), "a node that was lost is trusted again");
    }
}
