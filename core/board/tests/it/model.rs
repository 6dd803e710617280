//! Long runs against an oracle: maps of allocations and of bytes.
//!
//! The oracle knows which requests must succeed and with which bytes; which must be refused, and for which reason; and
//! that a copy of any request, early or late, has no effect and the same answer. At the end all memory is free again,
//! and zero.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use proptest::sample::Index;
use yonder_wire::{AllocateRequest, AtomicOperation, Backing, Body, ErrorCode, Header, Kind, Permission, Rights};

use crate::world::{PAGE, Space, World, outcome};

const PAGES: u32 = 12;
const ALLOCATION_PAGES_MAX: u64 = 4;

#[derive(Clone, Debug)]
enum Step {
    Create,
    Destroy(Index),
    Allocate(Index, u64, Permission, Backing),
    Free(Index),
    /// Into an allocation, at an offset that may lie behind it, by a holder of some rights.
    Write(Index, u64, Vec<u8>, Rights),
    Read(Index, u64, usize, Rights),
    Add(Index, u64, u64),
    Discard(Index, u64, u64),
    /// A copy of an earlier request.
    Copy(Index),
    /// The last request but a few is given up, whether it was executed or not.
    Abort(Index),
    /// A request is given up before it arrives.
    AbortFirst(Index),
    Refill(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let offset = || 0..ALLOCATION_PAGES_MAX * PAGE + 100;
    let bytes = prop::collection::vec(1u8..=255, 0..2 * PAGE as usize);
    let rights = prop_oneof![1 => Just(Rights::Read), 1 => Just(Rights::ReadWrite), 4 => Just(Rights::Owner)];
    let permission = prop_oneof![1 => Just(Permission::Read), 4 => Just(Permission::ReadWrite)];
    let backing = prop_oneof![1 => Just(Backing::Now), 3 => Just(Backing::OnDemand)];
    prop_oneof![
        1 => Just(Step::Create),
        1 => index().prop_map(Step::Destroy),
        4 => (index(), 1..=ALLOCATION_PAGES_MAX * PAGE, permission, backing)
            .prop_map(|(space, bytes, permission, backing)| Step::Allocate(space, bytes, permission, backing)),
        2 => index().prop_map(Step::Free),
        8 => (index(), offset(), bytes, rights.clone()).prop_map(|(at, offset, bytes, rights)| Step::Write(at, offset, bytes, rights)),
        6 => (index(), offset(), 0..3 * PAGE as usize, rights).prop_map(|(at, offset, length, rights)| Step::Read(at, offset, length, rights)),
        3 => (index(), offset(), any::<u64>()).prop_map(|(at, offset, more)| Step::Add(at, offset, more)),
        2 => (index(), offset(), 1..3 * PAGE).prop_map(|(at, offset, bytes)| Step::Discard(at, offset, bytes)),
        5 => index().prop_map(Step::Copy),
        1 => index().prop_map(Step::Abort),
        1 => index().prop_map(Step::AbortFirst),
        4 => (0usize..5).prop_map(Step::Refill),
    ]
}

#[derive(Clone, Copy)]
struct Range {
    pages: u64,
    permission: Permission,
    backing: Backing,
}

/// A request that was answered for good, and how.
struct Sent {
    header: Header,
    payload: Vec<u8>,
    answer: Result<(u64, Vec<u8>), ErrorCode>,
}

struct Model {
    world: World,
    spaces: Vec<Space>,
    ranges: BTreeMap<(u32, u64), Range>,
    /// Bytes that are not 0.
    bytes: HashMap<(u32, u64), u8>,
    /// Pages that have memory.
    mapped: BTreeSet<(u32, u64)>,
    sent: Vec<Sent>,
}

impl Model {
    fn new() -> Self {
        let world = World::with_ring(PAGES, 2);
        Self {
            world,
            spaces: Vec::new(),
            ranges: BTreeMap::new(),
            bytes: HashMap::new(),
            mapped: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create => self.create(),
            Step::Refill(ready) => self.world.refill(ready),
            Step::Copy(index) => self.copy(&index),
            Step::Abort(index) => self.abort(&index),
            _ if self.spaces.is_empty() => {}
            Step::Destroy(index) => self.destroy(&index),
            Step::Allocate(index, bytes, permission, backing) => self.allocate(&index, bytes, permission, backing),
            _ if self.ranges.is_empty() => {}
            Step::Free(index) => {
                let (space, address, _) = self.pick(&index);
                self.request(Kind::Free, space, address, 0, &[]).unwrap();
                self.forget(space, address);
            }
            Step::Write(index, offset, bytes, rights) => self.write(&index, offset, &bytes, rights),
            Step::Read(index, offset, length, rights) => self.read(&index, offset, length, rights),
            Step::Add(index, offset, more) => self.add(&index, offset, more),
            Step::Discard(index, offset, bytes) => self.discard(&index, offset, bytes),
            Step::AbortFirst(index) => {
                let (space, address, _) = self.pick(&index);
                let header = self.world.request(Kind::Write, space, address, 1);
                let abort = Header { kind: Kind::Abort, length: 0, ..self.world.retry(&header) };
                assert_eq!(outcome(self.world.send(&abort, &[])).unwrap().0.length, 0);
                self.sent.push(Sent { header, payload: vec![1], answer: Err(ErrorCode::Aborted) });
            }
        }
    }

    /// Sends a new request, and remembers it if it was answered for good.
    fn request(
        &mut self,
        kind: Kind,
        space: Space,
        address: u64,
        length: usize,
        payload: &[u8],
    ) -> Result<(Header, Vec<u8>), ErrorCode> {
        let header = self.world.request(kind, space, address, length);
        let answer = outcome(self.world.send(&header, payload));
        let kept = answer.as_ref().map(|(header, payload)| (header.address, payload.clone())).map_err(|code| *code);
        if kind.is_exactly_once() && !kept.as_ref().is_err_and(|code| code.may_pass()) {
            self.sent.push(Sent { header, payload: payload.to_vec(), answer: kept });
        }
        answer
    }

    fn create(&mut self) {
        match self.request(Kind::CreateSpace, Space { pid: 0, capability: 0 }, 0, 0, &[]) {
            Ok((answer, _)) => self.spaces.push(Space { pid: answer.pid, capability: answer.capability }),
            Err(code) => assert_eq!((code, self.spaces.len()), (ErrorCode::OutOfMemory, 8)),
        }
    }

    fn destroy(&mut self, index: &Index) {
        let space = self.spaces.swap_remove(index.index(self.spaces.len()));
        self.request(Kind::DestroySpace, space, 0, 0, &[]).unwrap();
        let addresses: Vec<u64> = self.ranges.keys().filter(|key| key.0 == space.pid).map(|key| key.1).collect();
        addresses.into_iter().for_each(|address| self.forget(space, address));
    }

    fn allocate(&mut self, index: &Index, bytes: u64, permission: Permission, backing: Backing) {
        let space = self.spaces[index.index(self.spaces.len())];
        let mut payload = [0; 32];
        AllocateRequest { bytes, permission, backing, from: 0, to: 0 }.write_to(&mut payload);
        let pages = bytes.div_ceil(PAGE);
        match self.request(Kind::Allocate, space, 0, 32, &payload) {
            Ok((answer, _)) => {
                let address = answer.address;
                assert_eq!(address % PAGE, 0);
                self.ranges.insert((space.pid, address), Range { pages, permission, backing });
                if backing == Backing::Now {
                    self.mapped.extend((0..pages).map(|page| (space.pid, address + page * PAGE)));
                }
                let all = self.ranges.iter().flat_map(|((pid, address), range)| {
                    (0..range.pages).map(move |page| (*pid, address + page * PAGE))
                });
                let pages: Vec<_> = all.collect();
                assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), pages.len(), "two allocations overlap");
            }
            Err(code) => {
                assert_eq!(code, ErrorCode::OutOfMemory);
                let allocated: u64 = self.ranges.values().map(|range| range.pages).sum();
                let lacks_memory = backing == Backing::Now && self.mapped.len() as u64 + pages > u64::from(PAGES);
                assert!(lacks_memory || allocated + pages > u64::from(PAGES), "refused too early");
            }
        }
    }

    fn write(&mut self, index: &Index, offset: u64, bytes: &[u8], rights: Rights) {
        let (space, address, _) = self.pick(index);
        let holder = self.world.grant(space, rights);
        let expected = if rights == Rights::Read {
            Err(ErrorCode::NotAllowed)
        } else {
            self.check(space, address + offset, bytes.len() as u64, Permission::ReadWrite)
        };
        let got = self.request(Kind::Write, holder, address + offset, bytes.len(), bytes).map(|_| ());
        if expected.is_ok() && got.is_err() {
            return self.check_shortage(space, address + offset, bytes.len() as u64, got);
        }
        assert_eq!(got, expected);
        if got.is_ok() {
            self.map(space, address + offset, bytes.len() as u64);
            let at = (address + offset..).map(|address| (space.pid, address));
            self.bytes.extend(at.zip(bytes.iter().copied()));
        }
    }

    fn read(&mut self, index: &Index, offset: u64, length: usize, rights: Rights) {
        let (space, address, _) = self.pick(index);
        let holder = self.world.grant(space, rights);
        let expected = self.check(space, address + offset, length as u64, Permission::Read);
        let expected = expected.map(|()| self.content(space, address + offset, length as u64));
        assert_eq!(self.world.read(holder, address + offset, length), expected);
    }

    fn add(&mut self, index: &Index, offset: u64, more: u64) {
        let (space, address, _) = self.pick(index);
        let at = address + offset;
        let mut payload = [0; 24];
        AtomicOperation::FetchAdd(more).write_to(&mut payload);
        let aligned = if at.is_multiple_of(8) { Ok(()) } else { Err(ErrorCode::BadLength) };
        let expected = aligned.and_then(|()| self.check(space, at, 8, Permission::ReadWrite));
        let got = self.request(Kind::Atomic, space, at, 24, &payload).map(|(answer, _)| answer.address);
        if expected.is_ok() && got.is_err() {
            return self.check_shortage(space, at, 8, got.map(|_| ()));
        }
        let old = self.content(space, at, 8);
        let old = u64::from_le_bytes(old.try_into().unwrap());
        assert_eq!(got, expected.map(|()| old));
        if got.is_ok() {
            self.map(space, at, 8);
            let new = old.wrapping_add(more).to_le_bytes();
            self.bytes.extend((at..).map(|address| (space.pid, address)).zip(new));
        }
    }

    fn discard(&mut self, index: &Index, offset: u64, bytes: u64) {
        let (space, address, _) = self.pick(index);
        let (from, to) = (address + offset, address + offset + bytes);
        let expected = self.check(space, from, bytes, Permission::ReadWrite);
        let got = self.request(Kind::Discard, space, from, bytes as usize, &[]).map(|_| ());
        assert_eq!(got, expected);
        if got.is_err() {
            return;
        }
        (from..to).for_each(|address| {
            self.bytes.remove(&(space.pid, address));
        });
        for page in (from.div_ceil(PAGE)..to / PAGE).map(|page| page * PAGE) {
            if self.range_at(space, page).unwrap().backing == Backing::OnDemand {
                self.mapped.remove(&(space.pid, page));
            }
        }
    }

    fn copy(&mut self, index: &Index) {
        if self.sent.is_empty() {
            return;
        }
        let index = index.index(self.sent.len());
        let header = self.world.retry(&self.sent[index].header);
        let answer = outcome(self.world.send(&header, &self.sent[index].payload));
        let answer = answer.map(|(header, payload)| (header.address, payload));
        assert_eq!(answer, self.sent[index].answer, "a copy of {header:?}");
    }

    fn abort(&mut self, index: &Index) {
        if self.sent.is_empty() {
            return;
        }
        let sent = &self.sent[index.index(self.sent.len())];
        let (first, executed) = (sent.header, u32::from(sent.answer.is_ok()));
        let slow = u32::from(!first.kind.is_fast());
        let abort = Header { kind: Kind::Abort, length: 0, fragment_offset: slow, ..self.world.retry(&first) };
        assert_eq!(outcome(self.world.send(&abort, &[])).unwrap().0.length, executed);
    }

    fn pick(&self, index: &Index) -> (Space, u64, Range) {
        let ((pid, address), range) = self.ranges.iter().nth(index.index(self.ranges.len())).unwrap();
        let space = self.spaces.iter().find(|space| space.pid == *pid).unwrap();
        (*space, *address, *range)
    }

    fn range_at(&self, space: Space, address: u64) -> Option<Range> {
        let (key, range) = self.ranges.range(..=(space.pid, address)).next_back()?;
        (key.0 == space.pid && address < key.1 + range.pages * PAGE).then_some(*range)
    }

    /// What a request about these bytes must come to, if there is memory.
    fn check(&self, space: Space, from: u64, bytes: u64, needed: Permission) -> Result<(), ErrorCode> {
        if bytes == 0 {
            return Err(ErrorCode::BadLength);
        }
        for page in from / PAGE..=(from + bytes - 1) / PAGE {
            let range = self.range_at(space, page * PAGE).ok_or(ErrorCode::BadAddress)?;
            if needed == Permission::ReadWrite && range.permission == Permission::Read {
                return Err(ErrorCode::NotAllowed);
            }
        }
        Ok(())
    }

    fn content(&self, space: Space, from: u64, bytes: u64) -> Vec<u8> {
        (from..from + bytes).map(|address| self.bytes.get(&(space.pid, address)).copied().unwrap_or(0)).collect()
    }

    fn map(&mut self, space: Space, from: u64, bytes: u64) {
        self.mapped.extend((from / PAGE..=(from + bytes - 1) / PAGE).map(|page| (space.pid, page * PAGE)));
        assert_eq!(self.world.board.free_pages(), PAGES - self.mapped.len() as u32);
    }

    /// A write was refused that is right but for memory. Its first pages may have got memory nevertheless.
    fn check_shortage(&mut self, space: Space, from: u64, bytes: u64, got: Result<(), ErrorCode>) {
        let needed = (from / PAGE..=(from + bytes - 1) / PAGE).map(|page| (space.pid, page * PAGE));
        let missing: Vec<_> = needed.filter(|page| !self.mapped.contains(page)).collect();
        let mapped_before = self.mapped.len() as u32;
        let mapped_now = PAGES - self.world.board.free_pages();
        self.mapped.extend(missing.iter().take((mapped_now - mapped_before) as usize));
        assert!(!missing.is_empty(), "{got:?} though every page has memory");
        let expected = if mapped_now == PAGES { ErrorCode::OutOfMemory } else { ErrorCode::Busy };
        assert_eq!(got, Err(expected));
    }

    fn forget(&mut self, space: Space, address: u64) {
        let range = self.ranges.remove(&(space.pid, address)).unwrap();
        for page in (0..range.pages).map(|page| address + page * PAGE) {
            self.mapped.remove(&(space.pid, page));
            (page..page + PAGE).for_each(|address| {
                self.bytes.remove(&(space.pid, address));
            });
        }
    }

    /// Everything is as the oracle says; then everything is freed, and zero.
    fn end(mut self) {
        for ((pid, address), range) in self.ranges.clone() {
            let space = *self.spaces.iter().find(|space| space.pid == pid).unwrap();
            let bytes = range.pages * PAGE;
            assert_eq!(self.world.read(space, address, bytes as usize), Ok(self.content(space, address, bytes)));
        }
        while let Some(space) = self.spaces.pop() {
            self.world.destroy(space).unwrap();
        }
        let status = self.world.slow.status();
        assert_eq!((status.free_bytes, status.allocated_bytes, status.spaces), (status.memory_bytes, 0, 0));
        self.world.refill(PAGES as usize + 1);
        let pages: BTreeSet<u32> = self.world.ring.0.lock().unwrap().iter().map(|page| page.0).collect();
        assert_eq!(pages.len() as u32, PAGES, "memory was lost, or is twice in the ring");
        for page in pages {
            assert!(
                self.world.memory.page(yonder_board::PhysicalPage(page)).iter().all(|byte| *byte == 0),
                "old bytes"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]
    #[test]
    fn a_node_does_what_plain_maps_would_do(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new();
        model.create();
        steps.into_iter().for_each(|step| model.step(step));
        model.end();
    }
}
