//! Where a preempted request stands among those that wait: behind all that were there, before all that came later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use yonder_paging::{Config, FarMemory, FaultPolicy};
use yonder_sched::{
    Activity, DispatchPolicy, Done, Frontend, Handler, Idle, Order, Outcome, SchedConfig, SchedStats, checkpoint, serve,
};
use yonder_units::Nanos;

const QUANTUM: Duration = Duration::from_micros(5);

/// How far the worker and the dispatcher have come. Requests wait for steps by spinning, so that none gives way
/// meanwhile.
#[derive(Default)]
struct Steps(AtomicU64);

impl Steps {
    fn reach(&self, step: u64) {
        self.0.fetch_max(step, Ordering::Release);
    }

    fn is_at(&self, step: u64) -> bool {
        self.0.load(Ordering::Acquire) >= step
    }

    fn wait_for(&self, step: u64) {
        let give_up = Instant::now() + Duration::from_secs(30);
        while !self.is_at(step) {
            assert!(Instant::now() < give_up, "step {step} was never reached");
            std::thread::yield_now();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    /// Is preempted once, when `Earlier` waits and before `Later` has come.
    Long,
    Earlier,
    Later,
    /// Gives way at each of so many checkpoints.
    Scan(u32),
    Short,
}

struct Handles(Arc<Steps>);

impl Handler for Handles {
    type Request = Request;
    type Reply = Request;

    fn handle(&self, request: Request) -> Request {
        match request {
            Request::Long => {
                self.0.reach(1);
                self.0.wait_for(2);
                spin_for_a_quantum();
                checkpoint();
            }
            Request::Earlier => {
                self.0.reach(3);
                self.0.wait_for(4);
            }
            Request::Scan(checkpoints) => (0..checkpoints).for_each(|_| {
                spin_for_a_quantum();
                checkpoint();
            }),
            Request::Later | Request::Short => {}
        }
        request
    }
}

fn spin_for_a_quantum() {
    let start = Instant::now();
    while start.elapsed() <= QUANTUM {
        std::hint::spin_loop();
    }
}

/// Hands out requests as `next` says; it is given how many are over.
struct Source<N> {
    next: N,
    under_way: usize,
    over: Vec<Request>,
    is_finished: bool,
}

/// What a source does next.
enum Next {
    Admit(Request),
    Wait,
    Finish,
}

impl<N: FnMut(&[Request], usize) -> Next> Frontend for Source<N> {
    type Request = Request;
    type Reply = Request;

    fn poll(&mut self, _: Nanos, room: usize, admit: &mut dyn FnMut(Request)) -> Activity {
        match (self.next)(&self.over, self.under_way) {
            Next::Admit(request) if room > 0 => {
                self.under_way += 1;
                admit(request);
                return Activity::Busy;
            }
            Next::Finish => self.is_finished = true,
            Next::Admit(_) | Next::Wait => {}
        }
        Activity::Idle
    }

    fn complete(&mut self, _: Nanos, done: Done<Request>) {
        self.under_way -= 1;
        let Outcome::Reply(request) = done.outcome else { panic!("no request panics") };
        self.over.push(request);
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let dispatcher = std::thread::current();
        Arc::new(move || dispatcher.unpark())
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

/// Serves what `next` hands out, and returns the requests in the order in which they ended.
fn served(
    config: &SchedConfig,
    steps: &Arc<Steps>,
    next: impl FnMut(&[Request], usize) -> Next,
) -> Option<Vec<Request>> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://", Config::with_local(4 << 20)).unwrap();
    let mut source = Source { next, under_way: 0, over: Vec::new(), is_finished: false };
    serve(config, &far, &Arc::new(Handles(Arc::clone(steps))), &mut source, &SchedStats::default()).unwrap();
    Some(source.over)
}

fn configs() -> impl Iterator<Item = SchedConfig> {
    let policies = [
        (FaultPolicy::Busy, DispatchPolicy::PageFaultAware, Order::Classes),
        (FaultPolicy::Yield, DispatchPolicy::PageFaultAware, Order::Fifo),
        (FaultPolicy::Yield, DispatchPolicy::Predicted, Order::Classes),
    ];
    policies.into_iter().map(|(faults, dispatch, order)| SchedConfig {
        faults,
        dispatch,
        order,
        preempt: Some(QUANTUM),
        ..SchedConfig::default()
    })
}

#[test]
fn a_preempted_request_goes_behind_those_that_wait_and_before_those_that_come_later() {
    for config in configs() {
        let steps = Arc::<Steps>::default();
        let mut script = VecDeque::from([Request::Long, Request::Earlier, Request::Later]);
        let mut polls_since_seen = 0;
        let order = served(&config, &steps.clone(), |over, _| {
            match script.front() {
                Some(Request::Later) if !steps.is_at(3) => {
                    // This poll comes after the one that has admitted the earlier request, so the worker has it.
                    steps.reach(2);
                    Next::Wait
                }
                // The time of this poll may be from before the long one was preempted; that of the next one is not.
                Some(Request::Later) if polls_since_seen == 0 => {
                    polls_since_seen += 1;
                    Next::Wait
                }
                Some(Request::Earlier) if !steps.is_at(1) => Next::Wait,
                Some(_) => Next::Admit(script.pop_front().expect("there is one")),
                None => {
                    steps.reach(4);
                    if over.len() == 3 { Next::Finish } else { Next::Wait }
                }
            }
        });
        let Some(order) = order else { return };
        assert_eq!(order, [Request::Earlier, Request::Long, Request::Later], "{config:?}");
    }
}

/// New requests never end until the preempted one does.
#[test]
fn new_requests_do_not_starve_a_preempted_one() {
    const SCAN: Request = Request::Scan(100);
    const SHORTS_MAX: usize = 1_000_000;
    for config in configs() {
        let mut is_begun = false;
        let order = served(&config, &Arc::default(), |over, under_way| {
            let has_ended = over.contains(&SCAN) || over.len() > SHORTS_MAX;
            if !std::mem::replace(&mut is_begun, true) {
                Next::Admit(SCAN)
            } else if has_ended {
                Next::Finish
            } else if under_way < 64 {
                Next::Admit(Request::Short)
            } else {
                Next::Wait
            }
        });
        let Some(order) = order else { return };
        assert!(order.contains(&SCAN), "{} others ended before it: {config:?}", order.len());
    }
}

/// A request that is preempted is no reason for its worker to sleep, as one that waits for others is.
#[test]
fn a_worker_with_nothing_but_a_preempted_request_does_not_sleep() {
    let config = SchedConfig {
        faults: FaultPolicy::Busy,
        preempt: Some(QUANTUM),
        idle: Idle::SleepAfter(Duration::ZERO),
        ..SchedConfig::default()
    };
    // 0.4 s of work; with a sleep of 200 us at each checkpoint after the first 2 ms it would take 16 s.
    let mut is_begun = false;
    let start = Instant::now();
    let order = served(&config, &Arc::default(), |over, _| match over {
        [_] => Next::Finish,
        _ if std::mem::replace(&mut is_begun, true) => Next::Wait,
        _ => Next::Admit(Request::Scan(80_000)),
    });
    if order.is_some() {
        assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    }
}
