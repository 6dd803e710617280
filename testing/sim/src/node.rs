//! [`Node`]: one memory node, the shell around the real board, and the oracle that judges each of its answers.
//!
//! A request for a data thread is executed when it arrives and answered in the same step (T1); one for the slow path
//! waits in its queue. What is not a message is dropped and counted.

mod leases;
mod pieces;

use std::collections::VecDeque;
use std::sync::Arc;

use yonder_board::{
    CallEffect, Config, ExtendPath, FastPath, Handled, NodeCore, PageSize, Path, Pid, Shell, SlowPath, Source,
    SpaceLimits, path_of,
};
use yonder_session::Wrap;
use yonder_units::Nanos;
use yonder_wire::{ErrorCode, HEADER_BYTES, Header, Kind, Message, PAYLOAD_BYTES_MAX, split};

use crate::guard::NodeGuard;
use crate::history::Life;
use crate::liar::Liar;
use crate::memory::{Janitor, Pages};
use crate::moves::Moves;
use crate::oracle::{Oracle, Verdict};
use crate::sabotage::Sabotage;
use crate::settings::{PAGE_BYTES, Settings};
use yonder_simulation::Clock;

/// Most address spaces of a node.
const SPACES_MAX: usize = 128;
/// All processes are on one host, which may have an eighth of them.
const SOURCE: Source = Source(1);

/// Threads that answer beside the data threads: those of the slow and of the extend path.
const SLOW_THREADS: usize = 2;

/// Requests of sessions that wait for the slow path.
pub(crate) const WAITING_MAX: usize = 4;

/// Number of the offload that answers how often it was called before.
pub(crate) const COUNTER: u64 = 1;

/// A memory node.
#[derive(Debug)]
pub(crate) struct Node {
    life: Life,
    pub(crate) clock: Clock,
    /// How it knows who asks, if it does.
    pub(crate) guard: Option<NodeGuard>,
    board: Arc<NodeCore>,
    pub(crate) slow_path: SlowPath,
    threads: Vec<FastPath>,
    extend_path: ExtendPath,
    /// What the offload keeps.
    counter: u64,
    /// Ranges that move, and ranges that are away.
    pub(crate) moves: Moves,
    pub(crate) pages: Pages,
    pub(crate) oracle: Oracle,
    queue: VecDeque<Waiting>,
    /// Requests whose work has begun and is not over.
    under_way: Vec<Header>,
    /// Requests whose work is over, of which the history has not been told.
    over: Vec<Header>,
    pub(crate) sabotage: Option<Sabotage>,
    reply: Vec<u8>,
    /// A tenant that lies.
    pub(crate) liar: Liar,
    steps: u64,
    /// How often the clock has leapt by less than a step of leases.
    pub(crate) leaps: u64,
    lease_step: Nanos,
    /// Bytes of everything that must not grow.
    bytes_at_birth: u64,
}

/// A request in the slow path's queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The message.
    pub(crate) bytes: Vec<u8>,
    /// Where the answer goes.
    pub(crate) from: Option<Sender>,
}

/// A lane, and the connection of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    /// The lane.
    pub(crate) lane: usize,
    /// The connection, for a stream.
    pub(crate) connection: u32,
    /// How an answer goes back.
    pub(crate) wrap: Wrap,
}

/// What has become of what arrived.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// It was executed, or refused.
    Answered {
        /// What was asked.
        request: Header,
        /// What it has come to.
        verdict: Verdict,
        /// The answer.
        answer: Vec<u8>,
    },
    /// It was corrupted, and the node has said so.
    Corrupt(Vec<u8>),
    /// It waits for the slow path.
    Queued,
    /// It was no request.
    Dropped,
}

/// Random numbers that a life of a node begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    /// The node's clock.
    pub(crate) clock: Clock,
    /// Seed of the page table.
    pub(crate) seed: u64,
    /// Key of capabilities.
    pub(crate) key: [u8; 16],
    /// What keys of sessions are derived from.
    pub(crate) secret: [u8; 32],
}

impl Node {
    /// A node that begins at `now`.
    #[must_use]
    pub(crate) fn new(life: Life, birth: Birth, settings: &Settings, sabotage: Option<Sabotage>, now: Nanos) -> Self {
        let (board, slow_path) = NodeCore::new(&Config {
            pages: settings.pages,
            page_size: PageSize::new(PAGE_BYTES).expect("a power of two"),
            seed: birth.seed,
            key: birth.key.into(),
            recent_max: settings.recent,
            spaces: SpaceLimits::of(SPACES_MAX),
            piece_pages_max: settings.piece_pages,
            lease_step_max: if sabotage == Some(Sabotage::LeasesThatLeap) { u64::MAX } else { settings.lease_step() },
            tenants: yonder_board::TenantLimits::default(),
        });
        let threads = (0..settings.threads).map(|_| board.fast_path()).collect();
        let mut node = Self {
            life,
            clock: birth.clock,
            guard: settings.guard.map(|guard| {
                let threads = settings.threads + SLOW_THREADS;
                NodeGuard::new(birth.secret, guard.rules, threads, birth.clock.read(now), sabotage)
            }),
            extend_path: board.extend_path(),
            board,
            slow_path,
            threads,
            counter: 0,
            moves: Moves::default(),
            pages: Pages::new(settings.pages, settings.ready_pages, sabotage),
            oracle: Oracle::new(PAGE_BYTES),
            queue: VecDeque::new(),
            under_way: Vec::new(),
            over: Vec::new(),
            sabotage,
            reply: vec![0; HEADER_BYTES + PAYLOAD_BYTES_MAX],
            liar: Liar::default(),
            steps: 0,
            leaps: 0,
            lease_step: settings.lease_step(),
            bytes_at_birth: 0,
        };
        node.bytes_at_birth = node.bytes();
        node.refill();
        node
    }

    /// Which life of which node this is.
    #[must_use]
    pub(crate) const fn life(&self) -> Life {
        self.life
    }

    /// What the node's clock shows.
    #[must_use]
    pub(crate) fn time(&self, now: Nanos) -> Nanos {
        self.clock.read(now)
    }

    /// PID and owner's capability of every address space.
    #[must_use]
    pub(crate) fn spaces(&self) -> Vec<(u32, u128)> {
        self.oracle.spaces().collect()
    }

    /// Whether the ring of ready pages should be refilled.
    #[must_use]
    pub(crate) fn wants_pages(&self) -> bool {
        self.pages.inner.wants_pages()
    }

    /// Makes free pages ready.
    pub(crate) fn refill(&mut self) {
        while self.pages.inner.wants_pages()
            && let Some(page) = self.slow_path.take_free_page(&mut Janitor(&self.pages))
        {
            self.steps += 1;
            if self.sabotage != Some(Sabotage::LeakedPages) || !self.steps.is_multiple_of(16) {
                self.pages.inner.make_ready(page);
            }
        }
    }

    /// Bytes have arrived for `thread`.
    pub(crate) fn arrive(
        &mut self,
        now: Nanos,
        thread: usize,
        bytes: &[u8],
        from: Option<Sender>,
    ) -> Result<Arrived, String> {
        self.oracle.set_time(now, self.leaps);
        let Ok(Some(message)) = split(bytes) else { return Ok(Arrived::Dropped) };
        if message.bytes() != bytes.len() {
            return Ok(Arrived::Dropped);
        }
        let has_session = from.is_some_and(|from| from.wrap != Wrap::Plain);
        let tampered = self.tamper(&message, bytes);
        let seen = whole(&tampered);
        let now = self.clock.read(now);
        let handled = match self.feign(&message, now) {
            Some(handled) => handled,
            None => self.threads[thread].execute(&seen, now, &self.pages, &self.pages.inner, &mut self.reply),
        };
        match handled {
            // A real queue is bounded too. Sessions here are so short that an answer would come after them.
            Handled::Slow if has_session && self.queue.len() >= WAITING_MAX => {
                let busy = self.feign_answer(&message.header.refusal(now, ErrorCode::Busy), &[]);
                self.judge(&message, busy)
            }
            Handled::Slow => {
                self.queue.push_back(Waiting { bytes: bytes.to_vec(), from });
                Ok(Arrived::Queued)
            }
            handled => self.judge(&message, handled),
        }
    }

    /// Whether requests wait for the slow path, or something that they have begun.
    #[must_use]
    pub(crate) fn has_slow_work(&self) -> bool {
        !self.queue.is_empty() || self.slow_path.has_work()
    }

    /// A turn of the slow path: it executes the request that waits longest, and a piece of what earlier ones have
    /// begun.
    pub(crate) fn slow_step(&mut self, now: Nanos) -> Result<Option<(Arrived, Option<Sender>)>, String> {
        self.oracle.set_time(now, self.leaps);
        let answered = self.execute_next(now)?;
        let upkeep = &mut Janitor(&self.pages);
        let mut shell = Shell { memory: &self.pages, pages: &self.pages.inner, upkeep };
        self.slow_path.work(self.clock.read(now), &mut shell);
        self.take_ended()?;
        Ok(answered)
    }

    fn execute_next(&mut self, now: Nanos) -> Result<Option<(Arrived, Option<Sender>)>, String> {
        let Some(Waiting { bytes, from }) = self.queue.pop_front() else { return Ok(None) };
        let message = whole(&bytes);
        let tampered = self.tamper(&message, &bytes);
        let now = self.clock.read(now);
        let handled = match self.feign(&message, now) {
            Some(handled) => handled,
            None => self.execute_slow(&whole(&tampered), now),
        };
        self.note_begun(&message)?;
        let handled = self.misreport(&message.header, now, handled);
        Ok(Some((self.judge(&message, handled)?, from)))
    }

    /// The thread that answers a request which a data thread does not.
    #[must_use]
    pub(crate) fn slow_thread(&self, request: &Header) -> usize {
        self.threads.len() + usize::from(path_of(request) == Path::Extend)
    }

    /// Data threads that the node has.
    #[must_use]
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Executes what arrives at `thread` at once. Nobody judges the answer.
    pub(crate) fn execute_unjudged(&mut self, now: Nanos, thread: usize, bytes: &[u8]) {
        let (message, now) = (whole(bytes), self.clock.read(now));
        let handled = self.threads[thread].execute(&message, now, &self.pages, &self.pages.inner, &mut self.reply);
        if handled == Handled::Slow {
            let _ = self.execute_slow(&message, now);
        }
        self.pages.take_effect();
    }

    /// Bytes of the page table and of what is remembered of requests.
    fn bytes(&self) -> u64 {
        self.board.bytes() + self.threads.iter().map(FastPath::bytes).sum::<u64>()
    }

    /// Whether everything has been given back, when no address space is left.
    pub(crate) fn check_empty(&mut self) -> Result<(), String> {
        self.refill();
        if self.bytes() != self.bytes_at_birth {
            return Err(format!("{:?} has grown from {} bytes to {}", self.life, self.bytes_at_birth, self.bytes()));
        }
        let status = self.slow_path.status();
        if (status.spaces, status.allocated_bytes) != (0, 0) {
            return Err(format!("{:?} is not empty: {status:?}", self.life));
        }
        let free = self.board.free_pages();
        let mut found = self.pages.inner.ready() as u32;
        while self.slow_path.take_free_page(&mut Janitor(&self.pages)).is_some() {
            found += 1;
        }
        let pages = self.board.config().pages;
        if (free, found) == (pages, pages) {
            Ok(())
        } else {
            Err(format!("{:?} has leaked: {free} of {pages} pages are free, {found} were found", self.life))
        }
    }

    /// What does not go to a data thread is executed by the slow path, or by the one offload that there is.
    fn execute_slow(&mut self, message: &Message<'_>, now: Nanos) -> Handled {
        if path_of(&message.header) == Path::Slow {
            let upkeep = &mut Janitor(&self.pages);
            let mut shell = Shell { memory: &self.pages, pages: &self.pages.inner, upkeep };
            return self.slow_path.execute(message, SOURCE, now, &mut shell, &mut self.reply);
        }
        let is_space = |pid: Pid| self.oracle.spaces().any(|(space, _)| space == pid.get());
        let admitted = self.extend_path.admit(message, now, is_space, &mut self.reply);
        if admitted != Handled::Slow {
            return admitted;
        }
        let counted = self.counter.to_le_bytes();
        let result = match message.header.address {
            COUNTER => {
                self.counter += 1;
                Ok(&counted[..])
            }
            _ => Err(ErrorCode::NoOffload),
        };
        self.extend_path.answer(message, now, CallEffect::Once, result, &mut self.reply)
    }

    /// Hands request and answer to the oracle.
    fn judge(&mut self, request: &Message<'_>, handled: Handled) -> Result<Arrived, String> {
        let Handled::Reply(bytes) = handled else {
            return match request.header.direction {
                yonder_wire::Direction::Request if request.header.kind != Kind::Hello => {
                    Err("a request was not answered".to_owned())
                }
                _ => Ok(Arrived::Dropped),
            };
        };
        let answer = self.restored(&request.header, bytes);
        let told = split(&answer).map_err(|error| format!("the answer is no message: {error}"))?;
        let told = told.filter(|told| told.bytes() == answer.len()).ok_or("the answer is not whole")?;
        told.verify().map_err(|error| format!("the answer is not sealed: {error}"))?;
        let effect = self.pages.take_effect();
        let is_under_way = self.under_way.iter().any(|begun| begun.first_id == request.header.first_id);
        if is_under_way && request.header.kind != Kind::Abort && !told.header.is_refusal() {
            return Err(format!("{:?} was answered before its last piece was done", request.header));
        }
        if request.verify().is_err() {
            if told.header.code != ErrorCode::Corrupt || effect != Default::default() {
                return Err(format!("a corrupted request was answered {:?}", told.header));
            }
            return Ok(Arrived::Corrupt(answer));
        }
        let judged = self.oracle.judge(request, &told, effect);
        let verdict = judged.map_err(|cause| format!("{:?}: {:?}: {cause}", self.life, request.header))?;
        Ok(Arrived::Answered { request: request.header, verdict, answer })
    }

    /// The request as sabotage lets the board see it.
    fn tamper(&mut self, message: &Message<'_>, bytes: &[u8]) -> Vec<u8> {
        self.steps += 1;
        let mut header = message.header;
        let is_whole = message.verify().is_ok();
        match self.sabotage {
            Some(Sabotage::ForgetfulRing) if is_whole && header.kind != Kind::Abort => {
                header.first_id = header.request_id;
            }
            Some(Sabotage::OpenDoors) if is_whole => {
                let owner = self.oracle.spaces().find(|(pid, _)| *pid == header.pid);
                header.capability = owner.map_or(header.capability, |(_, capability)| capability);
            }
            Some(Sabotage::NothingIsRevoked) if is_whole => {
                header.capability = self.unrevoked(header.pid, header.capability);
            }
            _ => return bytes.to_vec(),
        }
        [&header.seal(message.payload)[..], message.payload].concat()
    }

    /// The answer as the oracle and the client see it: what sabotage has changed is put back.
    fn restored(&self, request: &Header, bytes: usize) -> Vec<u8> {
        let mut answer = self.reply[..bytes].to_vec();
        let header = match (self.sabotage, split(&answer)) {
            (Some(Sabotage::ForgetfulRing), Ok(Some(told))) => Header { first_id: request.first_id, ..told.header },
            (Some(Sabotage::OpenDoors), Ok(Some(told)))
                if !matches!(told.header.kind, Kind::Grant | Kind::CreateSpace | Kind::Revoke) =>
            {
                Header { capability: request.capability, ..told.header }
            }
            _ => return answer,
        };
        let sealed = header.seal(&answer[HEADER_BYTES..]);
        answer[..HEADER_BYTES].copy_from_slice(&sealed);
        answer
    }

    /// An answer that sabotage gives in place of the board.
    fn feign(&mut self, request: &Message<'_>, now: Nanos) -> Option<Handled> {
        let header = &request.header;
        let feigned = self.sabotage == Some(Sabotage::ForgottenAborts) && header.kind == Kind::Abort;
        if !feigned || header.direction != yonder_wire::Direction::Request || request.verify().is_err() {
            return None;
        }
        let executed = u32::from(self.oracle.was_executed(header.first_id));
        self.reply[..HEADER_BYTES].copy_from_slice(&header.answer(now, executed).seal(&[]));
        Some(Handled::Reply(HEADER_BYTES))
    }
}

/// The one message that `bytes` are.
fn whole(bytes: &[u8]) -> Message<'_> {
    split(bytes).ok().flatten().expect("it was looked at before")
}
