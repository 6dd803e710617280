//! [`Host`]: one memory node, the shell around the real board, and what its controller and other nodes want of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use yonder_board::{
    Config, Departure, FastPath, Handled, LEASE_STEP_MAX, Memory, NodeCore, PIECE_PAGES_MAX, PageSize, Pid, SlowPath,
    Source, SpaceLimits,
};
use yonder_placement::{
    Arrival, Capabilities, Capability, Command, Domains, MoveId, MoveOrder, NodeId, NodeReport, Outcome, RegionReport,
    Registration,
};
use yonder_simulation::{Janitor, Pages};
use yonder_units::Nanos;
use yonder_wire::{
    AdoptRequest, AdoptStage, AdoptedAllocation, AllocateRequest, Backing, ErrorCode, HEADER_BYTES, Header,
    InventoryList, Kind, PAYLOAD_BYTES_MAX, Permission, Rights, split,
};

use super::carrier::{Carrier, Phase, payload};
use super::{ALLOCATED_PAGES, MoveSabotage, REGION_BYTES};
use crate::settings::PAGE_BYTES;

/// Pages of a node.
const PAGES: u32 = 32;
/// Requests that a node remembers.
const RECENT_MAX: usize = 1024;

/// A memory node, for as long as it runs.
pub(super) struct Host {
    pub(super) id: NodeId,
    board: Arc<NodeCore>,
    pub(super) slow: SlowPath,
    fast: FastPath,
    pages: Pages,
    reply: Vec<u8>,
    pub(super) is_connected: bool,
    /// Commands on the connection to the controller, and outcomes on the way back.
    pub(super) commands: VecDeque<Command>,
    pub(super) outcomes: VecDeque<Outcome>,
    /// Moves by name, and how they have ended.
    moves: BTreeMap<MoveId, Option<Outcome>>,
    pub(super) carriers: Vec<Carrier>,
    /// Regions that were closed here for good, and their targets, of which the oracle has not heard.
    pub(super) closed: Vec<(u32, NodeId)>,
    sabotage: Option<MoveSabotage>,
    /// The last transfer that has begun here, by address space and first address: only sabotage looks at it.
    begun: BTreeMap<(u32, u64), u64>,
}

impl Host {
    /// A node that begins.
    pub(super) fn new(id: NodeId, sabotage: Option<MoveSabotage>) -> Self {
        let page_size = PageSize::new(PAGE_BYTES).expect("a power of two");
        let mut key = *b"of one node only";
        key[..8].copy_from_slice(&id.0.to_le_bytes());
        let config = Config {
            pages: PAGES,
            page_size,
            seed: id.0,
            key: key.into(),
            recent_max: RECENT_MAX,
            spaces: SpaceLimits::of(4),
            piece_pages_max: PIECE_PAGES_MAX,
            lease_step_max: LEASE_STEP_MAX,
            tenants: yonder_board::TenantLimits::default(),
        };
        let (board, slow) = NodeCore::with_regions(&config, REGION_BYTES);
        let (fast, pages) = (board.fast_path(), Pages::new(8));
        let reply = vec![0; HEADER_BYTES + PAYLOAD_BYTES_MAX];
        Self {
            id,
            board,
            slow,
            fast,
            pages,
            reply,
            is_connected: false,
            commands: VecDeque::new(),
            outcomes: VecDeque::new(),
            moves: BTreeMap::new(),
            carriers: Vec::new(),
            closed: Vec::new(),
            sabotage,
            begun: BTreeMap::new(),
        }
    }

    /// The connection to the controller is lost, and what was on it.
    pub(super) fn cut(&mut self) {
        self.is_connected = false;
        self.commands.clear();
        self.outcomes.clear();
    }

    /// What it says of itself.
    pub(super) fn facts(&self) -> Registration {
        Registration {
            node: self.id,
            name: None,
            urls: vec![format!("tcp://{}:1", self.id)],
            memory_bytes: u64::from(PAGES) * PAGE_BYTES,
            page_bytes: PAGE_BYTES,
            region_bytes: REGION_BYTES,
            domains: Domains::default(),
        }
    }

    /// The address spaces that it has.
    pub(super) fn spaces(&self) -> Vec<yonder_placement::Pid> {
        self.slow.spaces().into_iter().map(|pid| yonder_placement::Pid(pid.get())).collect()
    }

    /// How full it is.
    pub(super) fn report(&self) -> NodeReport {
        let mut report = NodeReport { free_bytes: self.slow.status().free_bytes, ..NodeReport::default() };
        for pid in self.slow.spaces() {
            let named = yonder_placement::Pid(pid.get());
            report.regions.extend(self.slow.regions(pid).into_iter().map(|used| RegionReport {
                pid: named,
                region: used.region,
                allocated_bytes: used.allocated_bytes,
                resident_bytes: self.slow.resident_bytes(pid, used.region),
                heat: 0,
            }));
            let arrival =
                |(from, transfer)| Arrival { pid: named, region: (from / REGION_BYTES) as u32, id: MoveId(transfer) };
            report.arrived.extend(self.slow.arrivals(pid).into_iter().map(arrival));
        }
        report
    }

    /// Bytes of its allocations, whether they are served or wait for a word.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.slow.status().allocated_bytes
    }

    /// Executes a command of the controller.
    pub(super) fn execute(&mut self, command: Command, now: Nanos) {
        let outcome = match command {
            Command::CreateSpace { pid, .. } => {
                // It was made before, or it is made now.
                let _ = self.slow.create_space(Some(named(pid)), 0, now);
                let [owner, read_write, read] = [Rights::Owner, Rights::ReadWrite, Rights::Read]
                    .map(|rights| Capability(self.slow.capability(named(pid), rights)));
                Some(Outcome::SpaceCreated { pid, capabilities: Capabilities { owner, read_write, read } })
            }
            Command::DestroySpace { pid } => {
                while let Some(at) = self.carriers.iter().position(|carrier| carrier.order.pid == pid) {
                    self.give_up(at);
                }
                match self.slow.destroy_space(named(pid)) {
                    Ok(()) | Err(ErrorCode::BadCapability) => Some(Outcome::SpaceDestroyed { pid }),
                    Err(code) => panic!("an address space does not end: {code}"),
                }
            }
            Command::OpenRegion { .. } if self.sabotage == Some(MoveSabotage::SilentController) => None,
            Command::OpenRegion { pid, region, id } => {
                let (from, to) = range(region);
                let opened = self.slow.open_range(named(pid), id.0, from, to);
                opened.is_ok().then_some(Outcome::RegionOpened { pid, region, id })
            }
            // No owner of a region gives one up here.
            Command::DropRegion { pid, region, before, .. } => {
                let (from, to) = range(region);
                let dropped = self.slow.drop_range(named(pid), before.0, from, to);
                dropped.is_ok().then_some(Outcome::RegionDropped { pid, region })
            }
            Command::MoveRegion(order) => match self.moves.get(&order.id) {
                Some(known) => known.clone(),
                None => {
                    self.moves.insert(order.id, None);
                    self.begin_move(order)
                }
            },
        };
        self.outcomes.extend(outcome);
    }

    /// A move has ended, and its outcome waits for the controller.
    fn ended(&mut self, id: MoveId, outcome: Outcome) {
        self.moves.insert(id, Some(outcome.clone()));
        // Without a connection the controller asks again.
        if self.is_connected {
            self.outcomes.push_back(outcome);
        }
    }

    fn begin_move(&mut self, order: MoveOrder) -> Option<Outcome> {
        let (pid, id) = (named(order.pid), order.id);
        let window = (order.address, order.address + order.bytes);
        let moving = match self.slow.depart(pid, id.0, window, &mut Janitor(&self.pages)) {
            Ok(Departure::Begun(moving)) => moving,
            Ok(Departure::Left) => return Some(Outcome::Moved { id }),
            Err(code) => {
                let outcome = Outcome::MoveFailed { id, cause: code.to_string() };
                self.moves.insert(id, Some(outcome.clone()));
                return Some(outcome);
            }
        };
        let allocations = moving.allocations().iter().map(|allocation| AdoptedAllocation::from(*allocation));
        let list =
            InventoryList::new(allocations, moving.memory().iter().map(|(page, _)| page.0)).expect("it is small");
        let mut stages = VecDeque::from([(0, payload(&order, AdoptStage::Begin(list.inventory())))]);
        for (virtual_page, page) in moving.memory() {
            let mut bytes = vec![0; PAGE_BYTES as usize];
            self.pages.read(*page, 0, &mut bytes);
            stages.push_back((u64::from(virtual_page.0) * PAGE_BYTES, payload(&order, AdoptStage::Fill(&bytes))));
        }
        stages.push_back((0, payload(&order, AdoptStage::Prepare)));
        self.carriers.push(Carrier::new(order, moving, stages));
        None
    }

    /// The source gives a move up, or stops telling the target that it has ended. Returns the move that was given up.
    pub(super) fn give_up(&mut self, at: usize) -> Option<Carrier> {
        let mut carrier = self.carriers.remove(at);
        let moving = carrier.moving.take()?;
        self.slow.abandon_move(moving);
        let outcome = Outcome::MoveFailed { id: carrier.order.id, cause: "it took too long".to_owned() };
        self.ended(carrier.order.id, outcome);
        Some(carrier)
    }

    /// The source closes a region for good, and says so to the controller.
    pub(super) fn close(&mut self, at: usize) {
        if let Some(moving) = self.carriers[at].moving.take() {
            self.slow.finish_move(moving);
            let (id, region, to) =
                (self.carriers[at].order.id, self.carriers[at].order.region, self.carriers[at].order.to);
            self.closed.push((region, to));
            self.ended(id, Outcome::Moved { id });
        }
    }

    /// The target has done a stage. Returns whether the move is over at the source.
    pub(super) fn stage_done(&mut self, at: usize) -> bool {
        let is_one_phase = self.sabotage == Some(MoveSabotage::OnePhase);
        match self.carriers[at].phase {
            Phase::Finishing => {
                self.close(at);
                self.carriers.remove(at);
                return true;
            }
            Phase::Filling => {
                let is_hasty = self.sabotage == Some(MoveSabotage::HastySource);
                let is_prepared = self.carriers[at].is_prepared();
                if is_prepared || is_hasty && self.carriers[at].has_sent_all_bytes() {
                    if !is_one_phase {
                        self.close(at);
                    }
                    self.carriers[at].finish();
                }
            }
        }
        false
    }

    /// Executes a stage of a move to here. Returns how it was refused, if it was answered at all.
    pub(super) fn adopt(&mut self, bytes: &[u8], now: Nanos) -> Option<Result<(), ErrorCode>> {
        let message = split(bytes).ok().flatten().expect("a whole message");
        let (header, request) = (message.header, AdoptRequest::from_bytes(message.payload).expect("a stage"));
        let key = (header.pid, request.from);
        let begun = self.begun.get(&key).copied().unwrap_or(request.transfer);
        let is_word = request.stage == AdoptStage::Finish;
        let is_begin = matches!(request.stage, AdoptStage::Begin(_));
        let transfer = match self.sabotage {
            Some(MoveSabotage::AnyWord) if is_word => begun,
            Some(MoveSabotage::AnyNumber) if !is_begin => begun,
            _ => request.transfer,
        };
        if self.sabotage == Some(MoveSabotage::AnyWord) && is_word {
            let prepare = AdoptRequest { transfer, stage: AdoptStage::Prepare, ..request }.to_bytes();
            let id = header.request_id | 1 << 50;
            self.execute_adopt(&Header { request_id: id, first_id: id, ..header }, &prepare, now);
        }
        let payload = AdoptRequest { transfer, ..request }.to_bytes();
        let result = self.execute_adopt(&header, &payload, now)?;
        if result.is_ok() && is_begin {
            self.begun.insert(key, request.transfer);
        }
        if result.is_ok() && request.stage == AdoptStage::Prepare && self.sabotage == Some(MoveSabotage::EagerTarget) {
            let pid = Pid::new(header.pid).expect("an address space has a number");
            self.slow.open_range(pid, request.transfer, request.from, request.to).expect("it is prepared");
        }
        Some(result)
    }

    fn execute_adopt(&mut self, header: &Header, payload: &[u8], now: Nanos) -> Option<Result<(), ErrorCode>> {
        let bytes = [&Header { length: payload.len() as u32, ..*header }.seal(payload)[..], payload].concat();
        let message = split(&bytes).ok().flatten().expect("a whole message");
        let handled =
            self.pages.with_shell(|shell| self.slow.execute(&message, Source(1), now, shell, &mut self.reply));
        let Handled::Reply(length) = handled else { return None };
        let answer = split(&self.reply[..length]).ok().flatten().expect("a whole answer").header;
        Some(if answer.is_refusal() { Err(answer.code) } else { Ok(()) })
    }

    /// Time passes. What is prepared waits, unless sabotage drops it.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.slow.expire(now);
        if self.sabotage == Some(MoveSabotage::ForgetfulTarget) {
            for ((pid, from), transfer) in self.begun.clone() {
                let stage = AdoptStage::Abandon;
                let abandon = AdoptRequest { transfer, from, to: from + REGION_BYTES, stage }.to_bytes();
                let Some(pid) = Pid::new(pid) else { continue };
                let header = Header::request(Kind::Adopt, now | 1 << 60, 0, 0);
                let capability = self.slow.capability(pid, Rights::Owner);
                self.execute_adopt(&Header { pid: pid.get(), capability, time: now, ..header }, &abandon, now);
            }
        }
    }

    /// Makes the allocation of a region that was placed here.
    pub(super) fn allocate(&mut self, pid: yonder_placement::Pid, region: u32) {
        let (from, to) = range(region);
        let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
        let request = AllocateRequest { bytes: ALLOCATED_PAGES * PAGE_BYTES, permission, backing, from, to };
        let allocated = self.pages.with_shell(|shell| self.slow.allocate(named(pid), &request, shell));
        assert_eq!(allocated.expect("the region is empty").0, from);
    }

    /// Executes a read of a word, or a write if there is something to be written. Returns the word, or 0.
    pub(super) fn access(
        &mut self,
        id: u64,
        pid: yonder_placement::Pid,
        address: u64,
        write: Option<u64>,
        now: Nanos,
    ) -> Result<u64, ErrorCode> {
        self.pages.refill(&mut self.slow);
        let payload = write.map(u64::to_le_bytes);
        let payload = payload.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let kind = if write.is_some() { Kind::Write } else { Kind::Read };
        let capability = self.slow.capability(named(pid), Rights::Owner);
        let header = Header { pid: pid.0, capability, time: now, ..Header::request(kind, id, address, 8) };
        let bytes = [&header.seal(payload)[..], payload].concat();
        let message = split(&bytes).ok().flatten().expect("a whole message");
        let handled = self.fast.execute(&message, now, &self.pages, &self.pages, &mut self.reply);
        let Handled::Reply(length) = handled else { panic!("a read or write was not answered") };
        let answer = split(&self.reply[..length]).ok().flatten().expect("a whole answer");
        if answer.header.is_refusal() {
            return Err(answer.header.code);
        }
        Ok(answer.payload.try_into().map_or(0, u64::from_le_bytes))
    }

    /// Whether nothing of any address space is left.
    pub(super) fn is_empty(&self) -> bool {
        let status = self.slow.status();
        (status.spaces, status.allocated_bytes, self.board.free_pages()) == (0, 0, PAGES)
    }
}

/// An address space, as the board names it.
fn named(pid: yonder_placement::Pid) -> Pid {
    Pid::new(pid.0).expect("an address space has a number")
}

/// The addresses of a region.
pub(super) fn range(region: u32) -> (u64, u64) {
    let from = u64::from(region) * REGION_BYTES;
    (from, from + REGION_BYTES)
}
