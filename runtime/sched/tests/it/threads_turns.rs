//! Which light threads a worker gives a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use yonder_paging::{Config as FarConfig, FarMemory};
use yonder_sched::threads::sync::Semaphore;
use yonder_sched::threads::{Config, JoinHandle, run, spawn};

fn far() -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Some(FarMemory::open("emu://?latency=5us&size=16MiB", FarConfig::with_local(4 << 20)).unwrap())
}

fn join_all<T>(handles: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    // All are spawned before one is joined.
    let handles: Vec<_> = handles.into_iter().collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).collect()
}

/// Threads that are ready at each turn of their worker, in pairs of which one wakes the other, until `is_over`; the
/// first pair counts the turns. Returns their handles when all have begun.
fn always_ready(pairs: usize, turns: &Arc<AtomicUsize>, is_over: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let begun = Arc::new(Semaphore::new(0));
    let mut handles = Vec::new();
    for pair in 0..pairs {
        let ends: [_; 2] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
        for side in 0..2 {
            let (mine, other) = (Arc::clone(&ends[side]), Arc::clone(&ends[1 - side]));
            let (begun, turns, is_over) = (Arc::clone(&begun), Arc::clone(turns), Arc::clone(is_over));
            handles.push(spawn(move || {
                begun.add_permits(1);
                // One side begins.
                if side == 1 {
                    mine.acquire().forget();
                }
                while !is_over.load(Ordering::Relaxed) {
                    turns.fetch_add(usize::from(pair == 0), Ordering::Relaxed);
                    other.add_permits(1);
                    mine.acquire().forget();
                }
                other.add_permits(1);
            }));
        }
    }
    (0..2 * pairs).for_each(|_| begun.acquire().forget());
    handles
}

/// Of new ones a turn starts an eighth as many as were ready.
#[test]
fn where_many_are_ready_as_many_the_more_are_started() {
    const PAIRS: usize = 64;
    let Some(far) = far() else { return };
    let turns = run(&Config::default(), &far, || {
        let (turns, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let ready = always_ready(PAIRS, &turns, &is_over);
        let before = turns.load(Ordering::Relaxed);
        let started = join_all((0..64).map(|_| {
            let turns = Arc::clone(&turns);
            spawn(move || turns.load(Ordering::Relaxed))
        }));
        is_over.store(true, Ordering::Relaxed);
        join_all(ready);
        started.into_iter().max().unwrap() - before
    })
    .unwrap();
    assert!(turns < 16, "64 were started in {turns} turns");
}
