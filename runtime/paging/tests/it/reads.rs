//! Reads of pages that stay in the frames in which they arrive: content under writers, sweeps and a limit that changes;
//! who stays local; what is mapped.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::emulated::far;
use yonder_paging::{Config, FarMemory, Prefetch, Reads, Region, Verify};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const PAGES: u64 = 5 * LOCAL / PAGE;
/// Words of a page that are written one after the other, so that a torn read would show.
const WORDS: [u64; 3] = [0, 2048, 4088];

/// A sealed region in which every page has its number in each of [`WORDS`].
fn numbered(far: &FarMemory) -> Region {
    let mut region = far.region(PAGES * PAGE).unwrap();
    for page in 0..PAGES {
        WORDS.iter().for_each(|at| region.write_u64(page * PAGE + at, page).unwrap());
    }
    region.seal().unwrap();
    region
}

/// So much local memory, and nothing is fetched that nobody reads.
fn local(bytes: u64) -> Config {
    Config { prefetch: Prefetch::None, ..Config::with_local(bytes) }
}

fn pseudo_random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn a_page_that_is_only_read_is_never_mapped() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    let region = numbered(&far);
    let mut page_read = [0; PAGE_BYTES];
    for page in 0..PAGES {
        region.read(page * PAGE, &mut page_read).unwrap();
        assert_eq!(page_read[..8], page.to_le_bytes());
    }
    let stats = far.stats();
    assert_eq!((region.mapped_pages().unwrap(), stats.resident_pages), (0, 0), "{stats:?}");
    // Page 0 is zeros, and nowhere.
    assert_eq!((stats.kept_in_frames, stats.major_faults), (PAGES - 1, PAGES - 1));
    assert!(stats.peak_pages <= LOCAL / PAGE, "{} pages of {}", stats.peak_pages, LOCAL / PAGE);
    // Touched by pointer, or written, it is mapped from its frame.
    region.probe((PAGES - 1) * PAGE).unwrap();
    assert!(region.is_resident((PAGES - 1) * PAGE));
    assert_eq!(far.stats().rescues, stats.rescues + 1);
    assert_eq!(region.read_u64((PAGES - 1) * PAGE), Ok(PAGES - 1));
}

#[test]
fn reads_that_are_to_be_mapped_are() {
    let Some((far, _)) = far(Config { reads: Reads::Mapped, ..local(LOCAL) }) else { return };
    let region = numbered(&far);
    (0..64).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page)));
    assert_eq!((far.stats().kept_in_frames, region.mapped_pages().unwrap()), (0, 64));
}

#[test]
fn what_was_never_written_is_read_without_local_memory() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    let region = far.region(PAGES * PAGE).unwrap();
    let mut bytes = [1; 2 * PAGE_BYTES];
    (0..PAGES - 1).for_each(|page| {
        region.read(page * PAGE, &mut bytes).unwrap();
        assert!(bytes == [0; 2 * PAGE_BYTES], "page {page}");
    });
    assert_eq!(far.stats().peak_pages, 0);
}

/// What is read again has another turn; what is read once, however much it is, goes first.
#[test]
fn pages_that_are_read_again_stay_while_others_pass() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    let region = numbered(&far);
    let hot = LOCAL / PAGE / 4;
    let faults = || far.stats().major_faults;
    let mut of_hot = 0;
    for page in hot..PAGES {
        // Each hot page twice in the time in which local memory is gone through.
        for page in [page % hot, (page * 7 + 1) % hot] {
            let before = faults();
            assert_eq!(region.read_u64(page * PAGE), Ok(page));
            of_hot += faults() - before;
        }
        assert_eq!(region.read_u64(page * PAGE + WORDS[1]), Ok(page));
    }
    assert!(of_hot < 2 * hot, "{of_hot} fetches of {hot} pages that were read {} times", 2 * (PAGES - hot));
}

/// Reads of another region put pages on standby for as long as they go on.
#[test]
fn a_region_is_sealed_while_another_is_read() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    let read = numbered(&far);
    let mut written = far.region(PAGES * PAGE).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 11;
            while !is_over.load(Ordering::Relaxed) {
                let page = pseudo_random(&mut seed) % PAGES;
                assert_eq!(read.read_u64(page * PAGE), Ok(page));
            }
        });
        (0..PAGES).for_each(|page| written.write_u64(page * PAGE, page + 7).unwrap());
        written.seal().unwrap();
        (0..PAGES).for_each(|page| assert_eq!(written.read_u64(page * PAGE), Ok(page + 7)));
        is_over.store(true, Ordering::Relaxed);
    });
}

/// However long reads have had local memory for themselves.
#[test]
fn what_is_fetched_ahead_finds_room_after_many_reads() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = numbered(&far);
    let mut seed = 9;
    for _ in 0..8 * PAGES {
        // No two are neighbours, or those that meet by chance would teach the prefetcher to pause.
        let page = pseudo_random(&mut seed) % (PAGES / 2) * 2;
        assert_eq!(region.read_u64(page * PAGE), Ok(page));
    }
    let before = far.stats();
    assert_eq!(before.prefetched_pages, 0);
    (0..PAGES / 2).for_each(|page| region.probe(page * PAGE).unwrap());
    let stats = far.stats();
    let hits = stats.prefetch_hits - before.prefetch_hits;
    assert!(hits > PAGES / 128, "{hits} windows were touched of {} pages in order", PAGES / 2);
    assert!(stats.peak_pages <= LOCAL / PAGE, "{} pages of {}", stats.peak_pages, LOCAL / PAGE);
}

/// Writers count pages up, word by word; readers never see a page go back, nor another page's.
#[test]
fn readers_see_what_was_written_while_pages_move() {
    for url in ["emu://?latency=1us&size=256MiB", "emu://?latency=1us&size=256MiB&reads=frames"] {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let config = Config { verify: Verify::On, local_bytes_max: 2 * LOCAL, ..local(LOCAL) };
        let far = FarMemory::open(url, config).unwrap();
        let region = far.region(PAGES * PAGE).unwrap();
        let is_over = AtomicBool::new(false);
        let word = |page: u64, round: u64| page << 32 | round;
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (region, is_over) = (&region, &is_over);
                scope.spawn(move || {
                    let (mut seen, mut seed) = (vec![0; PAGES as usize], 77 + reader);
                    while !is_over.load(Ordering::Relaxed) {
                        let page = pseudo_random(&mut seed) % PAGES;
                        // The first word is written last, so the others are no older than it was when it was read.
                        let round = region.read_u64(page * PAGE).unwrap() & 0xFFFF_FFFF;
                        let mut bytes = [0; PAGE_BYTES];
                        region.read(page * PAGE, &mut bytes).unwrap();
                        for at in WORDS.map(|at| at as usize) {
                            let found = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                            assert!(found == 0 || found >> 32 == page, "{found:#x} in page {page}");
                            assert!(found & 0xFFFF_FFFF >= round, "{found:#x} after round {round} in page {page}");
                        }
                        assert!(round >= seen[page as usize], "page {page} went back from {}", seen[page as usize]);
                        seen[page as usize] = round;
                    }
                });
            }
            let mut seed = 5;
            let mut rounds = vec![0; PAGES as usize];
            for step in 0..20_000u64 {
                let page = pseudo_random(&mut seed) % PAGES;
                rounds[page as usize] += 1;
                for offset in WORDS.into_iter().rev() {
                    region.write_u64(page * PAGE + offset, word(page, rounds[page as usize])).unwrap();
                }
                if step % 4_000 == 3_999 {
                    far.set_local(if step % 8_000 == 3_999 { 2 * LOCAL } else { LOCAL }).unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
            for (page, round) in rounds.into_iter().enumerate().filter(|(_, round)| *round > 0) {
                let page = page as u64;
                WORDS.iter().for_each(|at| assert_eq!(region.read_u64(page * PAGE + at), Ok(word(page, round))));
            }
        });
        let stats = far.stats();
        assert!(stats.kept_in_frames > 0 && stats.rescues > 0 && stats.written_bytes > 0, "{stats:?}");
        drop(region);
        assert_eq!(far.stats().standby_pages, 0, "what stood of a region has gone with it");
    }
}

/// The next region may be shorter, and has the number of the one that ended.
#[test]
fn what_stood_of_a_region_that_ended_is_nobodys() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    for round in 0..4 {
        let region = numbered(&far);
        (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page)));
        drop(region);
        let short = far.region(8 * PAGE).unwrap();
        (0..8).for_each(|page| short.write_u64(page * PAGE, round).unwrap());
        (0..8).for_each(|page| assert_eq!(short.read_u64(page * PAGE), Ok(round)));
    }
    assert_eq!(far.stats().standby_pages, 0);
}

#[test]
fn a_range_that_is_given_back_while_its_pages_stand_reads_as_zeros() {
    let Some((far, _)) = far(local(LOCAL)) else { return };
    let region = far.region(PAGES * PAGE).unwrap();
    (0..PAGES).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    (0..PAGES).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
    assert!(far.stats().kept_in_frames > 0);
    region.discard((PAGES / 2) * PAGE, (PAGES / 2) * PAGE).unwrap();
    for page in 0..PAGES {
        let expected = if page < PAGES / 2 { page + 1 } else { 0 };
        assert_eq!(region.read_u64(page * PAGE), Ok(expected), "page {page}");
    }
}
