//! What a lane tells of: see `event` in the library. With the feature `tracing` alone.

use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use yonder_client::{Config, Transport, WindowConfig};
use yonder_wire::Kind;

use crate::lane::{Lane, small};

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

fn assert_event(events: &[String], what: &str) {
    assert!(events.len() == 1 && events[0].contains(what), "{what:?} is not the event: {events:?}");
}

#[test]
fn what_holds_a_lane_up_is_told() {
    let config = small(Transport::Datagram);
    let window = WindowConfig { packets_initial: 1.0, ..config.window };
    let mut lane = Lane::with_clock(Config { window, ..config });
    lane.submit(Kind::Write, 0, 8, 1);
    assert_event(&events_of(|| _ = lane.submit(Kind::Write, 0, 8, 2)), "an operation waits for others on its pages");
    lane.submit(Kind::Write, 512, 8, 3);
    assert!(lane.transmit().is_some());
    assert_event(&events_of(|| assert!(lane.transmit().is_none())), "its window is full");
    // The answer does not come.
    assert_event(&events_of(|| lane.wait()), "the congestion window collapses");
}
