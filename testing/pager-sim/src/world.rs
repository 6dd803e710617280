//! [`World`]: the clock, the random numbers, the threads and what they have in common, all of one seed.
//!
//! A simulation runs on one thread of the operating system. Its own threads are [`Fiber`]s, which run until a *step*
//! ([`step`]): each call of the pager's machine is one. At a step the world may let another thread go on; nothing else
//! does. Time passes by steps only.

use std::cell::RefCell;
use std::collections::HashSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_pager::FaultPolicy;
use yonder_simulation::Trace;
use yonder_units::Nanos;

use crate::far::Far;
use crate::oracle::Oracle;
use crate::sabotage::Sabotage;
use crate::settings::{Schedule, Settings};

/// Steps of a seed, at most: more are a violation, since something does not end.
const STEPS_MAX: u64 = 12_000_000;
/// Steps of others that a thread leaves them when it has found a lock taken.
const LOCK_STEPS: u64 = 12;
/// Time after which they look at a lock again if nobody else runs.
const LOCK_LOOK: Nanos = 5_000;
/// Steps of waits that leave others their time, at most: some are at work for nothing, as whoever is woken again and
/// again.
const HELD_OFF_MAX: u32 = 2_000;
/// Shortest and longest time that passes in one step of a wait.
const WAIT_MIN: Nanos = 50;
const WAIT_MAX: Nanos = 100_000;

/// What a step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Something is done that takes this long.
    Effect(Nanos),
    /// Others may run between two instructions.
    Point,
    /// The thread waits for another.
    Wait,
    /// The thread waits for a lock: whoever has it goes first.
    Lock,
}

/// What runs on a stack of its own: a thread, or a unithread of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fiber {
    pub(crate) thread: usize,
    /// Port, token and policy of a unithread.
    pub(crate) bound: Option<(u16, u32, FaultPolicy)>,
    pub(crate) no_yield: bool,
}

/// A thread.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Thread {
    pub(crate) name: &'static str,
    /// Its own fiber, and the one that runs when it is the thread's turn.
    pub(crate) main: usize,
    pub(crate) current: usize,
    /// The port that it is bound to.
    pub(crate) port: Option<u16>,
    pub(crate) asleep_until: Nanos,
    pub(crate) stalled_until: Nanos,
    pub(crate) is_unparked: bool,
    /// Address of the word that it sleeps on.
    pub(crate) sleeps_on: Option<usize>,
    pub(crate) is_over: bool,
    /// Until which step it leaves its turns to others, because it waits for a lock.
    pub(crate) blocked_until: u64,
    /// Whether it has waited since something was done.
    pub(crate) has_waited: bool,
    pub(crate) priority: i64,
}

impl Thread {
    fn is_awake(&self, now: Nanos) -> bool {
        self.asleep_until.max(self.stalled_until) <= now
    }
}

pub(crate) struct World {
    pub(crate) rng: SmallRng,
    pub(crate) now: Nanos,
    pub(crate) steps: u64,
    pub(crate) settings: Settings,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) trace: Trace,
    pub(crate) threads: Vec<Thread>,
    pub(crate) fibers: Vec<Fiber>,
    pub(crate) running: usize,
    pub(crate) far: Far,
    pub(crate) oracle: Oracle,
    /// What has gone wrong first.
    pub(crate) violation: Option<String>,
    /// Time for which threads were stalled, or all were stopped, in all.
    pub(crate) stalled: Nanos,
    /// Steps of waits since something was done.
    waits: u32,
    /// Those of them for which no more time passed, because others were at work.
    held_off: u32,
    lowest: i64,
    /// Whether faults are still injected.
    pub(crate) is_hostile: bool,
    /// From when on, after that, no access may fail for want of time.
    pub(crate) recovered_at: Nanos,
    /// Unithreads that are over and whose worker does not know yet.
    pub(crate) over: HashSet<usize>,
    /// Until when the kernel has no memory for installs.
    pub(crate) no_memory_until: Nanos,
    /// Regions that have begun: each has addresses that none had before.
    pub(crate) regions: usize,
    /// Workload threads that are not over.
    pub(crate) busy: usize,
    /// Ports that workers have now.
    pub(crate) ports: Vec<u16>,
    /// Forks so far.
    pub(crate) forks: u32,
    /// Which process the seed follows: the first, or by how many forks a descendant of it.
    pub(crate) process: u32,
    /// Whether what is left of threads unwinds.
    ends: bool,
}

/// Why a thread unwinds that will not run any more.
struct Abandoned;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Looks at or changes the world. Never across a step.
pub(crate) fn with<T>(look: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| look(world.as_mut().expect("a seed is simulated")))
}

/// Puts a world into its place, or takes it away.
pub(crate) fn set(world: Option<World>) {
    // What is dropped looks for a world.
    drop(WORLD.replace(world));
}

/// A step of the thread that runs. See the head of this file.
pub(crate) fn step(step: Step) {
    if !yonder_unithread::is_on_unithread() || std::thread::panicking() {
        return;
    }
    if with(|world| world.step(step)) {
        switch();
    }
}

/// Lets another thread run.
pub(crate) fn switch() {
    yonder_unithread::suspend();
    if with(|world| world.ends) {
        std::panic::resume_unwind(Box::new(Abandoned));
    }
}

/// A child must not do `what`.
pub(crate) fn assert_is_parent(what: &str) {
    if with(|world| world.process > 0) {
        violate(format!("a child {what}"));
    }
}

/// Says that something has gone wrong; the thread that runs ends.
pub(crate) fn violate(what: String) -> ! {
    with(|world| {
        let thread = world.fibers.get(world.running).map_or("?", |fiber| world.threads[fiber.thread].name);
        let what = format!("at {} ns, in {thread}: {what}", world.now);
        world.violation.get_or_insert(what);
    });
    if yonder_unithread::is_on_unithread() {
        switch();
    }
    panic!("a violation outside of a thread")
}

/// Tells an event, if somebody wants to read it.
pub(crate) fn say(what: impl FnOnce() -> String) {
    with(|world| world.say(what));
}

/// True with this probability, given in thousandths.
pub(crate) fn chance(thousandths: u32) -> bool {
    with(|world| world.chance(thousandths))
}

/// Any number below `end`.
pub(crate) fn below(end: u64) -> u64 {
    with(|world| world.rng.random_range(0..end))
}

/// Whether this is what is broken on purpose.
pub(crate) fn is_sabotaged(by: Sabotage) -> bool {
    with(|world| world.sabotage == Some(by))
}

/// The thread that runs loses its CPU for `time`.
pub(crate) fn stall(time: Nanos) {
    if !yonder_unithread::is_on_unithread() {
        return;
    }
    with(|world| {
        let thread = world.fibers[world.running].thread;
        world.threads[thread].stalled_until = world.now + time;
        world.stalled += time;
    });
    switch();
}

/// Sleeps until `until`, or until the thread is woken.
pub(crate) fn park(until: Nanos) {
    let sleeps = with(|world| {
        let thread = world.fibers[world.running].thread;
        let thread = &mut world.threads[thread];
        if std::mem::take(&mut thread.is_unparked) {
            return false;
        }
        thread.asleep_until = until;
        true
    });
    if sleeps {
        switch();
        with(|world| {
            let thread = world.fibers[world.running].thread;
            world.threads[thread].has_waited = false;
            world.threads[thread].is_unparked = false;
        });
    }
}

impl World {
    pub(crate) fn new(seed: u64, settings: Settings, sabotage: Option<Sabotage>, trace: Trace) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self {
            rng,
            now: 1_000,
            steps: 0,
            far: Far::new(&settings, sabotage),
            settings,
            sabotage,
            trace,
            threads: Vec::new(),
            fibers: Vec::new(),
            running: 0,
            oracle: Oracle::default(),
            violation: None,
            stalled: 0,
            waits: 0,
            held_off: 0,
            lowest: 0,
            is_hostile: true,
            recovered_at: 0,
            over: HashSet::new(),
            busy: 0,
            ports: Vec::new(),
            forks: 0,
            process: 0,
            ends: false,
            regions: 0,
            no_memory_until: 0,
        }
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        let name = self.fibers.get(self.running).map_or("world", |fiber| self.threads[fiber.thread].name);
        let bound = self.fibers.get(self.running).and_then(|fiber| fiber.bound);
        let unithread = || bound.map(|(_, token, _)| format!(".{token}")).unwrap_or_default();
        self.trace.say(self.now, || format!("{:<12} {}", format!("{name}{}", unithread()), what()));
    }

    pub(crate) fn chance(&mut self, thousandths: u32) -> bool {
        thousandths > 0 && self.rng.random_range(0..1000) < thousandths
    }

    /// A thread, whose own fiber is the next that is added.
    pub(crate) fn add_thread(&mut self, name: &'static str, port: Option<u16>) -> usize {
        let fiber = self.fibers.len();
        let priority = self.rng.random_range(0..1_000_000);
        self.threads.push(Thread { name, main: fiber, current: fiber, port, priority, ..Thread::default() });
        self.fibers.push(Fiber { thread: self.threads.len() - 1, bound: None, no_yield: false });
        self.threads.len() - 1
    }

    /// A unithread of a thread.
    pub(crate) fn add_unithread(&mut self, thread: usize, bound: (u16, u32, FaultPolicy)) -> usize {
        self.fibers.push(Fiber { thread, bound: Some(bound), no_yield: false });
        self.fibers.len() - 1
    }

    /// Time passes; whether another thread is to run.
    fn step(&mut self, step: Step) -> bool {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            self.violation.get_or_insert(format!("{STEPS_MAX} steps do not bring it to an end"));
            return true;
        }
        match step {
            Step::Effect(time) => {
                (self.waits, self.held_off) = (0, 0);
                self.threads.iter_mut().for_each(|thread| thread.has_waited = false);
                self.now += time;
            }
            Step::Point => self.now += 5,
            Step::Wait => self.wait(),
            Step::Lock => {
                self.now += WAIT_MIN;
                let thread = self.fibers[self.running].thread;
                let thread = &mut self.threads[thread];
                (thread.blocked_until, thread.has_waited) = (self.steps + LOCK_STEPS, true);
            }
        }
        self.far.execute_until(self.now, &mut self.rng);
        if let Some(what) = self.far.violation.take() {
            self.violation.get_or_insert(what);
            return true;
        }
        let thread = self.fibers[self.running].thread;
        if self.is_hostile && self.rng.random_range(0..1_000_000) < self.settings.stall_millionths {
            let time = self.rng.random_range(1_000..self.settings.stall_max);
            self.threads[thread].stalled_until = self.now + time;
            self.stalled += time;
            return true;
        }
        match (self.settings.schedule, step) {
            (Schedule::Uniform(_), Step::Wait | Step::Lock) => true,
            (Schedule::Uniform(switch), _) => self.chance(switch),
            (Schedule::Priorities, Step::Wait | Step::Lock) => {
                self.lowest -= 1;
                self.threads[thread].priority = self.lowest;
                true
            }
            (Schedule::Priorities, _) => {
                if !self.chance(20) {
                    return false;
                }
                self.threads[thread].priority = self.rng.random_range(0..1_000_000);
                true
            }
        }
    }

    /// The thread that runs has waited for a lock, and has it: no time passes because of the others that wait for it
    /// now.
    pub(crate) fn note_lock_taken(&mut self) {
        if let Some(fiber) = self.fibers.get(self.running) {
            self.threads[fiber.thread].has_waited = false;
        }
    }

    /// The longer nothing is done, the more time passes in a step, up to the next event. A thread that has not waited
    /// since is doing something.
    fn wait(&mut self) {
        let thread = self.fibers[self.running].thread;
        self.threads[thread].has_waited = true;
        let is_at_work = |thread: &Thread| !thread.is_over && !thread.has_waited && thread.is_awake(self.now);
        if self.held_off < HELD_OFF_MAX && self.threads.iter().any(is_at_work) {
            self.held_off += 1;
            self.now += WAIT_MIN;
            return;
        }
        self.waits += 1;
        let rounds = self.waits / (2 * self.threads.len() as u32 + 2);
        let time = (WAIT_MIN << rounds.min(11)).min(WAIT_MAX);
        let next = self.next_event().map_or(Nanos::MAX, |at| at.saturating_sub(self.now).max(WAIT_MIN));
        self.now += time.min(next);
    }

    fn next_event(&self) -> Option<Nanos> {
        let wakes = self.threads.iter().filter(|thread| !thread.is_over);
        let wakes = wakes.map(|thread| thread.asleep_until.max(thread.stalled_until)).filter(|at| *at > self.now);
        wakes.chain(self.far.next_event(self.now)).min()
    }

    /// The fiber that runs next; `None` if all threads are over.
    pub(crate) fn pick(&mut self) -> Option<usize> {
        loop {
            let is_ready =
                |thread: &Thread| !thread.is_over && thread.is_awake(self.now) && thread.blocked_until <= self.steps;
            let ready = self.threads.iter().enumerate().filter(|(_, thread)| is_ready(thread));
            let picked = match self.settings.schedule {
                Schedule::Priorities => ready.max_by_key(|(_, thread)| thread.priority).map(|(at, _)| at),
                Schedule::Uniform(_) => {
                    let count = ready.clone().count();
                    let nth = if count > 0 { self.rng.random_range(0..count) } else { 0 };
                    ready.map(|(at, _)| at).nth(nth)
                }
            };
            if let Some(thread) = picked {
                self.threads[thread].asleep_until = 0;
                self.running = self.threads[thread].current;
                return Some(self.running);
            }
            if self.threads.iter().all(|thread| thread.is_over) {
                return None;
            }
            // Whoever has the lock sleeps: the others look again, now or when that is over.
            self.threads.iter_mut().for_each(|thread| thread.blocked_until = 0);
            let is_blocked = self.threads.iter().any(|thread| !thread.is_over && thread.is_awake(self.now));
            let at = self.next_event().filter(|at| *at < Nanos::MAX).unwrap_or(Nanos::MAX);
            let look_at = if is_blocked { self.now + LOCK_LOOK } else { Nanos::MAX };
            if at.min(look_at) == Nanos::MAX {
                self.violation.get_or_insert("every thread sleeps for good".into());
                return None;
            }
            self.now = self.now.max(at.min(look_at));
            self.far.execute_until(self.now, &mut self.rng);
        }
    }

    /// The process has forked, and the seed follows the child: of its threads only the one that runs is there.
    pub(crate) fn become_child(&mut self) {
        self.process += 1;
        let forks = self.fibers[self.running].thread;
        let gone = self.threads.iter_mut().enumerate().filter(|(at, _)| *at != forks);
        gone.for_each(|(_, thread)| thread.is_over = true);
        if self.settings.is_inherited {
            self.far.is_copied();
        }
    }

    /// From now on a thread that runs unwinds.
    pub(crate) fn end(&mut self) {
        self.ends = true;
    }

    /// Whether what is left of threads unwinds.
    pub(crate) fn is_ending(&self) -> bool {
        self.ends
    }

    /// The fiber that ran has ended.
    pub(crate) fn ended(&mut self) {
        let fiber = self.fibers[self.running];
        let thread = &mut self.threads[fiber.thread];
        if fiber.bound.is_some() {
            thread.current = thread.main;
            self.over.insert(self.running);
        } else {
            thread.is_over = true;
        }
    }
}
