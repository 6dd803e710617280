//! [`event!`]: tells of what holds faults up.
//!
//! With the feature `tracing` an event goes to the subscriber of the thread. Without it, which is the default, the
//! macro is nothing: its arguments are not even evaluated.
//!
//! A fault may be served in the handler of a signal, in the middle of anything. A subscriber that allocates or locks is
//! for programs whose faults come by probes, or for a debugging session that may deadlock.

/// An event of `tracing`, at this level.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($event:tt)*) => { tracing::$level!($($event)*) };
}

/// Nothing.
#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($event:tt)*) => {{}};
}

pub(crate) use event;

#[cfg(all(test, feature = "tracing", not(yonder_loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};
    use yonder_units::{BLOCK_PAGES, BlockIndex};

    use crate::error::PagingCause;
    use crate::fake;
    use crate::reclaim::{LIMIT_PAGES_MIN, Policy, Shares};

    /// Keeps the events that it gets.
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Recorder {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(format!("{event:?}"));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// The events of `work`.
    fn events_of(work: impl FnOnce()) -> Vec<String> {
        let events = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Recorder(Arc::clone(&events)), work);
        std::mem::take(&mut *events.lock().unwrap())
    }

    #[test]
    fn a_fault_that_waits_for_local_memory_is_told_once() {
        let region = fake::region(BLOCK_PAGES as u32 + 64);
        region.pager.sweep_block(&region, BlockIndex(1));
        region.pager.set_policy(&Policy::new(LIMIT_PAGES_MIN, Shares::default()).unwrap());
        let page = BlockIndex(1).first_page();
        let events = events_of(|| assert_eq!(region.bring(page.offset()), Err(PagingCause::LocalMemoryFull)));
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            events[0].contains("a fault waits for local memory") && events[0].contains(&page.0.to_string()),
            "{events:?}"
        );
    }

    #[test]
    fn a_node_is_lost_once_and_back_once() {
        let region = fake::region(1);
        let node = &region.pager.node;
        let events = events_of(|| {
            node.answered();
            (0..2).for_each(|_| node.lost());
            (0..2).for_each(|_| node.answered());
        });
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[0].contains("the node is lost") && events[1].contains("the node is back"), "{events:?}");
    }
}
