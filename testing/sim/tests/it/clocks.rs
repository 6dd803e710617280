//! Clocks that stop or run fast: the real client and the real board, and how long it takes until writes complete again.
//!
//! A machine that is paused (migration, snapshot, suspend) has a clock that stands still meanwhile, so clients take the
//! node's clock for later than it is. `--nocapture` shows the figures.

use std::sync::{Arc, Mutex};

use yonder_board::{FastPath, Handled, Memory, NodeCore, PageSize, PageSource, PhysicalPage, Shell, SlowPath, Upkeep};
use yonder_client::{Client, Config, Operation, OperationId, Outcome, Payload, Transport};
use yonder_simulation::{Clock, EventQueue};
use yonder_units::Nanos;
use yonder_wire::{AllocateRequest, AtomicOperation, Backing, HEADER_BYTES, Kind, Permission, Rights, split};

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
const PAGE: u64 = 4096;
/// Time that a message takes.
const ONE_WAY: Nanos = 50 * MICROSECOND;
/// An owner may give a write up after this time and post it again, as the pager's reclaimer does.
const ATTEMPT: Nanos = 20 * MILLISECOND;
/// An owner may wait for a write for as long as it takes.
const FOR_EVER: Nanos = 1_000 * SECOND;
/// Writes under way, each to a page of its own.
const WRITERS: usize = 16;

/// Pages of a node of which the content is of no interest.
#[derive(Default)]
struct Pages(Mutex<Vec<PhysicalPage>>);

impl Memory for Pages {
    fn read(&self, _: PhysicalPage, _: u64, into: &mut [u8]) {
        into.fill(0);
    }

    fn write(&self, _: PhysicalPage, _: u64, _: &[u8]) {}

    fn atomic(&self, _: PhysicalPage, _: u64, _: AtomicOperation) -> u64 {
        0
    }
}

impl PageSource for Pages {
    fn take(&self) -> Option<PhysicalPage> {
        self.0.lock().unwrap().pop()
    }

    fn give_back(&self, page: PhysicalPage) {
        self.0.lock().unwrap().push(page);
    }
}

impl Upkeep for Pages {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, _: PhysicalPage) {}
}

enum Event {
    ToNode(Vec<u8>),
    ToClient(Vec<u8>),
    /// The client's timer, or the owner's.
    Wake,
    /// The node's machine is paused, with its clock.
    Pause,
    Resume,
}

/// The owner's view of one page.
#[derive(Clone, Copy)]
struct Writer {
    id: Option<OperationId>,
    posted: Nanos,
    /// When a write first completed that was posted after the pause.
    done: Option<Nanos>,
}

struct Pair {
    events: EventQueue<Event>,
    client: Client,
    client_clock: Clock,
    node_clock: Clock,
    _board: Arc<NodeCore>,
    _slow: SlowPath,
    fast: FastPath,
    pages: Pages,
    /// Space and first address.
    target: (u32, u128, u64),
    writers: [Writer; WRITERS],
    paused: bool,
    held: Vec<Vec<u8>>,
    resumed: Nanos,
    done: u64,
    wake_at: Nanos,
    attempt: Nanos,
}

impl Pair {
    fn new(transport: Transport, client_ppm: i64, attempt: Nanos) -> Self {
        let (board, mut slow) = NodeCore::new(&yonder_board::Config {
            pages: 64,
            page_size: PageSize::new(PAGE).unwrap(),
            seed: 1,
            key: (*b"only this node's").into(),
            recent_max: 4096,
            spaces: yonder_board::SpaceLimits::of(8),
            piece_pages_max: yonder_board::PIECE_PAGES_MAX,
            lease_step_max: yonder_board::LEASE_STEP_MAX,
            tenants: yonder_board::TenantLimits::default(),
        });
        let mut pages = Pages::default();
        let pid = slow.create_space(None, 0, 1).unwrap();
        let request = AllocateRequest {
            bytes: WRITERS as u64 * PAGE,
            permission: Permission::ReadWrite,
            backing: Backing::Now,
            from: 0,
            to: 0,
        };
        let source = Pages::default();
        let mut shell = Shell { memory: &source, pages: &source, upkeep: &mut pages };
        let (address, _) = slow.allocate(pid, &request, &mut shell).unwrap();
        let capability = slow.capability(pid, Rights::ReadWrite);
        Self {
            events: EventQueue::new(),
            client: Client::new(Config::new(transport, 1 << 40)),
            client_clock: Clock::new(77 * SECOND, client_ppm),
            node_clock: Clock::new(SECOND, 0),
            fast: board.fast_path(),
            _board: board,
            _slow: slow,
            pages,
            target: (pid.get(), capability, address),
            writers: [Writer { id: None, posted: 0, done: None }; WRITERS],
            paused: false,
            held: Vec::new(),
            resumed: Nanos::MAX,
            done: 0,
            wake_at: 0,
            attempt,
        }
    }

    /// Lets the owner write until `end`.
    fn run(&mut self, end: Nanos) {
        self.events.after(0, Event::Wake);
        while self.events.now() < end {
            match self.events.advance().expect("the owner always waits for something") {
                Event::ToNode(bytes) if self.paused => self.held.push(bytes),
                Event::ToNode(bytes) => self.serve(&bytes),
                Event::ToClient(bytes) => {
                    let now = self.client_clock.read(self.events.now());
                    self.client.receive(&split(&bytes).unwrap().unwrap(), now);
                    self.turn();
                }
                Event::Wake if self.events.now() < self.wake_at => {}
                Event::Wake => self.turn(),
                Event::Pause => {
                    self.paused = true;
                    self.node_clock.stop(self.events.now());
                }
                Event::Resume => {
                    self.paused = false;
                    self.resumed = self.events.now();
                    self.node_clock.go_on(self.events.now());
                    std::mem::take(&mut self.held).iter().for_each(|bytes| self.serve(bytes));
                }
            }
        }
    }

    fn serve(&mut self, bytes: &[u8]) {
        let (mut reply, time) = (vec![0; HEADER_BYTES], self.node_clock.read(self.events.now()));
        let message = split(bytes).unwrap().unwrap();
        let Handled::Reply(bytes) = self.fast.execute(&message, time, &self.pages, &self.pages, &mut reply) else {
            panic!("a data thread answers writes");
        };
        reply.truncate(bytes);
        self.events.after(ONE_WAY, Event::ToClient(reply));
    }

    /// Takes completions, posts writes, gives up those that take too long, and sends.
    fn turn(&mut self) {
        let real = self.events.now();
        let now = self.client_clock.read(real);
        if self.wake_at <= real {
            self.wake_at = Nanos::MAX;
        }
        self.client.advance(now);
        while let Some(completion) = self.client.completion() {
            assert_eq!(completion.outcome, Outcome::Done);
            let writer = &mut self.writers[completion.token as usize];
            (writer.id, self.done) = (None, self.done + 1);
            if writer.posted >= self.resumed {
                writer.done = writer.done.or(Some(real));
            }
        }
        let (pid, capability, address) = self.target;
        for (index, writer) in self.writers.iter_mut().enumerate() {
            if writer.id.is_some() && real >= writer.posted + self.attempt {
                self.client.cancel(writer.id.take().unwrap());
            }
            if writer.id.is_none() {
                let operation = Operation {
                    kind: Kind::Write,
                    pid,
                    capability,
                    address: address + index as u64 * PAGE,
                    length: PAGE,
                    body: &[],
                    deadline: Nanos::MAX,
                    token: index as u64,
                };
                writer.id = self.client.submit(&operation, now).ok();
                writer.posted = real;
            }
        }
        while let Some(next) = self.client.transmit(now) {
            let payload = match next.payload {
                Payload::Caller { length, .. } => vec![9; length],
                _ => Vec::new(),
            };
            let bytes = [&next.header.seal(&payload)[..], &payload].concat();
            self.events.after(ONE_WAY, Event::ToNode(bytes));
        }
        let timer = self.client.timeout().map_or(Nanos::MAX, |due| self.client_clock.when(due));
        let attempt = self.writers.iter().map(|writer| writer.posted + self.attempt).min().unwrap_or(Nanos::MAX);
        let due = timer.min(attempt).max(real + 1);
        if due < self.wake_at {
            self.wake_at = due;
            self.events.at(due, Event::Wake);
        }
    }
}

/// How long after a pause of `pause` each of the writers has completed a write that was posted after it.
fn recovery(transport: Transport, pause: Nanos, attempt: Nanos) -> Option<Nanos> {
    let mut pair = Pair::new(transport, 400, attempt);
    pair.events.at(SECOND / 10, Event::Pause);
    pair.events.at(SECOND / 10 + pause, Event::Resume);
    pair.run(SECOND / 10 + pause + SECOND / 5);
    let done = pair.writers.iter().map(|writer| writer.done).collect::<Option<Vec<_>>>()?;
    done.into_iter().max().map(|last| last - pair.resumed)
}

#[test]
fn writes_complete_soon_after_a_pause_in_which_the_nodes_clock_stood_still() {
    for transport in [Transport::Stream, Transport::Datagram] {
        for pause_ms in [10, 100, 1_000, 10_000, 100_000] {
            for attempt in [ATTEMPT, FOR_EVER] {
                let after = recovery(transport, pause_ms * MILLISECOND, attempt);
                let shown = after.map_or("not in 200 ms".to_owned(), |after| format!("{:.3} ms", after as f64 / 1e6));
                let owner = if attempt == ATTEMPT { "gives up after 20 ms" } else { "waits" };
                println!("{transport:?}, an owner who {owner}: {shown} after a pause of {pause_ms} ms");
                assert!(after.is_some_and(|after| after <= 100 * MILLISECOND), "{shown} after {pause_ms} ms");
            }
        }
    }
}

#[test]
fn a_client_whose_clock_is_fast_writes_at_nearly_full_speed() {
    for transport in [Transport::Stream, Transport::Datagram] {
        let writes = |client_ppm: i64| {
            let mut pair = Pair::new(transport, client_ppm, FOR_EVER);
            pair.run(SECOND / 5);
            pair.done
        };
        let right = writes(0);
        for client_ppm in [500, 1_000, 2_000, 5_000, 10_000, 20_000] {
            let done = writes(client_ppm);
            let share = done as f64 / right as f64;
            println!(
                "{transport:?}, {client_ppm} ppm fast: {done} writes in 200 ms, {:.1} % of {right}",
                100.0 * share
            );
            let least = if client_ppm <= 10_000 { 0.95 } else { 0.9 };
            assert!(share >= least, "{transport:?}: {share:.3} at {client_ppm} ppm");
        }
    }
}
