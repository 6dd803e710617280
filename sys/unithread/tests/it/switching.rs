//! Unithreads as their users see them: interleaving, stacks, panics, threads, and what is refused at run time.

use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use yonder_unithread::{
    Pool, Resumed, Running, STACK_BYTES_DEFAULT, Unithread, current, is_on_unithread, panic_message, suspend,
};

fn start_one<P: Send + 'static>(payload: P, entry: fn(&mut P)) -> Running<P> {
    let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
    pool.take(payload).ok().unwrap().start(entry)
}

/// Resumes until the entry function returns, and counts the suspensions.
fn run_to_end<P: Send + 'static>(mut running: Running<P>) -> (Unithread<P>, usize) {
    let mut suspensions = 0;
    loop {
        match running.resume() {
            Resumed::Suspended(again) => running = again,
            Resumed::Finished(idle) => return (idle, suspensions),
            Resumed::Panicked(_, why) => panic!("{}", panic_message(&*why)),
        }
        suspensions += 1;
    }
}

fn suspended<P: Send + 'static>(running: Running<P>) -> Running<P> {
    match running.resume() {
        Resumed::Suspended(again) => again,
        other => panic!("{other:?} instead of a suspension"),
    }
}

#[test]
fn a_thousand_unithreads_take_turns() {
    const UNITHREADS: u64 = 1000;
    const TURNS: u64 = 50;
    fn entry(payload: &mut (u64, Vec<u64>)) {
        for turn in 0..TURNS {
            payload.1.push(payload.0 * TURNS + turn);
            suspend();
        }
    }
    let pool = Pool::new(UNITHREADS as usize, STACK_BYTES_DEFAULT).unwrap();
    let mut running: Vec<_> = (0..UNITHREADS).map(|n| pool.take((n, Vec::new())).unwrap().start(entry)).collect();
    for _ in 0..TURNS {
        running = running.into_iter().map(suspended).collect();
    }
    for (n, last) in running.into_iter().enumerate() {
        let (idle, more) = run_to_end(last);
        let expected: Vec<u64> = (0..TURNS).map(|turn| n as u64 * TURNS + turn).collect();
        assert_eq!((idle.into_payload().1, more), (expected, 0));
    }
}

/// More live values than there are registers, all changed around every suspension.
fn mix(seed: u64) -> [u64; 12] {
    let mut values: [u64; 12] = std::array::from_fn(|n| black_box(seed + n as u64));
    let mut floats: [f64; 6] = std::array::from_fn(|n| black_box(seed as f64 + n as f64 / 8.0));
    for round in 0..20 {
        for n in 0..values.len() {
            values[n] = values[n].rotate_left(7) ^ values[(n + 5) % values.len()].wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        for n in 0..floats.len() {
            floats[n] = floats[n] * 0.75 + floats[(n + 1) % floats.len()] + f64::from(round);
        }
        if is_on_unithread() {
            suspend();
        }
    }
    for (value, float) in values.iter_mut().zip(floats) {
        *value ^= float.to_bits();
    }
    values
}

#[test]
fn registers_survive_on_both_sides() {
    const UNITHREADS: u64 = 7;
    let pool = Pool::new(UNITHREADS as usize, STACK_BYTES_DEFAULT).unwrap();
    let entry: fn(&mut (u64, [u64; 12])) = |payload| payload.1 = mix(payload.0);
    let mut running: Vec<_> = (0..UNITHREADS).map(|n| pool.take((n, [0; 12])).unwrap().start(entry)).collect();
    let mut sums: [u64; 10] = std::array::from_fn(|n| black_box(n as u64));
    let mut expected_sums = sums;
    for turn in 0..20 {
        let mut next = Vec::new();
        for each in running {
            next.push(suspended(each));
            sums.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(31) + turn);
        }
        running = next;
    }
    for turn in 0..20 {
        for _ in 0..UNITHREADS {
            expected_sums.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(31) + turn);
        }
    }
    assert_eq!(sums, expected_sums);
    for (seed, each) in running.into_iter().enumerate() {
        assert_eq!(run_to_end(each).0.into_payload().1, mix(seed as u64));
    }
}

#[test]
fn a_stack_is_as_deep_as_promised() {
    /// Touches every page down to `bytes` below the caller, suspending at the bottom and on the way up.
    fn descend(top: usize, bytes: usize) -> u64 {
        let frame = black_box([7u8; 256]);
        let depth = top - std::ptr::from_ref(&frame).addr();
        let below = if depth + 1024 < bytes { descend(top, bytes) } else { 0 };
        suspend();
        below + u64::from(frame[depth % frame.len()])
    }
    const STACK_BYTES: usize = 256 << 10;
    let pool = Pool::new(2, STACK_BYTES).unwrap();
    let mut neighbour = pool.take(0u64).unwrap().start(|sum| {
        let marks = black_box([0x5au8; 1024]);
        suspend();
        *sum = marks.iter().map(|mark| u64::from(*mark)).sum();
    });
    neighbour = suspended(neighbour);
    let deep = pool.take(0u64).unwrap().start(|sum| {
        let top = std::ptr::from_ref(&sum).addr();
        // The slack is for the frames above this one and for the switch at the bottom.
        *sum = descend(top, STACK_BYTES - 4096);
    });
    let (idle, frames) = run_to_end(deep);
    assert_eq!(idle.into_payload(), 7 * frames as u64);
    assert!(frames > 100, "{frames} frames");
    assert_eq!(run_to_end(neighbour).0.into_payload(), 1024 * 0x5a);
}

#[test]
fn a_panic_ends_only_its_unithread() {
    struct Unwinding(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Unwinding {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("stack unwound");
        }
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let pool = Pool::new(2, STACK_BYTES_DEFAULT).unwrap();
    let other = suspended(pool.take(Arc::clone(&log)).ok().unwrap().start(|_| suspend()));
    let running = suspended(pool.take(Arc::clone(&log)).ok().unwrap().start(|log| {
        let _unwinding = Unwinding(Arc::clone(log));
        suspend();
        panic!("request {} failed", black_box(42));
    }));
    let Resumed::Panicked(idle, why) = running.resume() else { panic!("the panic was lost") };
    assert_eq!(panic_message(&*why), "request 42 failed");
    assert_eq!(*log.lock().unwrap(), ["stack unwound"]);
    assert!(!is_on_unithread() && !std::thread::panicking());
    assert_eq!(run_to_end(other).1, 0);

    // The slot of a panicked unithread runs again.
    let Resumed::Panicked(idle, why) = idle.start(|_| std::panic::panic_any(7u8)).resume() else { panic!("lost") };
    assert_eq!((panic_message(&*why), why.downcast_ref()), ("a panic", Some(&7u8)));
    let Resumed::Panicked(idle, why) = idle.start(|_| panic!("literal")).resume() else { panic!("lost") };
    assert_eq!(panic_message(&*why), "literal");
    drop(idle);
    assert_eq!(Arc::strong_count(&log), 1, "every payload was dropped");
}

#[test]
fn idle_unithreads_cross_threads() {
    let pool = Arc::new(Pool::new(2, STACK_BYTES_DEFAULT).unwrap());
    let idle = pool.take(1u64).unwrap();
    let id = idle.id();
    let idle = std::thread::spawn(move || {
        let running = suspended(idle.start(|n| {
            suspend();
            *n += 1;
        }));
        run_to_end(running).0
    });
    let mut idle = idle.join().unwrap();
    assert_eq!((*idle.payload_mut(), idle.id()), (2, id));
    let (idle, _) = run_to_end(idle.start(|n| *n *= 10));
    let other_pool = Arc::clone(&pool);
    std::thread::spawn(move || {
        let _second = other_pool.take(0).unwrap();
        assert!(other_pool.take(0).is_err());
        drop(idle);
        assert_eq!(other_pool.take(5).unwrap().id(), id);
    })
    .join()
    .unwrap();
}

#[test]
fn the_running_unithread_is_known_by_name() {
    assert_eq!((current(), is_on_unithread()), (None, false));
    let pool = Pool::new(3, STACK_BYTES_DEFAULT).unwrap();
    let _first = pool.take(None).unwrap();
    let running = pool.take(None).unwrap().start(|seen| {
        suspend();
        *seen = current();
    });
    let id = running.id();
    let running = suspended(running);
    assert_eq!((current(), is_on_unithread()), (None, false));
    assert_eq!(run_to_end(running).0.into_payload(), Some(id));
}

#[test]
fn a_unithread_cannot_resume_another() {
    thread_local! {
        static OTHER: RefCell<Option<Running<()>>> = const { RefCell::new(None) };
    }
    OTHER.set(Some(start_one((), |()| ())));
    let outer = start_one((), |()| drop(OTHER.take().unwrap().resume()));
    let Resumed::Panicked(_, why) = outer.resume() else { panic!("nesting was allowed") };
    assert_eq!(panic_message(&*why), "a unithread cannot resume another");
}

#[test]
fn suspending_outside_a_unithread_is_refused() {
    let why = catch_unwind(AssertUnwindSafe(suspend)).unwrap_err();
    assert_eq!(panic_message(&*why), "suspend() was called outside a unithread");
    let running = start_one(false, |refused| {
        *refused = std::thread::scope(|scope| scope.spawn(suspend).join().is_err());
    });
    assert!(run_to_end(running).0.into_payload(), "another thread suspended this one");
}

#[test]
fn an_abandoned_stack_stays_where_it_is() {
    let pool = Pool::new(2, STACK_BYTES_DEFAULT).unwrap();
    let marker = Arc::new(());
    let running = suspended(pool.take(Arc::clone(&marker)).unwrap().start(|_| suspend()));
    drop(running);
    let rest = pool.take(Arc::clone(&marker)).unwrap();
    assert!(pool.take(Arc::clone(&marker)).is_err(), "the abandoned slot is not given out again");
    drop((pool, rest));
    assert_eq!(Arc::strong_count(&marker), 2, "the abandoned payload is leaked, the other was dropped");
}
