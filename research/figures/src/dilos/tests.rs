//! What holds of the model, whatever it costs.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::world::{Part, simulate};
use super::*;

const SYSTEMS: [System; 7] = [
    System::FASTSWAP,
    System::FASTSWAP_NONE,
    System::NONE,
    System::READAHEAD,
    System::TREND,
    System::FOLLOWED,
    System::FOLLOWED_TREND,
];
const PAGES: u32 = 16_384;
const LIMIT: u32 = 2048;

fn sequence(system: &System, op: Op) -> Counts {
    simulate(system, op, (PAGES, LIMIT), &(0..PAGES).collect::<Vec<_>>())
}

/// Every nanosecond is a touch's or a fault's.
fn assert_time_is_accounted_for(counts: &Counts, op: Op, touches: usize, name: &str) {
    let touch = dilos::TOUCH.ns() + if op == Op::Write { dilos::STORE.ns() } else { 0 };
    assert_eq!(counts.parts.iter().sum::<u64>() + touches as u64 * touch, counts.elapsed, "{name}: {counts:?}");
}

#[test]
fn in_a_sequence_every_page_is_installed_once() {
    for system in SYSTEMS {
        for op in [Op::Read, Op::Write] {
            let counts = sequence(&system, op);
            assert_eq!(counts.installed, u64::from(PAGES), "{}", system.name);
            assert!(counts.major + counts.minor <= u64::from(PAGES), "{}: {counts:?}", system.name);
            assert_time_is_accounted_for(&counts, op, PAGES as usize, system.name);
        }
    }
}

#[test]
fn every_page_is_a_fault_where_none_is_mapped_ahead() {
    for system in [System::NONE, System::FASTSWAP_NONE, System::FASTSWAP] {
        let counts = sequence(&system, Op::Read);
        assert_eq!(counts.major + counts.minor, u64::from(PAGES), "{}", system.name);
        assert_eq!(counts.minor > 0, system.name == System::FASTSWAP.name);
    }
    let mapped_ahead = sequence(&System::READAHEAD, Op::Read);
    assert!(mapped_ahead.major + mapped_ahead.minor < u64::from(PAGES));
}

#[test]
fn a_window_is_the_papers_after_a_miss_and_yonders_follows_the_hits() {
    let eighth = u64::from(PAGES) / 8;
    for system in [System::FASTSWAP, System::READAHEAD, System::TREND] {
        let major = sequence(&system, Op::Read).major;
        assert!((eighth..eighth + 16).contains(&major), "{}: {major}", system.name);
    }
    // Long windows want room that little memory does not have.
    let order: Vec<u32> = (0..4 * PAGES).collect();
    for system in [System::FOLLOWED, System::FOLLOWED_TREND] {
        let major = simulate(&system, Op::Read, (4 * PAGES, 4 * LIMIT), &order).major;
        assert!(major < eighth / 16, "{}: {major}", system.name);
    }
}

#[test]
fn dilos_hides_reclaim_and_fastswap_does_not() {
    for system in [System::NONE, System::READAHEAD] {
        for op in [Op::Read, Op::Write] {
            let counts = sequence(&system, op);
            let waited = counts.part(Part::Reclaim) as f64 / counts.elapsed as f64;
            assert!(waited < 0.01, "{}: {waited} of the time", system.name);
        }
    }
    let counts = sequence(&System::FASTSWAP, Op::Read);
    assert!(counts.part(Part::Reclaim) * 4 > counts.elapsed && counts.reclaiming > 0);
}

/// Pages at random, with short sequences between them: windows that nobody touches, pages that are wanted while they
/// are swept, and second chances. The page table refuses what must not happen.
#[test]
fn whatever_is_touched_time_is_accounted_for_and_pages_are_where_they_should_be() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let order: Vec<u32> = (0..3000)
        .flat_map(|_| {
            let (first, count) = (random.random_range(0..4000), random.random_range(1..12));
            first..first + count
        })
        .collect();
    for system in SYSTEMS {
        for op in [Op::Read, Op::Write] {
            let counts = simulate(&system, op, (4096, 1024), &order);
            assert!(counts.installed >= counts.major, "{}: {counts:?}", system.name);
            assert_time_is_accounted_for(&counts, op, order.len(), system.name);
            assert_eq!(counts, simulate(&system, op, (4096, 1024), &order), "{}", system.name);
        }
    }
}
