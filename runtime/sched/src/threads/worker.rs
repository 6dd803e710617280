//! [`Worker`]: a thread that runs light threads.
//!
//! A turn: map the pages that have arrived; let those go on whose page, wake-up or time has come, in the order in which
//! that was seen; then start some new light threads, and let some go on that have yielded. A turn runs each light
//! thread at most once, so one that is ready waits for the next steps of the others at most. Of new ones, and of those
//! that have yielded, each turn takes one, or an eighth as many as were ready if that is more (all that have yielded,
//! if there was nothing else): so a worker that has many takes no more new ones in the same time than another.
//!
//! Light threads that have started are not counted against a limit of their own: those that are spawned are bounded,
//! and one that has not started may be the one for which all the others wait.
//!
//! Who touches what: all fields are this thread's; `local` is also the running light thread's. Neighbours: `local`,
//! `run`, and [`crate::worker`], whose protocol of suspension this loop follows.

use std::collections::VecDeque;
use std::rc::Rc;

use yonder_paging::{Installs, Posting, WorkerPort};
use yonder_unithread::{Resumed, Running, Unithread};
use yonder_units::{Nanos, saturating_nanos};

use super::config::Config;
use super::local::Local;
use super::spawn::Task;
use crate::config::Idle;
use crate::worker::{CROWD, GIVE_WAY_AT, SUSPENSION, Suspension, sleep_span};

/// Longest time between two looks at sockets while light threads are ready, but for the length of a turn.
const WITHOUT_SOCKETS_MAX: Nanos = 100_000;
/// For so many that were ready a turn starts a new light thread, and lets one go on that has yielded.
const READY_A_NEW_ONE: usize = 8;

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Light threads ran for whom something had come.
    Progress,
    /// Only such ran as had yielded.
    Yielded,
    /// There was nothing to run.
    Idle,
}

/// See the head of this file.
pub(super) struct Worker {
    port: WorkerPort,
    local: Rc<Local>,
    /// Suspended light threads by their tokens.
    suspended: Vec<Option<Running<Task>>>,
    /// Those that have yielded or were preempted.
    yielded: VecDeque<u32>,
    /// How many wait for what the port will see.
    fetching: usize,
    /// When sockets were looked at last.
    looked_at_sockets: Nanos,
    quantum: Option<Nanos>,
    idle: Idle,
}

impl Worker {
    pub(super) fn new(config: &Config, port: WorkerPort, local: Rc<Local>) -> Self {
        Self {
            port,
            local,
            suspended: (0..config.light_threads).map(|_| None).collect(),
            yielded: VecDeque::with_capacity(64),
            fetching: 0,
            looked_at_sockets: 0,
            quantum: config.preempt.map(saturating_nanos),
            idle: config.idle,
        }
    }

    /// Runs until all light threads have ended.
    pub(super) fn run(mut self) {
        let (mut arrived, mut retry) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let mut last_progress = yonder_clock::now();
        loop {
            let now = yonder_clock::now();
            self.port.poll(now, Installs::Own, self.posting(), &mut arrived, &mut retry);
            self.fetching -= arrived.len() + retry.len();
            self.local.with_ready(|ready| {
                ready.extend(arrived.drain(..));
                self.local.shared.inbox.collect(ready);
            });
            self.local.fire_timers(now);
            self.look_at_sockets(now);
            retry.drain(..).for_each(|token| self.resume_suspended(token));
            match self.turn() {
                Turn::Progress => last_progress = now,
                Turn::Yielded => {
                    // They may wait for a thread that shares this CPU.
                    std::thread::yield_now();
                    last_progress = now;
                }
                Turn::Idle if self.local.run.is_over() => return,
                Turn::Idle => self.rest(now.saturating_sub(last_progress)),
            }
        }
    }

    /// When reads are begun: together with others if light threads could run meanwhile. Who yields may be waiting for
    /// one whose page is to be read, so that reads do not wait for them.
    fn posting(&self) -> Posting {
        let has_turns = self.local.with_ready(|ready| !ready.is_empty()) || self.local.run.has_new();
        match has_turns {
            false => Posting::AtOnce,
            true if self.fetching < CROWD => Posting::Alone,
            true => Posting::Together,
        }
    }

    /// Lets those go on whose sockets are ready: at each turn while there is nothing else, for a look is a system call.
    fn look_at_sockets(&mut self, now: Nanos) {
        let Some(reactor) = self.local.shared.reactor() else { return };
        let has_turns = self.local.with_ready(|ready| !ready.is_empty());
        if !has_turns || now.saturating_sub(self.looked_at_sockets) >= WITHOUT_SOCKETS_MAX {
            self.looked_at_sockets = now;
            reactor.dispatch();
        }
    }

    fn turn(&mut self) -> Turn {
        // Counted before any runs: one that yields in this turn goes on in another.
        let (ready, yielded) = (self.local.with_ready(|ready| ready.len()), self.yielded.len());
        for _ in 0..ready {
            let token = self.local.with_ready(VecDeque::pop_front).expect("only the worker takes what is ready");
            self.resume_suspended(token);
        }
        let others = (ready / READY_A_NEW_ONE).max(1);
        let mut new = 0;
        while new < others
            && let Some(unithread) = self.local.run.take_new()
        {
            self.resume(unithread.start(|task| task.job.run()));
            new += 1;
        }
        let is_progress = ready > 0 || new > 0;
        let yielded = if is_progress { yielded.min(others) } else { yielded };
        for _ in 0..yielded {
            let token = self.yielded.pop_front().expect("only the worker takes what has yielded");
            self.resume_suspended(token);
        }
        match (is_progress, yielded) {
            (true, _) => Turn::Progress,
            (false, 0) => Turn::Idle,
            (false, _) => Turn::Yielded,
        }
    }

    fn resume_suspended(&mut self, token: u32) {
        let running = self.suspended[token as usize].take();
        self.resume(running.expect("a light thread is named once for one wait, and only while it is suspended"));
    }

    fn resume(&mut self, running: Running<Task>) {
        let token = running.id().0;
        if let Some(quantum) = self.quantum {
            GIVE_WAY_AT.set(yonder_clock::now().saturating_add(quantum));
        }
        match running.resume() {
            Resumed::Suspended(running) => {
                self.suspended[token as usize] = Some(running);
                match SUSPENSION.take() {
                    Suspension::Waits => self.fetching += 1,
                    Suspension::Parked => {}
                    Suspension::Yields | Suspension::Preempted => self.yielded.push_back(token),
                    Suspension::Sleeps(until) => self.local.set_timer(until, token, None),
                }
            }
            Resumed::Finished(unithread) => self.finish(unithread, token),
            Resumed::Panicked(_, why) => {
                panic!("a light thread's panic passed its end: {}", yonder_unithread::panic_message(&*why))
            }
        }
    }

    fn finish(&mut self, unithread: Unithread<Task>, token: u32) {
        let _ = self.port.take_faults(token);
        // The stack is home before the end is told, so that it can be had again.
        let task = unithread.into_payload();
        task.job.end();
        drop(task);
        self.local.run.release();
    }

    /// Nothing could be done: spins or sleeps, as configured. While pages are on their way the port is polled.
    fn rest(&self, idle_for: Nanos) {
        let next = self.local.next_timer();
        let Some(sleep) = sleep_span(self.idle, self.fetching > 0, idle_for, next) else { return };
        let Local { run, shared, .. } = &*self.local;
        let has_work = || shared.inbox.has_post() || run.has_new() || run.is_over();
        shared.sleeper.sleep(has_work, || shared.sleep(sleep));
    }
}
