//! The target `session`: protected messages on their way to a node, through the hands of someone who keeps, changes,
//! repeats, splices and makes up what he likes.
//!
//! Two lanes of different sessions send to a thread of a node, to another one, or to any; the thread opens with its
//! cache and windows. What it accepts was sealed by the lane that it says, for it or for any, comes from the address of
//! the lane's session, is unchanged, and was not accepted before.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use yonder_session::{
    Cipher, Door, Frame, HEADER_BYTES, Home, KeyCache, LaneKeys, NodeSecret, Protection, ReplayWindows, RequestCounter,
    SessionNumber, TAG_BYTES, open, protected_bytes, seal,
};

use crate::script::Step;
use crate::{Target, Trail};

const STEP_BYTES: usize = 12;
pub(crate) const TARGET: Target = Target { name: "session", step_bytes: STEP_BYTES, bytes_max: 100 * STEP_BYTES, run };

/// Addresses from which messages come; each lane's own is among them.
const ADDRESSES: [Ipv6Addr; 3] = [address(1), address(2), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)];
/// One unit of the time in a counter, in nanoseconds.
const UNIT: u64 = 1 << 20;
/// Sets of the table of windows: so few that lanes are forgotten.
const SETS: usize = 1;
/// Lanes that only push others out of the table.
const OTHERS: u8 = 8;
/// The thread that opens.
const THREAD: u16 = 3;
/// For whom messages are.
const HOMES: [Home; 4] =
    [Home::Thread(THREAD), Home::Door(Door::Datagrams), Home::Thread(THREAD + 1), Home::Door(Door::Streams)];

const fn address(last: u8) -> Ipv6Addr {
    Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped()
}

struct Lane {
    number: SessionNumber,
    address: Ipv6Addr,
    /// One for each of [`HOMES`].
    keys: [LaneKeys; HOMES.len()],
    counter: RequestCounter,
}

/// What was sealed, as it was before and as it went out.
struct Sent {
    lane: usize,
    /// Which of [`HOMES`].
    home: usize,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    counter: u64,
}

struct World {
    secret: NodeSecret,
    lanes: Vec<Lane>,
    sent: Vec<Sent>,
    keys: KeyCache,
    windows: ReplayWindows,
    now: u64,
    accepted: HashSet<(u64, u64)>,
}

fn run(data: &[u8], trail: &mut Trail) {
    let Some((first, data)) = data.split_first() else { return };
    let cipher = if first % 2 == 0 { Cipher::Aegis128L } else { Cipher::ChaCha20Poly1305 };
    let mut world = World::new(cipher);
    for mut step in Step::all(data, STEP_BYTES) {
        let what = step.below(10);
        match what {
            0..3 => world.send(&mut step),
            3..5 => world.deliver(&mut step, trail, |_, _, _| ()),
            5 => world.deliver(&mut step, trail, |step, bytes, _| {
                let at = step.index(bytes.len());
                bytes[at] ^= 1 << step.below(8);
            }),
            // The head of one on the rest of another.
            6 => world.deliver(&mut step, trail, |step, bytes, sent| {
                let other = &sent[step.index(sent.len())].sealed;
                let cut = step.index(bytes.len().min(other.len()) + 1);
                bytes[..cut].copy_from_slice(&other[..cut]);
            }),
            7 => world.deliver(&mut step, trail, |step, bytes, _| bytes.truncate(step.index(bytes.len() + 1))),
            8 => world.make_up(&mut step, trail),
            _ => world.now += step.below(5) * UNIT / 2,
        }
        trail.note([what, world.sent.len().min(3) as u64, world.accepted.len().min(3) as u64]);
    }
}

impl World {
    fn new(cipher: Cipher) -> Self {
        let secret = NodeSecret::new([7; 32]);
        let now = 1 << 40;
        let lane = |index: u8| {
            let protection = if index.is_multiple_of(2) { Protection::Encrypted } else { Protection::Authenticated };
            let number = SessionNumber::new(u32::from(index) + 1, 2, 0).with_lane(1 + index);
            let address = ADDRESSES[usize::from(index) % 2];
            let secret = secret.session_secret(number, address, cipher, protection);
            let keys = HOMES.map(|home| secret.lane(number.lane(), home));
            Lane { number, address, keys, counter: RequestCounter::new() }
        };
        let lanes = (0..2 + OTHERS).map(lane).collect();
        let (keys, windows) = (KeyCache::new(&secret, cipher, THREAD), ReplayWindows::with_sets(&secret, SETS, now));
        Self { secret, lanes, sent: Vec::new(), keys, windows, now: now + 2 * UNIT, accepted: HashSet::new() }
    }

    /// One of the lanes sends; the first two oftener than those that push them out.
    fn send(&mut self, step: &mut Step<'_>) {
        let index = if step.once_in(3) { step.index(self.lanes.len()) } else { step.index(2) };
        let lane = &mut self.lanes[index];
        let mut plain = vec![0; HEADER_BYTES + step.index(40)];
        plain[HEADER_BYTES - 8..].fill(step.byte());
        // A client may claim any time.
        let time = self.now.saturating_sub(step.below(4) * UNIT) + step.below(3) * UNIT;
        let counter = lane.counter.next(time).expect("few messages are sent");
        let mut sealed = [&plain[..], &[0; TAG_BYTES]].concat();
        let home = if step.once_in(3) { step.index(HOMES.len()) } else { 0 };
        seal(&lane.keys[home].requests, lane.number, counter, &mut sealed);
        assert_eq!(protected_bytes(&sealed), Some(sealed.len()));
        self.sent.push(Sent { lane: index, home, plain, sealed, counter });
    }

    /// Something that was sent arrives, changed by `change`, from its address or another.
    fn deliver(
        &mut self,
        step: &mut Step<'_>,
        trail: &mut Trail,
        change: impl FnOnce(&mut Step<'_>, &mut Vec<u8>, &[Sent]),
    ) {
        if self.sent.is_empty() {
            return;
        }
        let sent = &self.sent[step.index(self.sent.len())];
        let from = if step.once_in(4) { step.pick(&ADDRESSES) } else { self.lanes[sent.lane].address };
        let mut bytes = sent.sealed.clone();
        if !bytes.is_empty() {
            change(step, &mut bytes, &self.sent);
        }
        self.arrive(bytes, from, trail);
    }

    /// Bytes that nobody has sealed, behind a prefix that could be one.
    fn make_up(&mut self, step: &mut Step<'_>, trail: &mut Trail) {
        let mut bytes = vec![step.byte(); step.index(200)];
        let lead = step.pick(&[0xe3, 0xa3, 0xe5, 0xa5, b'Y']);
        let number = self.lanes[step.index(self.lanes.len())].number;
        for (place, byte) in bytes.iter_mut().zip([lead].into_iter().chain([0; 3]).chain(number.0.to_le_bytes())) {
            *place = byte;
        }
        self.arrive(bytes, step.pick(&ADDRESSES), trail);
    }

    fn arrive(&mut self, mut bytes: Vec<u8>, from: Ipv6Addr, trail: &mut Trail) {
        let arrived = bytes.clone();
        assert!(Frame::parse(&bytes).is_none_or(|frame| frame.message_bytes() > 0));
        let opened = self.keys.open_request(&self.secret, 0, from, &mut bytes);
        let Ok(opened) = opened else {
            return trail.note([20, u64::from(opened == Err(yonder_session::Refused::Expired)), 0]);
        };
        let sent = self.sent.iter().find(|sent| sent.sealed == arrived).expect("what was opened was sealed like this");
        let lane = &self.lanes[sent.lane];
        assert_eq!((opened.number, opened.counter, opened.home), (lane.number, sent.counter, HOMES[sent.home]));
        assert!(sent.home < 2, "it was for another thread");
        assert_eq!(from, lane.address, "it came from an address that has no key");
        assert_eq!(bytes[20..opened.bytes], sent.plain[20..], "it was changed");
        // Neither the node's own keys for answers nor another lane's open it.
        assert!(lane.keys.iter().all(|keys| open(&keys.answers, &mut arrived.clone()).is_err()));
        let is_accepted = self.windows.accept(opened.number, opened.counter, self.now);
        if is_accepted {
            assert!(self.accepted.insert((opened.number.0, opened.counter)), "it was accepted twice");
        }
        trail.note([21, is_accepted.into(), sent.lane.min(2) as u64]);
    }
}
