//! Programs of light threads: spawned, joined, parked on pages, locks, channels and times, on one worker and on two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use yonder_paging::{Access, Config as FarConfig, FarMemory, no_yield};
use yonder_sched::threads::sync::{Condvar, Mutex, RecvError, Semaphore, WaitTimeout, channel};
use yonder_sched::threads::{self, Config, JoinHandle, SpawnError, run, spawn, try_spawn, yield_now};
use yonder_sched::{Handler, Idle, Outcome, SchedConfig, checkpoint, serve_all, sync};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const PAGES: u64 = 4 * LOCAL / PAGE;

fn far() -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Some(FarMemory::open("emu://?latency=5us&size=128MiB", FarConfig::with_local(LOCAL)).unwrap())
}

/// One worker and two, that sleep at once and that spin for a while.
fn configs() -> impl Iterator<Item = Config> {
    [1, 2].into_iter().flat_map(|workers| {
        [Duration::ZERO, Duration::from_micros(100)]
            .map(|spin| Config { idle: Idle::SleepAfter(spin), ..Config::with_workers(workers) })
    })
}

/// Runs `main` under each of [`configs`].
fn run_all<T: Send + 'static>(main: impl Fn() -> T + Send + Clone + 'static) -> Vec<T> {
    let Some(far) = far() else { return Vec::new() };
    configs().map(|config| run(&config, &far, main.clone()).unwrap()).collect()
}

fn join_all<T>(handles: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    // All are spawned before one is joined.
    let handles: Vec<_> = handles.into_iter().collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).collect()
}

/// 64 light threads walk far memory four times as large as the local one. Each holds a mutex while it adds to the pages
/// that the mutex guards, and sends what it has read through a channel.
#[test]
fn light_threads_share_far_memory() {
    const WALKERS: u64 = 64;
    const LOCKS: u64 = 16;
    for access in [Access::Probe, Access::Trap] {
        for workers in [1, 2] {
            let Some(far) = far() else { return };
            let region = Arc::new(far.region(PAGES * PAGE).unwrap().with_access(access));
            let walked = Arc::clone(&region);
            let sum = run(&Config::with_workers(workers), &far, move || {
                let locks: Arc<Vec<_>> = Arc::new((0..LOCKS).map(|_| Mutex::new(0u64)).collect());
                let (sender, receiver) = channel(8);
                let walkers: Vec<_> = (0..WALKERS)
                    .map(|walker| {
                        let (region, locks, sender) = (Arc::clone(&walked), Arc::clone(&locks), sender.clone());
                        spawn(move || {
                            // Each begins elsewhere, and all come by all pages of every 16th lock's.
                            for step in 0..PAGES / LOCKS {
                                let page = (step * LOCKS + walker * 61) % PAGES;
                                let mut passed = locks[(page % LOCKS) as usize].lock();
                                let value = region.read_u64(page * PAGE).unwrap() + page + 1;
                                region.write_u64(page * PAGE, value).unwrap();
                                *passed += 1;
                                drop(passed);
                                sender.send(page + 1).unwrap();
                            }
                        })
                    })
                    .collect();
                drop(sender);
                let adders: Vec<_> = (0..2)
                    .map(|_| {
                        let receiver = receiver.clone();
                        spawn(move || std::iter::from_fn(|| receiver.recv().ok()).sum::<u64>())
                    })
                    .collect();
                join_all(walkers);
                let passed: u64 = locks.iter().map(|lock| *lock.lock()).sum();
                assert_eq!(passed, WALKERS * (PAGES / LOCKS));
                join_all(adders).iter().sum::<u64>()
            })
            .unwrap();
            // Walkers of one residue pass all its pages.
            let mut wanted = 0;
            for page in 0..PAGES {
                let walkers = (0..WALKERS).filter(|walker| walker * 61 % LOCKS == page % LOCKS).count() as u64;
                assert_eq!(region.read_u64(page * PAGE), Ok(walkers * (page + 1)), "page {page}");
                wanted += walkers * (page + 1);
            }
            assert_eq!(sum, wanted);
            assert!(far.stats().major_faults > 0, "nothing was far");
            assert!(far.stats().peak_pages <= LOCAL / PAGE);
        }
    }
}

#[test]
fn the_first_thread_returns_when_all_have_ended() {
    let Some(far) = far() else { return };
    for config in configs() {
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ended);
        let value = run(&config, &far, move || {
            for number in 0..100u64 {
                let ended = Arc::clone(&counted);
                drop(spawn(move || {
                    threads::sleep(Duration::from_micros(number * 10)); // tidy: sleep: what is tested
                    ended.fetch_add(1, Ordering::Relaxed);
                }));
            }
            7
        });
        assert_eq!((value.unwrap(), ended.load(Ordering::Relaxed)), (7, 100));
    }
}

#[test]
fn a_join_tells_what_a_thread_panicked_with() {
    run_all(|| {
        let panics = spawn(|| -> u32 { panic!("on purpose: {}", 7) });
        let why = panics.join().unwrap_err();
        assert_eq!(yonder_unithread::panic_message(&*why), "on purpose: 7");
        let panics = spawn(|| -> u32 { std::panic::resume_unwind(Box::new(8u8)) });
        yield_now();
        assert_eq!(panics.join().unwrap_err().downcast_ref(), Some(&8u8));
        assert_eq!(spawn(|| 9).join().unwrap(), 9);
    });
}

#[test]
fn a_panic_of_the_first_thread_comes_to_the_caller_when_all_have_ended() {
    let Some(far) = far() else { return };
    let has_ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&has_ended);
    let main = move || -> () {
        drop(spawn(move || {
            threads::sleep(Duration::from_millis(2)); // tidy: sleep: it outlives the first thread
            ends.store(true, Ordering::Relaxed);
        }));
        panic!("on purpose");
    };
    let run = std::panic::AssertUnwindSafe(|| run(&Config::with_workers(2), &far, main));
    let why = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(why.downcast_ref(), Some(&"on purpose"));
    assert!(has_ended.load(Ordering::Relaxed));
}

#[test]
fn a_thread_that_was_joined_has_left_its_place() {
    let Some(far) = far() else { return };
    for workers in [1, 2] {
        let config = Config { light_threads: 2, ..Config::with_workers(workers) };
        run(&config, &far, || {
            for number in 0..5_000 {
                // One that another worker has begun may end at once, and leave its place.
                let may_end = Arc::new(AtomicBool::new(number % 100 > 0));
                let is_over = Arc::clone(&may_end);
                let other = try_spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        yield_now();
                    }
                    number
                });
                let other = other.unwrap();
                if number % 100 == 0 {
                    assert_eq!(try_spawn(|| ()).unwrap_err(), SpawnError::AllInUse(2));
                    may_end.store(true, Ordering::Relaxed);
                }
                assert_eq!(other.join().unwrap(), number);
            }
        })
        .unwrap();
    }
}

#[test]
fn only_light_threads_spawn() {
    assert_eq!(try_spawn(|| ()).unwrap_err(), SpawnError::NotALightThread);
    let why = std::panic::catch_unwind(|| spawn(|| ())).unwrap_err();
    assert!(why.downcast_ref::<String>().unwrap().contains("threads::run"));
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_runs() {
    let Some(far) = far() else { return };
    let refused = |config: Config| run(&config, &far, || panic!("it runs")).unwrap_err().to_string();
    assert!(refused(Config::with_workers(0)).contains("between 1 and"));
    assert!(refused(Config { stack_bytes: 1, ..Config::default() }).contains("bytes of unithread stack"));
}

/// More than may wait anywhere at once, on a lock that is handed from one to the next.
#[test]
fn a_lock_excludes_and_serves_all() {
    let counts = run_all(|| {
        let count = Arc::new(Mutex::new(0u64));
        join_all((0..64).map(|_| {
            let count = Arc::clone(&count);
            spawn(move || {
                for _ in 0..200 {
                    let mut count = count.lock();
                    let before = *count;
                    yield_now();
                    *count = before + 1;
                }
            })
        }));
        *count.lock()
    });
    assert!(counts.iter().all(|count| *count == 64 * 200), "{counts:?}");
}

/// On one worker the order is that of the program: those who lock first hold first.
#[test]
fn waiters_of_a_lock_are_served_in_the_order_in_which_they_came() {
    let Some(far) = far() else { return };
    let order = run(&Config::default(), &far, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let guard = order.lock();
        let waiters: Vec<_> = (0..10)
            .map(|number| {
                let order = Arc::clone(&order);
                spawn(move || order.lock().push(number))
            })
            .collect();
        // Each turn starts one of them.
        (0..10).for_each(|_| yield_now());
        drop(guard);
        join_all(waiters);
        let order = order.lock();
        order.clone()
    })
    .unwrap();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_thread_that_yields_goes_on_after_those_that_were_there() {
    let Some(far) = far() else { return };
    let order = run(&Config::default(), &far, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = channel::<()>(1);
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move || order.lock().push(name)
        };
        let (woken, new) = (note("woken"), note("new"));
        let waits = spawn(move || {
            receiver.recv().unwrap();
            woken();
        });
        // It starts, and waits.
        yield_now();
        let starts = spawn(new);
        sender.send(()).unwrap();
        yield_now();
        note("yielded")();
        join_all([waits, starts]);
        let order = order.lock();
        order.clone()
    })
    .unwrap();
    assert_eq!(order, ["woken", "new", "yielded"]);
}

#[test]
fn a_wait_ends_by_its_notification_or_by_its_time() {
    run_all(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let (mutex, condvar) = &*shared;
        let (guard, ended) = condvar.wait_timeout(mutex.lock(), Duration::from_millis(1));
        assert_eq!(ended, WaitTimeout::TimedOut);
        drop(guard);
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let (mutex, condvar) = &*shared;
                    let mut value = mutex.lock();
                    while *value == 0 {
                        let (guard, ended) = condvar.wait_timeout(value, Duration::from_secs(60));
                        assert_eq!(ended, WaitTimeout::Notified);
                        value = guard;
                    }
                    *value += 1;
                })
            })
            .collect();
        *mutex.lock() = 1;
        condvar.notify_all();
        join_all(waiters);
        assert_eq!(*mutex.lock(), 11);
    });
}

/// Waits whose times come while they are notified: each notification is taken by somebody, and no light thread is woken
/// by what was meant for another with the same token.
#[test]
fn notifications_and_times_race_and_none_is_lost() {
    const ROUNDS: u64 = 3_000;
    run_all(|| {
        let shared = Arc::new((Mutex::new((0u64, false)), Condvar::new()));
        let takers: Vec<_> = (0..4u64)
            .map(|taker| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let (mutex, condvar) = &*shared;
                    let mut state = mutex.lock();
                    let mut taken = 0u64;
                    loop {
                        while state.0 > 0 {
                            state.0 -= 1;
                            taken += 1;
                        }
                        if state.1 {
                            return taken;
                        }
                        let span = Duration::from_micros(1 + (taken * 7 + taker * 13) % 40);
                        state = condvar.wait_timeout(state, span).0;
                        // A light thread that ends soon, so that tokens are used again.
                        if taken % 16 == taker {
                            drop(try_spawn(yield_now));
                        }
                    }
                })
            })
            .collect();
        let (mutex, condvar) = &*shared;
        for round in 0..ROUNDS {
            mutex.lock().0 += 1;
            condvar.notify_one();
            if round % 3 == 0 {
                yield_now();
            }
        }
        mutex.lock().1 = true;
        condvar.notify_all();
        let taken: u64 = join_all(takers).iter().sum();
        assert_eq!(taken, ROUNDS);
    });
}

#[test]
fn a_semaphore_admits_no_more_than_its_count() {
    const PERMITS: usize = 3;
    let most = run_all(|| {
        let semaphore = Arc::new((Semaphore::new(PERMITS), AtomicUsize::new(0), AtomicUsize::new(0)));
        join_all((0..40).map(|number| {
            let semaphore = Arc::clone(&semaphore);
            spawn(move || {
                let (semaphore, inside, most) = &*semaphore;
                for _ in 0..50 {
                    let _permit = semaphore.acquire();
                    most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if number % 2 == 0 {
                        yield_now();
                    }
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            })
        }));
        assert_eq!(semaphore.0.free(), PERMITS);
        semaphore.2.load(Ordering::Relaxed)
    });
    assert!(most.iter().all(|most| (2..=PERMITS).contains(most)), "{most:?}");
}

/// Light threads and an ordinary thread on the two sides of channels, a lock and a condition.
#[test]
fn ordinary_threads_take_part() {
    let Some(far) = far() else { return };
    for config in configs() {
        let ((sender, questions), (answers, receiver)) = (channel::<u64>(2), channel::<u64>(2));
        let sum = Arc::new((Mutex::new(0u64), Condvar::new()));
        let asked = Arc::clone(&sum);
        let asker = std::thread::spawn(move || {
            let mut sum = 0;
            for number in 0..2_000 {
                sender.send(number).unwrap();
                sum += receiver.recv().unwrap();
            }
            let mut shared = asked.0.lock();
            *shared += sum;
            asked.1.notify_one();
        });
        run(&config, &far, move || {
            let doubler = spawn(move || {
                while let Ok(number) = questions.recv() {
                    answers.send(2 * number).unwrap();
                }
                assert_eq!(questions.recv(), Err(RecvError));
            });
            let mut shared = sum.0.lock();
            while *shared == 0 {
                shared = sum.1.wait(shared);
            }
            assert_eq!(*shared, 1_999 * 2_000);
            drop(shared);
            doubler.join().unwrap();
        })
        .unwrap();
        asker.join().unwrap();
    }
}

#[test]
fn what_unithreads_have_works_on_light_threads() {
    let Some(far) = far() else { return };
    let config = Config { preempt: Some(Duration::ZERO), ..Config::default() };
    run(&config, &far, || {
        let (lock, given_way) = (Arc::new(sync::Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
        let guard = lock.lock();
        let (locks, gives) = (Arc::clone(&lock), Arc::clone(&given_way));
        let other = spawn(move || {
            gives.fetch_add(1, Ordering::Relaxed);
            *locks.lock() += 1;
        });
        while given_way.load(Ordering::Relaxed) == 0 {
            checkpoint();
        }
        drop(guard);
        let until = yonder_clock::now() + 1_000_000;
        yonder_sched::sleep_until(until);
        assert!(yonder_clock::now() >= until);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 1);
        no_yield(|| threads::sleep(Duration::from_micros(10))); // tidy: sleep: what is tested
    })
    .unwrap();
}

/// Requests of a server use a lock of light threads: they yield until it is theirs.
#[test]
fn requests_of_a_server_may_use_these_locks() {
    struct Adds(Mutex<u64>);

    impl Handler for Adds {
        type Request = u64;
        type Reply = ();

        fn handle(&self, number: u64) {
            let mut sum = self.0.lock();
            yield_now();
            *sum += number;
        }
    }

    let Some(far) = far() else { return };
    let adds = Arc::new(Adds(Mutex::new(0)));
    let outcomes = serve_all(&SchedConfig::with_workers(2), &far, &adds, 0..100).unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Reply(())));
    assert_eq!(*adds.0.lock(), 99 * 50);
}

/// The light thread computes until another thread has read the page that it keeps its worker from seeing.
#[test]
fn a_worker_that_computes_keeps_no_page_from_others() {
    if far().is_none() {
        return;
    }
    let slow = "emu://?latency=1ms&size=128MiB";
    let far = FarMemory::open(slow, FarConfig::with_local(LOCAL)).unwrap();
    let region = Arc::new(far.region(PAGES * PAGE).unwrap());
    (0..PAGES).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    let is_read = run(&Config::default(), &far, move || {
        let fetched = Arc::clone(&region);
        let fetches = spawn(move || fetched.read_u64(0));
        yield_now();
        let reads = std::thread::spawn(move || region.read_u64(0));
        while !reads.is_finished() {
            std::hint::spin_loop();
        }
        (reads.join().unwrap(), fetches.join().unwrap())
    });
    assert_eq!(is_read.unwrap(), (Ok(1), Ok(1)));
    assert!(far.stats().major_faults > 0, "nothing was far");
}
