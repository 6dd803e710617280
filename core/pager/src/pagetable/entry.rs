//! [`Entry`]: one page's word, its states and its transitions.

use yonder_units::FrameIndex;

/// One page's word. All zeros is an untouched page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u64);

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Never written: reads as zeros, neither here nor on the node.
    Untouched,
    /// On the node only, all of it or what is live of it.
    Remote,
    /// A read of the page is outstanding at slot `slot` of port `port`.
    Fetching {
        /// The port whose queue pair reads the page.
        port: u16,
        /// The port's fetch slot, where waiters join.
        slot: u16,
    },
    /// A thread is mapping the page from a local source.
    Installing(Source),
    /// Mapped in the region.
    Resident,
    /// Lent to the kernel with its whole block: it maps the page as zeros when it is touched, and tells nobody. What is
    /// there is newer than all that the node has.
    Lent,
    /// Being swept: readers may still have it mapped, writers and missing accesses wait.
    Evicting,
    /// Unmapped, with its content in a local frame: the second chance, or what was fetched only to be read.
    Standby(FrameIndex),
    /// Lost: every touch is a paging error with this code.
    Poisoned(u32),
}

/// Where an install without a fetch takes the content from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The page was untouched.
    Zeros,
    /// The page was on standby in this frame.
    Frame(FrameIndex),
}

/// What can happen to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A fault on a remote page takes it over and posts a read.
    Fetch {
        /// The port that posts.
        port: u16,
        /// The slot of the fetch.
        slot: u16,
    },
    /// The read failed for good; somebody else may try again.
    FetchFailed,
    /// The page has arrived in a frame and stays there: nobody needs it mapped.
    Arrived(FrameIndex),
    /// A fault on an untouched or standby page takes it over.
    Install,
    /// The kernel would not map the page now; it is what it was before.
    InstallFailed,
    /// The page has been mapped.
    Installed,
    /// The evictor takes the page.
    Evict,
    /// The kernel would not write-protect or unmap the page: it stays as it was.
    EvictFailed,
    /// The evictor has copied the page to a frame and unmapped it.
    Evicted(FrameIndex),
    /// The sealed page, which the node has, is unmapped.
    Dropped,
    /// The cleaner found the node's copy equal; the frame is free.
    Clean,
    /// The cleaner found nothing but zeros on both sides; the frame is free.
    CleanZeros,
    /// A write of the standby frame has been posted.
    Write,
    /// The write has ended, well or badly.
    WriteEnded,
    /// The page's range was freed by the application, or nothing of the page is needed any more.
    Free,
    /// The page is lost: the node's copy is not what was written, or the memory under the only copy is damaged.
    Poison(u32),
    /// The untouched page is lent to the kernel.
    Lend,
    /// The lent page is taken back, and the kernel has mapped it.
    Recall,
    /// The lent page is taken back, and the kernel has not mapped it.
    RecallUntouched,
}

const TAG_MASK: u64 = 0xF;
/// A write of an earlier content of the page is on its way to the node.
const WRITE_IN_FLIGHT: u64 = 1 << 4;
/// State-specific payload.
const PAYLOAD_SHIFT: u32 = 32;
/// Bits of no meaning.
const UNUSED: u64 = ((1 << PAYLOAD_SHIFT) - 1) & !(TAG_MASK | WRITE_IN_FLIGHT);

const UNTOUCHED: u64 = 0;
const REMOTE: u64 = 1;
const FETCHING: u64 = 2;
const INSTALLING_ZEROS: u64 = 3;
const INSTALLING_FRAME: u64 = 4;
const RESIDENT: u64 = 5;
const EVICTING: u64 = 6;
const STANDBY: u64 = 7;
const POISONED: u64 = 8;
/// As a resident page, but for one bit: accesses ask whether a page is either.
const LENT: u64 = RESIDENT | (ACCESSIBLE_MASK + 1);
const ACCESSIBLE_MASK: u64 = 7;
const _: () = assert!(LENT & !TAG_MASK == 0 && LENT != POISONED);

impl Entry {
    /// Where the page is.
    #[must_use]
    pub fn state(self) -> State {
        let payload = (self.0 >> PAYLOAD_SHIFT) as u32;
        match self.0 & TAG_MASK {
            UNTOUCHED => State::Untouched,
            REMOTE => State::Remote,
            FETCHING => State::Fetching { port: (payload >> 16) as u16, slot: payload as u16 },
            INSTALLING_ZEROS => State::Installing(Source::Zeros),
            INSTALLING_FRAME => State::Installing(Source::Frame(FrameIndex(payload))),
            RESIDENT => State::Resident,
            EVICTING => State::Evicting,
            STANDBY => State::Standby(FrameIndex(payload)),
            POISONED => State::Poisoned(payload),
            LENT => State::Lent,
            tag => unreachable!("no entry has tag {tag}"),
        }
    }

    /// Whether a write of the page, of this or an earlier content, is outstanding.
    #[must_use]
    pub fn write_in_flight(self) -> bool {
        self.0 & WRITE_IN_FLIGHT != 0
    }

    /// Whether the page is mapped and nobody is about to take it away.
    #[must_use]
    #[inline]
    pub fn is_resident(self) -> bool {
        self.0 & TAG_MASK == RESIDENT
    }

    /// Whether nothing was ever written there.
    #[must_use]
    #[inline]
    pub fn is_untouched(self) -> bool {
        self.0 & TAG_MASK == UNTOUCHED
    }

    /// Whether an access of the page needs nothing of the pager: it is mapped, or the kernel maps it.
    #[must_use]
    #[inline]
    pub fn is_accessible(self) -> bool {
        self.0 & ACCESSIBLE_MASK == RESIDENT
    }

    /// The entry after `event`, or `None` if the event cannot happen in this state. The one transition function.
    #[must_use]
    pub fn on(self, event: Event) -> Option<Self> {
        let writing = self.write_in_flight();
        let next = match (self.state(), event) {
            (State::Remote, Event::Fetch { port, slot }) => State::Fetching { port, slot },
            (State::Fetching { .. }, Event::FetchFailed) => State::Remote,
            (State::Fetching { .. }, Event::Arrived(frame)) => State::Standby(frame),
            (State::Fetching { .. } | State::Installing(_), Event::Installed) => State::Resident,
            (State::Untouched, Event::Install) => State::Installing(Source::Zeros),
            (State::Standby(frame), Event::Install) => State::Installing(Source::Frame(frame)),
            (State::Installing(Source::Zeros), Event::InstallFailed) => State::Untouched,
            (State::Installing(Source::Frame(frame)), Event::InstallFailed) => State::Standby(frame),
            (State::Resident, Event::Evict) => State::Evicting,
            (State::Evicting, Event::EvictFailed) => State::Resident,
            (State::Evicting, Event::Evicted(frame)) => State::Standby(frame),
            (State::Evicting, Event::Dropped) if !writing => State::Remote,
            (State::Standby(_), Event::Clean) if !writing => State::Remote,
            (State::Standby(_), Event::CleanZeros) if !writing => State::Untouched,
            (State::Standby(_), Event::Write) if !writing => return Some(Self(self.0 | WRITE_IN_FLIGHT)),
            (_, Event::WriteEnded) if writing => return Some(Self(self.0 & !WRITE_IN_FLIGHT)),
            (State::Untouched | State::Remote | State::Evicting | State::Standby(_), Event::Free) if !writing => {
                State::Untouched
            }
            (State::Poisoned(_), Event::Free) if !writing => State::Untouched,
            (State::Fetching { .. } | State::Evicting, Event::Poison(code)) => State::Poisoned(code),
            (State::Untouched, Event::Lend) if !writing => State::Lent,
            (State::Lent, Event::Recall) => State::Resident,
            (State::Lent, Event::RecallUntouched) => State::Untouched,
            _ => return None,
        };
        let entry = Self(encode(next) | (self.0 & WRITE_IN_FLIGHT));
        debug_assert!(entry.state() == next && entry.write_in_flight() == writing, "{next:?} became {entry:?}");
        Some(entry)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        debug_assert!(
            bits & UNUSED == 0 && (bits & TAG_MASK <= POISONED || bits & TAG_MASK == LENT),
            "{bits:#x} is no entry"
        );
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

fn encode(state: State) -> u64 {
    let payload = |value: u32| u64::from(value) << PAYLOAD_SHIFT;
    match state {
        State::Untouched => UNTOUCHED,
        State::Remote => REMOTE,
        State::Fetching { port, slot } => FETCHING | payload(u32::from(port) << 16 | u32::from(slot)),
        State::Installing(Source::Zeros) => INSTALLING_ZEROS,
        State::Installing(Source::Frame(frame)) => INSTALLING_FRAME | payload(frame.0),
        State::Resident => RESIDENT,
        State::Evicting => EVICTING,
        State::Standby(frame) => STANDBY | payload(frame.0),
        State::Poisoned(code) => POISONED | payload(code),
        State::Lent => LENT,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            (any::<u16>(), any::<u16>()).prop_map(|(port, slot)| Event::Fetch { port, slot }),
            any::<u32>().prop_map(|frame| Event::Arrived(FrameIndex(frame))),
            any::<u32>().prop_map(|frame| Event::Evicted(FrameIndex(frame))),
            any::<u32>().prop_map(Event::Poison),
            prop::sample::select(vec![
                Event::FetchFailed,
                Event::Install,
                Event::InstallFailed,
                Event::Installed,
                Event::Evict,
                Event::EvictFailed,
                Event::Dropped,
                Event::Clean,
                Event::CleanZeros,
                Event::Write,
                Event::WriteEnded,
                Event::Free,
                Event::Lend,
                Event::Recall,
                Event::RecallUntouched,
            ]),
        ]
    }

    /// Walks random events and keeps, beside the entry, where the only good copy of the page is.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Truth {
        /// The node's copy (or zeros) is the page.
        Node,
        /// Mapped or in a frame, and perhaps newer than the node's.
        Local,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]
        #[test]
        fn no_walk_forgets_a_local_copy_under_a_write(walk in prop::collection::vec(events(), 1..200)) {
            let (mut entry, mut truth) = (Entry(UNTOUCHED), Truth::Node);
            for event in walk {
                let Some(next) = entry.on(event) else { continue };
                match event {
                    Event::Installed | Event::Lend => truth = Truth::Local,
                    // The kernel has said that there is nothing.
                    Event::RecallUntouched => truth = Truth::Node,
                    // Nothing is forgotten that could still be had, and no touch will see anything else in its place.
                    Event::Poison(_) => {
                        let owned = matches!(entry.state(), State::Fetching { .. } | State::Evicting);
                        prop_assert!(owned && matches!(next.state(), State::Poisoned(_)), "{entry:?} -{event:?}-> {next:?}");
                        truth = Truth::Node;
                    }
                    Event::Clean | Event::CleanZeros | Event::Dropped | Event::Free => {
                        prop_assert!(!entry.write_in_flight(), "{entry:?} forgot a write on {event:?}");
                        truth = Truth::Node;
                    }
                    // A second write must never overtake the first.
                    Event::Write => prop_assert!(!entry.write_in_flight()),
                    _ => {}
                }
                // What is lost stays so until its owner gives it up.
                let given_up = matches!(event, Event::Free | Event::WriteEnded);
                prop_assert!(!matches!(entry.state(), State::Poisoned(_)) || given_up, "{entry:?} -{event:?}-> {next:?}");
                // Only the cleaner, a sealed drop or a free may leave the node with the only copy.
                let remote = matches!(next.state(), State::Remote | State::Untouched | State::Fetching { .. } | State::Poisoned(_));
                let zeros = matches!(next.state(), State::Installing(Source::Zeros));
                prop_assert!(!(remote || zeros) || truth == Truth::Node, "{entry:?} -{event:?}-> {next:?} lost the page");
                entry = next;
            }
        }

        #[test]
        fn states_survive_encoding(payload in any::<u32>(), flag in any::<bool>()) {
            let (port, slot, frame) = ((payload >> 16) as u16, payload as u16, FrameIndex(payload));
            for state in [
                State::Untouched, State::Remote, State::Fetching { port, slot }, State::Installing(Source::Zeros),
                State::Installing(Source::Frame(frame)), State::Resident, State::Evicting, State::Standby(frame),
                State::Poisoned(payload), State::Lent,
            ] {
                let entry = Entry(encode(state) | if flag { WRITE_IN_FLIGHT } else { 0 });
                prop_assert_eq!((entry.state(), entry.write_in_flight()), (state, flag));
                prop_assert_eq!(entry.is_accessible(), matches!(state, State::Resident | State::Lent));
            }
        }
    }

    #[test]
    fn a_page_that_stays_where_it_arrived_is_the_nodes_until_it_is_mapped() {
        let frame = FrameIndex(7);
        let walk = [Event::Install, Event::Installed, Event::Evict, Event::Dropped, Event::Fetch { port: 1, slot: 2 }];
        let fetching = walk.into_iter().fold(Entry(UNTOUCHED), |entry, event| entry.on(event).unwrap());
        let entry = fetching.on(Event::Arrived(frame)).unwrap();
        assert_eq!(entry.state(), State::Standby(frame));
        assert_eq!(entry.on(Event::Clean).unwrap().state(), State::Remote);
        assert_eq!(entry.on(Event::Install).unwrap().state(), State::Installing(Source::Frame(frame)));
        assert_eq!(entry.on(Event::Arrived(frame)), None, "nobody fetches it any longer");
    }

    #[test]
    fn a_rescued_page_keeps_its_write_until_the_end() {
        let frame = FrameIndex(7);
        let walk = [
            Event::Install,
            Event::Installed,
            Event::Evict,
            Event::Evicted(frame),
            Event::Write,
            Event::Install,
            Event::Installed,
            Event::Evict,
            Event::Evicted(FrameIndex(8)),
        ];
        let entry = walk.into_iter().fold(Entry(UNTOUCHED), |entry, event| entry.on(event).unwrap());
        assert!(entry.write_in_flight());
        assert_eq!(entry.on(Event::Clean), None);
        assert_eq!(entry.on(Event::Write), None);
        assert_eq!(entry.on(Event::Free), None);
        let ended = entry.on(Event::WriteEnded).unwrap();
        assert_eq!(ended.state(), State::Standby(FrameIndex(8)));
        assert_eq!(ended.on(Event::Clean).unwrap().state(), State::Remote);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is no entry")]
    fn a_bit_without_meaning_is_our_bug() {
        let _ = Entry::from_bits(RESIDENT | WRITE_IN_FLIGHT << 1);
    }
}
