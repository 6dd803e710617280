//! One move of a region to another node, at its source: [`carry`].
//!
//! First a lane to the target is opened, so that nothing waits for that. Then requests for the region are held up, the
//! target makes the allocations, the bytes follow in fills, several at a time, and the target says that it has prepared
//! all: it keeps the region, and serves nothing of it. If anything fails until then, or time is up, or the answer is
//! lost, the region is served here again as if nothing had been, and the target is told that the move was given up.
//!
//! With the answer that all is prepared this node decides: it closes the region for good and frees it. Only after that
//! it tells the controller, and the target, which serves the region as soon as it hears of it from either. What becomes
//! of these messages changes nothing here any more, so there is no end of a move that this node does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yonder_board::{Departure, Memory as _, Moving, PhysicalPage, Pid};
use yonder_client::{Operation, OperationId, Outcome};
use yonder_controller::MoveEnd;
use yonder_fabric::lane::{Condition, Data, Lane, NodeAddress, NodeSession};
use yonder_placement::MoveOrder;
use yonder_session::Protection;
use yonder_units::{Nanos, Narrow};
use yonder_wire::{
    ADOPT_HEAD_BYTES, ADOPT_PAGES_MAX, AdoptRequest, AdoptStage, AdoptedAllocation, ErrorCode, Header, InventoryList,
    Kind,
};

use crate::Shared;
use crate::memory::Memory;

/// Most bytes of a fill.
const FILL_BYTES: u64 = 32 << 10;
/// Fills under way.
const FILLS_MAX: usize = 16;
/// What a lane must hold: fills that were given up, a stage that was, and the stage that says so.
const OPERATIONS_MAX: usize = FILLS_MAX + 2;
/// How long a move may take, and how much longer for its bytes: as many a second are the least that is worth waiting
/// for.
const MOVE_TIME_MAX: Nanos = 30_000_000_000;
const BYTES_PER_SECOND_MIN: u64 = 32 << 20;
/// How long the target may be out of reach.
const DOWN_TIME_MAX: Nanos = 1_000_000_000;
/// How long the target is asked to forget a region.
const TAKE_BACK_TIME_MAX: Nanos = 2_000_000_000;
/// How long the target is told to serve a region; the controller does so too.
const FINISH_TIME_MAX: Nanos = 2_000_000_000;
/// Longest time between two looks at whether the move was called off.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// The token of a stage that is no fill; fills have those below.
const STAGE_TOKEN: u64 = FILLS_MAX as u64;

/// Moves a region as ordered, and says how that has ended.
pub(crate) fn carry(shared: &Shared, order: &MoveOrder, is_called_off: &AtomicBool, end: MoveEnd) {
    match try_to_carry(shared, order, is_called_off) {
        Ok(carrier) => {
            // First, so that nothing waits for a target that does not answer.
            end.moved();
            if let Some(mut carrier) = carrier {
                carrier.finish();
            }
        }
        Err(cause) => {
            shared.counters.move_failed();
            tracing::warn!("region {} of address space {} is not moved: {cause}", order.region, order.pid);
            end.failed(cause);
        }
    }
}

/// Gives the target everything, and closes the region here for good. Returns the way to the target, unless the region
/// had left before. An error is one line that says why the region is served here as before.
fn try_to_carry<'a>(
    shared: &'a Shared,
    order: &'a MoveOrder,
    is_called_off: &'a AtomicBool,
) -> Result<Option<Carrier<'a>>, String> {
    let pid = Pid::new(order.pid.0).ok_or("the address space has no number")?;
    let (from, to) = (order.address, order.address.saturating_add(order.bytes));
    let page_bytes = shared.board.config().page_size.bytes();
    if order.bytes / page_bytes > u64::from(ADOPT_PAGES_MAX) {
        return Err(format!("a region of {} pages is more than {ADOPT_PAGES_MAX}", order.bytes / page_bytes));
    }
    let mut carrier = Carrier::reach(shared, order, is_called_off)?;
    let held_up = Instant::now();
    let transfer = order.id.0;
    let begun = shared.on_slow_path(move |slow, shell| slow.depart(pid, transfer, (from, to), shell.upkeep));
    let moving = match begun.ok_or("the node stops")?.map_err(why_not_begun)? {
        Departure::Begun(moving) => moving,
        Departure::Left => return Ok(None),
    };
    match carrier.send(&moving) {
        Ok(()) => {
            // From here on the region is the target's, whatever is lost.
            shared.on_slow_path(move |slow, _| slow.finish_move(moving)).ok_or("the node stops")?;
            shared.counters.moved(carrier.sent_bytes, held_up.elapsed());
            Ok(Some(carrier))
        }
        Err(cause) => {
            shared.on_slow_path(move |slow, _| slow.abandon_move(moving)).ok_or("the node stops")?;
            carrier.take_back();
            Err(cause)
        }
    }
}

fn why_not_begun(code: ErrorCode) -> String {
    match code {
        ErrorCode::BadAddress => "an allocation lies across the end of the region".to_owned(),
        ErrorCode::NotAllowed => "a client on this machine reaches memory of the region by itself".to_owned(),
        code => code.to_string(),
    }
}

/// A part of a page.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    address: u64,
    page: PhysicalPage,
    offset: u64,
    bytes: u64,
}

/// A lane to the target, and what travels on it.
struct Carrier<'a> {
    shared: &'a Shared,
    order: &'a MoveOrder,
    is_called_off: &'a AtomicBool,
    deadline: Nanos,
    lane: Lane,
    cargo: Cargo<'a>,
    /// Tokens of fills that are not under way.
    free: Vec<u64>,
    /// What is under way, by token.
    underway: [Option<OperationId>; FILLS_MAX + 1],
    down_since: Option<Nanos>,
    sent_bytes: u64,
}

/// The bytes of what is under way.
struct Cargo<'a> {
    memory: &'a Memory,
    /// The stage that is no fill.
    stage: Vec<u8>,
    /// How each fill begins.
    fill_head: [u8; ADOPT_HEAD_BYTES],
    /// The fills by token. Their pages do not change while the region moves.
    fills: [Option<Chunk>; FILLS_MAX],
}

impl Data for Cargo<'_> {
    fn copy_out(&mut self, token: u64, offset: u64, into: &mut [u8]) {
        if token == STAGE_TOKEN {
            let offset = offset.narrow_usize();
            return into.copy_from_slice(&self.stage[offset..offset + into.len()]);
        }
        assert_eq!(offset, 0, "a fill is not cut");
        let chunk = self.fills[token.narrow_usize()].expect("it was submitted");
        let (head, content) = into.split_at_mut(ADOPT_HEAD_BYTES);
        head.copy_from_slice(&self.fill_head);
        self.memory.read(chunk.page, chunk.offset, content);
    }

    fn copy_in(&mut self, _token: u64, _offset: u64, _bytes: &[u8]) {
        unreachable!("no read was submitted");
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {}
}

impl<'a> Carrier<'a> {
    /// Opens a lane to the target of a move.
    fn reach(shared: &'a Shared, order: &'a MoveOrder, is_called_off: &'a AtomicBool) -> Result<Self, String> {
        let lane = open_lane(shared, order)?;
        let time = MOVE_TIME_MAX + order.bytes / BYTES_PER_SECOND_MIN * 1_000_000_000;
        let mut carrier = Self {
            shared,
            order,
            is_called_off,
            deadline: yonder_clock::now() + time,
            lane,
            cargo: Cargo {
                memory: &shared.memory,
                stage: Vec::new(),
                fill_head: [0; ADOPT_HEAD_BYTES],
                fills: [None; FILLS_MAX],
            },
            free: (0..STAGE_TOKEN).collect(),
            underway: [None; FILLS_MAX + 1],
            down_since: None,
            sent_bytes: 0,
        };
        carrier.cargo.fill_head = carrier.request(AdoptStage::Fill(&[])).head();
        Ok(carrier)
    }

    /// Gives the target everything, and returns when it has said that it keeps all of it.
    fn send(&mut self, moving: &Moving) -> Result<(), String> {
        let allocations = moving.allocations().iter().map(|allocation| AdoptedAllocation::from(*allocation));
        let pages = moving.memory().iter().map(|(page, _)| page.0);
        let list = InventoryList::new(allocations, pages).ok_or("the region has too many pages")?;
        self.perform(AdoptStage::Begin(list.inventory()), self.deadline)?;
        let page_size = self.shared.board.config().page_size;
        let mut content = vec![0; FILL_BYTES.narrow_usize()];
        for (virtual_page, page) in moving.memory() {
            for offset in (0..page_size.bytes()).step_by(FILL_BYTES.narrow_usize()) {
                let bytes = FILL_BYTES.min(page_size.bytes() - offset);
                self.cargo.memory.read(*page, offset, &mut content[..bytes.narrow_usize()]);
                // The target's page is zeros until it is written.
                if content[..bytes.narrow_usize()].iter().any(|byte| *byte != 0) {
                    let address = page_size.address(*virtual_page) + offset;
                    self.fill(Chunk { address, page: *page, offset, bytes })?;
                }
            }
        }
        self.await_operations(0)?;
        self.perform(AdoptStage::Prepare, self.deadline)
    }

    /// Tells the target to serve the region, for as long as that is worth it.
    fn finish(&mut self) {
        self.down_since = None;
        if let Err(cause) = self.perform(AdoptStage::Finish, yonder_clock::now() + FINISH_TIME_MAX) {
            tracing::debug!("the target of a move hears from the controller that it has ended: {cause}");
        }
    }

    /// Asks the target to forget the region, for as long as that is worth it.
    fn take_back(&mut self) {
        if self.must_end().is_some() {
            return;
        }
        for id in self.underway.iter_mut().filter_map(Option::take) {
            self.lane.cancel(id);
        }
        self.down_since = None;
        if let Err(cause) = self.perform(AdoptStage::Abandon, yonder_clock::now() + TAKE_BACK_TIME_MAX) {
            tracing::debug!("the target of a move was not told that it has failed: {cause}");
        }
    }

    fn request<'b>(&self, stage: AdoptStage<'b>) -> AdoptRequest<'b> {
        let MoveOrder { id, address, bytes, .. } = *self.order;
        AdoptRequest { transfer: id.0, from: address, to: address + bytes, stage }
    }

    /// Performs a stage that is no fill.
    fn perform(&mut self, stage: AdoptStage<'_>, deadline: Nanos) -> Result<(), String> {
        self.cargo.stage = self.request(stage).to_bytes();
        self.submit(STAGE_TOKEN, 0, self.cargo.stage.len() as u64, deadline)?;
        self.await_operations(0)
    }

    /// Sends a fill, once there is room for it.
    fn fill(&mut self, chunk: Chunk) -> Result<(), String> {
        self.await_operations(FILLS_MAX - 1)?;
        let token = self.free.pop().expect("as many fills are under way as are not free");
        self.cargo.fills[token.narrow_usize()] = Some(chunk);
        self.sent_bytes += chunk.bytes;
        self.submit(token, chunk.address, ADOPT_HEAD_BYTES as u64 + chunk.bytes, self.deadline)
    }

    fn submit(&mut self, token: u64, address: u64, length: u64, deadline: Nanos) -> Result<(), String> {
        let operation = Operation {
            kind: Kind::Adopt,
            pid: self.order.pid.0,
            capability: self.order.capability.0,
            address,
            length,
            body: &[],
            deadline,
            token,
        };
        let id = self.lane.submit(&operation, yonder_clock::now()).map_err(|error| error.to_string())?;
        self.underway[token.narrow_usize()] = Some(id);
        Ok(())
    }

    /// Waits until no more than `left` operations are under way. Fails if one of them has, or the move must end.
    fn await_operations(&mut self, left: usize) -> Result<(), String> {
        loop {
            let now = yonder_clock::now();
            let condition = self.lane.poll(now, &mut self.cargo);
            while let Some(completion) = self.lane.completion() {
                self.underway[completion.token.narrow_usize()] = None;
                if completion.token != STAGE_TOKEN {
                    self.free.push(completion.token);
                }
                match completion.outcome {
                    Outcome::Done | Outcome::Old(_) => {}
                    Outcome::Refused(code) => return Err(format!("{} refuses it: {code}", self.target())),
                    Outcome::TimedOut => return Err(format!("{} does not answer in time", self.target())),
                    Outcome::Lost => return Err(format!("{} was started again", self.target())),
                }
            }
            if self.lane.outstanding() <= left {
                return Ok(());
            }
            self.down_since = match condition {
                Condition::Up => None,
                Condition::Down => self.down_since.or(Some(now)),
            };
            if self.down_since.is_some_and(|since| now.saturating_sub(since) >= DOWN_TIME_MAX) {
                return Err(format!("{} is out of reach", self.target()));
            }
            if let Some(cause) = self.must_end() {
                return Err(cause.to_owned());
            }
            self.lane.wait(now, PAUSE_MAX);
        }
    }

    /// Why nothing more is to be done.
    fn must_end(&self) -> Option<&'static str> {
        if self.shared.stop.load(Ordering::Acquire) {
            Some("the node stops")
        } else if self.is_called_off.load(Ordering::Acquire) {
            Some("the address space has ended")
        } else {
            None
        }
    }

    fn target(&self) -> &str {
        self.order.urls.first().map_or("the target", String::as_str)
    }
}

/// A lane to the target of a move, over a stream if there is one: the bytes are many.
fn open_lane(shared: &Shared, order: &MoveOrder) -> Result<Lane, String> {
    let (streams, others): (Vec<_>, Vec<_>) = order.urls.iter().partition(|url| url.starts_with("tcp://"));
    let mut problem = "the target has no address".to_owned();
    for url in streams.into_iter().chain(others) {
        let addresses = match NodeAddress::resolve(url) {
            Ok(addresses) => addresses,
            Err(error) => {
                problem = error.to_string();
                continue;
            }
        };
        for address in addresses {
            let session = NodeSession::with(shared.doors.credential.clone(), Protection::Encrypted);
            let session = session.called(order.name.clone());
            match Lane::open(&address, OPERATIONS_MAX, &Arc::new(session)) {
                Ok(opened) if opened.welcome.incarnation == order.to.0 => return Ok(opened.lane),
                Ok(_) => problem = format!("{url} is another node now"),
                Err(error) => problem = format!("{url} cannot be reached: {error}"),
            }
        }
    }
    Err(problem)
}
