//! When reclaim starts and stops, and what its next step is.

use proptest::prelude::*;

use super::*;

fn policy(limit: u64) -> Policy {
    Policy::new(limit, Shares::default()).unwrap()
}

#[test]
fn shares_must_be_ordered() {
    for (start_percent, end_percent) in [(0.0, 5.0), (17.0, 15.0), (50.0, 89.0)] {
        assert!(Policy::new(4096, Shares { start_percent, end_percent, ..Shares::default() }).is_err());
    }
}

#[test]
fn starts_low_and_stops_high() {
    let policy = policy(10_000);
    let at = |resident| Usage { charged: resident, resident, headroom: 10_000 - resident, ..Usage::default() };
    assert!(!policy.is_low(&at(8_400)) && policy.is_low(&at(8_501)));
    assert_eq!(policy.decide(&at(8_300)), Action::Rest);
    assert!(matches!(policy.decide(&at(8_400)), Action::Sweep(_)));
}

#[test]
fn what_fits_stays() {
    let full = |policy: Policy| {
        let charged = policy.limit() - policy.reserve();
        Usage { charged, resident: charged, headroom: policy.reserve(), ..Usage::default() }
    };
    let most = Margin::of(65_536);
    let fits = policy(65_536).for_pages(65_536 - RESERVE_PAGES_MIN, &most);
    assert_eq!(fits.reserve(), RESERVE_PAGES_MIN, "the evictor has little to do");
    assert!(!fits.is_low(&full(fits)) && fits.start_above() == fits.limit());
    // Somebody waits for room nevertheless: frames hold it, and are given back.
    assert_ne!(fits.decide(&full(fits)), Action::Rest);
    let with_frames = Usage { charged: fits.limit() - 100, spare_frames: 600, headroom: 100, ..full(fits) };
    assert_eq!(fits.decide(&with_frames), Action::Trim(600), "they hold what is missing");
    // A hundred do not fit: the evictor gets a hundred more, and as many again are kept free for faults.
    let few = policy(65_536).for_pages(65_536 - RESERVE_PAGES_MIN + 100, &most);
    assert_eq!((few.reserve(), few.start_above()), (164, 65_536 - 164 - 200));
    assert!(few.is_low(&full(few)));
    let to_leave = policy(65_536).for_pages_to_leave(65_536 - RESERVE_PAGES_MIN + 100, &most);
    assert_eq!(to_leave.reserve(), RESERVE_PAGES_MAX, "who lowers a soft limit a little sees many pages swept");
    let almost = policy(65_536).for_pages(65_536 + RESERVE_PAGES_MAX, &most);
    assert!(!matches!(almost.decide(&with_frames), Action::Trim(_)), "sweeps need them");
    assert!(almost.is_low(&full(almost)));
    assert_eq!((almost.reserve(), almost.start_above()), (RESERVE_PAGES_MAX, 65_536 - 3 * RESERVE_PAGES_MAX));
    // It rests once as many are away as there is no room for, and a batch: more would only be missed.
    let away = 2 * RESERVE_PAGES_MAX + Policy::DRAIN_PAGES;
    let with_away = |pages: u64| {
        let charged = almost.limit() - almost.reserve() - pages;
        Usage { charged, resident: charged, headroom: almost.reserve() + pages, ..Usage::default() }
    };
    assert_eq!(almost.decide(&with_away(away)), Action::Rest);
    assert_ne!(almost.decide(&with_away(away - 1)), Action::Rest);
    let scarce = policy(65_536);
    assert_eq!(scarce.for_pages(5 * 65_536, &most), scarce);
    let little = scarce.for_pages(5 * 65_536, &Margin::default());
    assert_eq!(little.start_above(), 65_536 - 655, "faults that need little leave the rest to pages");
}

#[test]
fn a_limit_far_below_what_is_mapped_is_still_swept_towards() {
    let usage = Usage { charged: 1550, resident: 1550, headroom: 2_400, ..Usage::default() };
    assert!(matches!(policy(1024).decide(&usage), Action::Sweep(_)));
}

#[test]
fn dead_node_leaves_only_waiting() {
    let usage = Usage { charged: 512, writing: 512, ..Usage::default() };
    assert_eq!(policy(512).decide(&usage), Action::AwaitWrites);
}

proptest! {
    /// A model of local memory under the policy: whatever faults do, the limit holds and reclaim ends.
    #[test]
    fn reclaim_always_reaches_the_upper_watermark(
        limit in 512u64..100_000, faults in prop::collection::vec(1u64..5_000, 1..30), dirty in any::<bool>(),
        percent in 80u64..500, start_percent in 0.1f64..40.0, more_percent in 0.1f64..20.0, depth in 0u64..10_000,
        reads in 0u32..=256,
    ) {
        let end_percent = start_percent + more_percent;
        let shares = Shares { start_percent, least_percent: start_percent / 8.0, end_percent, standby_percent: 10.0 };
        let mut margin = Margin::default();
        margin.saw(depth, 20_000);
        let policy = Policy::new(limit, shares).unwrap().for_pages(limit * percent / 100, &margin);
        let mut usage = Usage { reads, ..Usage::default() };
        for wanted in faults {
            // Reads take spare frames before they take bare ones.
            let (to_read, to_map) = (wanted * u64::from(reads) / 256, wanted - wanted * u64::from(reads) / 256);
            let from_spare = to_read.min(usage.spare_frames);
            let room = policy.limit().saturating_sub(policy.reserve()).saturating_sub(usage.charged);
            let bare = (to_read - from_spare).min(room);
            let mapped = to_map.min(room - bare);
            usage.spare_frames -= from_spare;
            usage.standby += from_spare + bare;
            usage.charged += bare + mapped;
            usage.resident += mapped;
            for step in 0.. {
                prop_assert!(step < 100_000, "reclaim does not end: {usage:?}");
                prop_assert!(usage.charged <= policy.limit());
                usage.headroom = policy.limit() - usage.charged;
                match policy.decide(&usage) {
                    Action::Rest => break,
                    Action::Trim(pages) => { usage.spare_frames -= pages; usage.charged -= pages; }
                    Action::Drain(pages) => {
                        prop_assert!(pages <= usage.standby);
                        usage.standby -= pages;
                        usage.drained += pages;
                        if dirty { usage.writing += pages } else { usage.spare_frames += pages }
                    }
                    Action::Sweep(pages) => {
                        let swept = pages.min(usage.resident).min(512);
                        let backed = swept.saturating_sub(usage.spare_frames);
                        prop_assert!(usage.charged + backed <= policy.limit(), "no room to copy: {usage:?}");
                        usage.spare_frames -= swept - backed;
                        usage.charged = usage.charged + backed - swept;
                        usage.resident -= swept;
                        usage.drained = 0;
                        usage.standby += swept;
                    }
                    Action::AwaitWrites => { usage.spare_frames += usage.writing; usage.writing = 0; }
                }
            }
            prop_assert!(policy.free(&usage) >= policy.end || usage.resident == 0);
            let can_map = policy.uncharged(&usage) > policy.least_to_map();
            prop_assert!(can_map, "faults have no room: {policy:?}, {usage:?}");
        }
    }

    /// What is mapped and not touched again does not hold local memory against reads for ever: it goes in the time
    /// in which they go through all of it a few times.
    #[test]
    fn reads_take_the_place_of_what_is_mapped_and_cold(limit in 1_024u64..100_000, mapped_percent in 5u64..80) {
        let policy = Policy::new(limit, Shares::default()).unwrap().for_pages(5 * limit, &Margin::default());
        let resident = limit * mapped_percent / 100;
        let mut usage = Usage { resident, charged: resident, reads: 256, ..Usage::default() };
        let mut read = 0;
        while read < 5 * limit {
            let bare = (policy.start_above() + 1).saturating_sub(usage.charged);
            read += usage.spare_frames + bare;
            usage.standby += usage.spare_frames + bare;
            usage.charged += bare;
            usage.spare_frames = 0;
            for step in 0.. {
                prop_assert!(step < 10_000, "reclaim does not end: {usage:?}");
                usage.headroom = policy.limit() - usage.charged;
                match policy.decide(&usage) {
                    Action::Drain(pages) => {
                        usage.standby -= pages;
                        usage.spare_frames += pages;
                        usage.drained += pages;
                    }
                    Action::Sweep(pages) => {
                        let swept = pages.min(usage.resident);
                        let backed = swept.saturating_sub(usage.spare_frames);
                        usage.spare_frames -= swept - backed;
                        usage.charged = usage.charged + backed - swept;
                        usage.resident -= swept;
                        usage.standby += swept;
                        usage.drained = 0;
                    }
                    Action::Trim(pages) => {
                        usage.spare_frames -= pages;
                        usage.charged -= pages;
                    }
                    Action::Rest => break,
                    Action::AwaitWrites => unreachable!("nothing is dirty"),
                }
            }
        }
        prop_assert!(usage.resident < resident / 10 + policy.reserve(), "{usage:?} of {resident}");
    }

    /// Where nobody reads in frames, spare frames are not free, and the cleaner has them all for the first.
    #[test]
    fn spare_frames_are_free_as_far_as_reads_take_them(spare in 0u64..20_000, reads in 0u32..=256) {
        let policy = policy(100_000);
        let usage = Usage { charged: 90_000, resident: 60_000, spare_frames: spare, reads, ..Usage::default() };
        let free = policy.free(&usage);
        prop_assert!((10_000..=10_000 + spare).contains(&free));
        prop_assert_eq!(free == 10_000, spare.min(policy.spare_for_reads(reads)) == 0);
    }
}

#[test]
#[should_panic(expected = "the watermarks cross")]
fn watermarks_that_cross_are_our_bug() {
    let policy = policy(LIMIT_PAGES_MIN);
    let _ = Policy { end: policy.start, ..policy }.checked();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "parts of 256")]
fn more_reads_than_all_are_our_bug() {
    let _ = policy(LIMIT_PAGES_MIN).decide(&Usage { reads: 257, ..Usage::default() });
}
