//! One loading thread: starts requests when they are due, moves bytes, counts what comes back.
//!
//! Key type: [`Worker`], which owns its connections and its tally; only the ledger is shared. The loop:
//!
//! ```text
//! start what is due  ->  write  ->  hand over the tally, once a second  ->  wait until something is due  ->  read
//! ```
//!
//! An arrival that finds every pipeline full waits in the backlog *with its intended start*; one that finds the
//! backlog full too is dropped and counted. Nothing is ever silently delayed.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use yonder_units::Nanos;

use crate::connection::Connection;
use crate::ledger::Ledger;
use crate::pipeline::Request;
use crate::pool::{LostConnection, Pool};
use crate::settings::Waiting;
use crate::tally::Tally;
use crate::wake_timer::WakeTimer;
use crate::work::{Pace, Work};

/// How often a thread hands its tally over.
const HANDOVER_NS: Nanos = 1_000_000_000;

/// A sleep shorter than this costs more than it saves.
const SLEEP_NS_MIN: Nanos = 5_000;

/// Events taken at once.
const EVENTS_MAX: usize = 256;

/// What one thread does, and how far it may go.
pub(crate) struct Assignment {
    pub(crate) pace: Pace,
    pub(crate) work: Work,
    /// No request starts after this; [`Nanos::MAX`] for work that ends by itself.
    pub(crate) deadline: Nanos,
    /// How long the server may be silent after the last request, and during work that ends by itself.
    pub(crate) patience: Duration,
    /// Requests that may wait for a connection.
    pub(crate) backlog_max: usize,
    pub(crate) waiting: Waiting,
}

/// Why a thread ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    /// Every connection was lost, or the server fell silent; the text says how it was.
    #[error("{0}")]
    ServerGone(String),
    /// This machine refused a poll or a timer.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// How far a thread has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// More requests will start.
    Starting,
    /// The last request has started; answers are awaited until this time.
    Draining { until: Nanos },
}

/// One loading thread.
pub(crate) struct Worker<'a> {
    assignment: Assignment,
    ledger: &'a Ledger,
    /// Once this is true no request starts any more.
    is_over: &'a AtomicBool,
    start: Instant,
    pool: Pool,
    backlog: VecDeque<Request>,
    phase: Phase,
    tally: Tally,
    last_loss: Option<String>,
    answered_at: Nanos,
    handover_at: Nanos,
    batches: Sender<Tally>,
    poll: Poll,
    timer: WakeTimer,
    /// When the timer is set to expire.
    timer_at: Nanos,
}

impl<'a> Worker<'a> {
    /// A worker with its own connections. Time counts from `start`; tallies go to `batches`.
    pub(crate) fn new(
        assignment: Assignment,
        connections: Vec<Connection>,
        ledger: &'a Ledger,
        is_over: &'a AtomicBool,
        start: Instant,
        batches: Sender<Tally>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = WakeTimer::new(poll.registry(), Token(connections.len()))?;
        Ok(Self {
            pool: Pool::new(connections, poll.registry())?,
            backlog: VecDeque::with_capacity(assignment.backlog_max),
            assignment,
            ledger,
            is_over,
            start,
            phase: Phase::Starting,
            tally: Tally::default(),
            last_loss: None,
            answered_at: 0,
            handover_at: HANDOVER_NS,
            batches,
            poll,
            timer,
            timer_at: 0,
        })
    }

    /// Works until everything is answered, or the drain is over, or every connection is lost.
    pub(crate) fn run(mut self) -> Result<(), WorkerError> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.pool.usable() > 0 {
            let now = self.now();
            if self.is_over.load(Ordering::Relaxed) {
                self.assignment.deadline = self.assignment.deadline.min(now);
            }
            self.send_backlog();
            if self.phase == Phase::Starting && !self.start_due_requests(now) {
                self.tally.ended_at = now;
                self.phase = Phase::Draining { until: now + self.patience_ns() };
            }
            self.flush();
            self.hand_over_if_due(now);
            if self.is_finished(now) || self.is_forsaken(now) {
                break;
            }
            self.wait(&mut events, now)?;
            for event in &events {
                self.receive(event.token().0);
            }
        }
        let forsaken = self.is_forsaken(self.now());
        self.give_up();
        match self.last_loss {
            Some(loss) if self.pool.usable() == 0 => Err(WorkerError::ServerGone(loss)),
            _ if forsaken => {
                Err(WorkerError::ServerGone(format!("it has been silent for {:?}", self.assignment.patience)))
            }
            _ => Ok(()),
        }
    }

    fn now(&self) -> Nanos {
        nanos_since(self.start)
    }

    fn send_backlog(&mut self) {
        while self.pool.has_room() {
            let Some(request) = self.backlog.pop_front() else { return };
            self.pool.push(request, self.ledger);
        }
    }

    /// Starts every request that is due, and says whether more may come.
    fn start_due_requests(&mut self, now: Nanos) -> bool {
        let Assignment { pace, work, deadline, backlog_max, .. } = &mut self.assignment;
        let keys = self.ledger.keys();
        while let Some(intended) = pace.next_due(now, *deadline, self.pool.with_room()) {
            let Some((op, key)) = work.next(keys.stored()) else { return false };
            let request = Request { op, key, intended };
            self.tally.requests += 1;
            if self.pool.has_room() {
                self.pool.push(request, self.ledger);
            } else if self.backlog.len() < *backlog_max {
                self.backlog.push_back(request);
            } else {
                self.tally.dropped += 1;
            }
        }
        now < *deadline
    }

    fn flush(&mut self) {
        let Self { pool, tally, last_loss, ledger, .. } = self;
        pool.flush(ledger, |loss| count_loss(loss, tally, last_loss));
    }

    fn receive(&mut self, index: usize) {
        let Self { pool, tally, last_loss, answered_at, ledger, start, assignment, .. } = self;
        let clock = || nanos_since(*start);
        let result = pool.ready(index, ledger, clock, |request, outcome, now| {
            tally.count(request, outcome, now, assignment.deadline);
            *answered_at = now;
        });
        if let Err(loss) = result {
            count_loss(loss, tally, last_loss);
        }
    }

    fn hand_over_if_due(&mut self, now: Nanos) {
        if now >= self.handover_at {
            self.handover_at = now + HANDOVER_NS;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        // The coordinator outlives its workers; were it gone, nobody would want the numbers.
        let _ = self.batches.send(self.tally.take());
    }

    fn is_finished(&self, now: Nanos) -> bool {
        match self.phase {
            Phase::Starting => false,
            Phase::Draining { until } => now >= until || (self.pool.outstanding() == 0 && self.backlog.is_empty()),
        }
    }

    /// Whether work that ends by itself would never end, for the server has fallen silent. The hand-over wakes the
    /// thread often enough for this to be seen.
    fn is_forsaken(&self, now: Nanos) -> bool {
        let waits = self.assignment.work.is_finite() && self.pool.outstanding() > 0;
        waits && now.saturating_sub(self.answered_at) >= self.patience_ns()
    }

    fn patience_ns(&self) -> Nanos {
        self.assignment.patience.as_nanos() as Nanos
    }

    /// Waits for a socket or for the next thing that is due by itself.
    fn wait(&mut self, events: &mut Events, now: Nanos) -> io::Result<()> {
        let due = match self.phase {
            Phase::Starting => self.assignment.pace.next_arrival().unwrap_or(Nanos::MAX).min(self.assignment.deadline),
            Phase::Draining { until } => until,
        };
        let due = due.min(self.handover_at);
        let sleeps = self.assignment.waiting == Waiting::Sleep && due > now + SLEEP_NS_MIN;
        if sleeps && self.timer_at != due {
            self.timer.set(Duration::from_nanos(due.saturating_sub(self.now())))?;
            self.timer_at = due;
        }
        match self.poll.poll(events, if sleeps { None } else { Some(Duration::ZERO) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// Accounts for what was never answered or never sent.
    fn give_up(&mut self) {
        let unanswered = self.pool.outstanding() as u64;
        let patience = self.assignment.patience;
        if unanswered > 0 {
            self.tally.end_gap(self.now());
        }
        self.tally.count_errors(unanswered, || format!("no answer came within {patience:?} after the end of the run"));
        self.tally.dropped += self.backlog.len() as u64;
        self.backlog.clear();
        self.hand_over();
    }
}

fn count_loss(loss: LostConnection, tally: &mut Tally, last_loss: &mut Option<String>) {
    let text = loss.cause.to_string();
    tally.count_errors(loss.unanswered, || text.clone());
    *last_loss = Some(text);
}

fn nanos_since(start: Instant) -> Nanos {
    start.elapsed().as_nanos() as Nanos
}
