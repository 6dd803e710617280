//! [`Node`]: a memory node. The real board executes requests; how long that takes is modelled.
//!
//! Clio's board is a pipeline that takes a unit of data each cycle, however long a request stays in it (sections 4.1
//! and 5). A request stays for its translation, which is nothing in the TLB or one access to DRAM (4.2), for three
//! cycles if it is the first write to its page (4.3), and for the access to its data.

use std::ops::Range;
use std::rc::Rc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_board::{
    Config, FastPath, Handled, LEASE_STEP_MAX, NodeCore, PIECE_PAGES_MAX, PageSize, Pid, SlowPath, SpaceLimits,
};
use yonder_simulation::Pages;
use yonder_units::Nanos;
use yonder_wire::{
    AllocateRequest, Backing, ErrorCode, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, Permission, Rights, split,
};

use super::link::Link;
use super::lru::Lru;
use crate::costs::clio::{
    BOARD_MEMORY, BOARD_PORT, CYCLE, DATA_WIDTH, DRAM, FAULT_CYCLES, PAGE, SOFTWARE_BOARD, TLB_ENTRIES,
};

/// Pages that are allocated at once: a run of the board's page table, so that conflicts are few.
const RUN_PAGES: u64 = 64;
/// Pages that are held ready.
const READY_MAX: usize = 64;
/// Operations that the board remembers, enough for all that can be under way.
const RECENT_MAX: usize = 16_384;

/// Pages of the prototype's memory.
pub(super) const BOARD_PAGES: u32 = (BOARD_MEMORY.value / PAGE.value) as u32;

/// What a node's time is made of.
#[derive(Debug)]
enum Speed {
    /// Clio's hardware, with the pages that its TLB has.
    Hardware(Lru<(u32, u64)>),
    /// Yonder's data thread: a look at one bucket for every request, and one request at a time.
    Software,
}

/// An address space on one node, as its clients know it.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) pid: u32,
    pub(super) capability: u128,
    /// Addresses of its pages.
    pub(super) pages: Vec<u64>,
}

/// A memory node, and the port of the switch that it hangs on.
#[derive(Debug)]
pub(super) struct Node {
    fast_path: FastPath,
    slow_path: SlowPath,
    memory: Pages,
    speed: Speed,
    /// When the board takes the next request.
    free_at: Nanos,
    /// The way there and the way back.
    pub(super) links: [Link; 2],
    reply: Vec<u8>,
    /// Requests that were executed.
    pub(super) executed: u64,
}

impl Node {
    /// Clio's board with `pages` pages.
    pub(super) fn hardware(pages: u32, rng: &mut ChaCha8Rng) -> Self {
        Self::new(pages, Speed::Hardware(Lru::new(TLB_ENTRIES.value as usize)), rng)
    }

    /// Yonder's software on the same network.
    pub(super) fn software(pages: u32, rng: &mut ChaCha8Rng) -> Self {
        Self::new(pages, Speed::Software, rng)
    }

    fn new(pages: u32, speed: Speed, rng: &mut ChaCha8Rng) -> Self {
        let (board, mut slow_path) = NodeCore::new(&Config {
            pages,
            page_size: PageSize::DEFAULT,
            seed: rng.random(),
            key: rng.random::<[u8; 16]>().into(),
            recent_max: RECENT_MAX,
            spaces: SpaceLimits::of(pages.max(1024) as usize),
            piece_pages_max: PIECE_PAGES_MAX,
            lease_step_max: LEASE_STEP_MAX,
            tenants: yonder_board::TenantLimits::default(),
        });
        let memory = Pages::new(READY_MAX);
        memory.refill(&mut slow_path);
        Self {
            fast_path: board.fast_path(),
            slow_path,
            memory,
            speed,
            free_at: 0,
            links: [Link::new(BOARD_PORT), Link::new(BOARD_PORT)],
            reply: vec![0; HEADER_BYTES + PAYLOAD_BYTES_MAX],
            executed: 0,
        }
    }

    /// An address space with `pages` pages that have no memory yet. The slow path is not what these figures measure, so
    /// this takes no time.
    pub(super) fn space(&mut self, pages: u64) -> Rc<Space> {
        let pid = self.slow_path.create_space(None, 0, 0).expect("there is room for every process");
        let capability = self.slow_path.capability(pid, Rights::ReadWrite);
        self.part(pid, capability, pages, 0..0)
    }

    /// What proves the rights to an address space of a controller, which is made if the node does not have it.
    pub(super) fn adopt(&mut self, pid: Pid, rights: Rights) -> u128 {
        match self.slow_path.create_space(Some(pid), 0, 0) {
            Ok(_) | Err(ErrorCode::BadAddress) => self.slow_path.capability(pid, rights),
            Err(code) => panic!("no room for an address space: {code}"),
        }
    }

    /// `pages` pages of an address space that lie in `window`, or anywhere if that is empty.
    pub(super) fn part(&mut self, pid: Pid, capability: u128, pages: u64, window: Range<u64>) -> Rc<Space> {
        let mut addresses = Vec::with_capacity(pages as usize);
        while (addresses.len() as u64) < pages {
            let run = RUN_PAGES.min(pages - addresses.len() as u64);
            let first = self.allocate(pid, run, &window);
            addresses.extend((0..run).map(|page| first + page * PAGE.value as u64));
        }
        Rc::new(Space { pid: pid.get(), capability, pages: addresses })
    }

    fn allocate(&mut self, pid: Pid, pages: u64, window: &Range<u64>) -> u64 {
        let request = AllocateRequest {
            bytes: pages * PAGE.value as u64,
            permission: Permission::ReadWrite,
            backing: Backing::OnDemand,
            from: window.start,
            to: window.end,
        };
        let allocated = self.memory.with_shell(|shell| self.slow_path.allocate(pid, &request, shell));
        allocated.expect("the page table has room").0
    }

    /// Executes the request that arrives at `now`. Returns the answer and when it leaves.
    pub(super) fn serve(&mut self, now: Nanos, request: &[u8]) -> (Nanos, Vec<u8>) {
        let message = split(request).ok().flatten().expect("the network damages nothing");
        let faults = self.memory.taken();
        let handled = self.fast_path.execute(&message, now, &self.memory, &self.memory, &mut self.reply);
        let Handled::Reply(bytes) = handled else { panic!("{:?} is not for the fast path", message.header) };
        let answer = self.reply[..bytes].to_vec();
        self.executed += 1;
        let has_faulted = self.memory.taken() > faults;
        self.memory.refill(&mut self.slow_path);
        let start = self.free_at.max(now);
        let (occupied, stay) = self.times(&message.header, request.len().max(bytes), has_faulted);
        self.free_at = start + occupied;
        (start + occupied + stay, answer)
    }

    /// How long a request keeps others out, and how long it stays after that.
    fn times(&mut self, header: &Header, bytes: usize, has_faulted: bool) -> (Nanos, Nanos) {
        let Speed::Hardware(tlb) = &mut self.speed else { return (SOFTWARE_BOARD.ns(), 0) };
        let occupied = (bytes as f64 / DATA_WIDTH.value).ceil() as Nanos * CYCLE.ns();
        if header.pid == 0 {
            return (occupied, 0);
        }
        let is_hit = tlb.touch((header.pid, header.address / PAGE.value as u64));
        let translation = if is_hit { 0 } else { DRAM.ns() };
        let fault = if has_faulted { FAULT_CYCLES.value as Nanos * CYCLE.ns() } else { 0 };
        (occupied, translation + fault + DRAM.ns())
    }
}
