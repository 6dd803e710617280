//! Ranges against a set of pages, buckets that never overflow, and retries near full.

use std::collections::BTreeSet;

use proptest::prelude::*;
use yonder_wire::{Backing, Permission};

use super::*;
use crate::moved::Closed;
use crate::page_table::Lookup;

fn free_all(allocator: &mut Allocator, pid: Pid) -> Vec<Freed> {
    let mut each = || allocator.first_allocated(pid, 0).and_then(|range| allocator.free(pid, VirtualPage(range.first)));
    std::iter::from_fn(&mut each).collect()
}

const TERMS: Terms = Terms { permission: Permission::ReadWrite, backing: Backing::OnDemand, exposed: Exposed::No };

/// Allocates anywhere.
fn allocate(allocator: &mut Allocator, owner: u32, pages: u32) -> Result<(u32, u32), NoRoom> {
    let allocated = allocator.allocate(pid(owner), pages, TERMS, Window::ALL, &ClosedRanges::new().0);
    allocated.map(|(first, retries)| (first.0, retries))
}

fn pid(number: u32) -> Pid {
    Pid::new(number).unwrap()
}

fn board(physical_pages: u32, seed: u64) -> (Arc<PageTable>, Allocator) {
    let table = Arc::new(PageTable::new(physical_pages, seed));
    (Arc::clone(&table), Allocator::new(table))
}

#[test]
fn ranges_do_not_overlap_and_address_zero_is_nobodys() {
    let (_, mut allocator) = board(1024, 1);
    let (first, _) = allocate(&mut allocator, 1, 3).unwrap();
    let (second, _) = allocate(&mut allocator, 1, 2).unwrap();
    assert!(first >= 1 && second >= first + 3);
    let range = Allocated { first, pages: 3, terms: TERMS };
    assert_eq!(allocator.at(pid(1), VirtualPage(first)), Some(range));
    assert_eq!(allocator.at(pid(2), VirtualPage(first)), None);
    assert_eq!(allocator.around(pid(1), VirtualPage(first + 2)), Some(range));
    assert_eq!(allocator.around(pid(1), VirtualPage(first + 5)), None);
    assert_eq!(allocator.among(pid(1), first + 2, first + 3), [range]);
    assert_eq!(allocator.among(pid(1), 0, u32::MAX).len(), 2);
}

#[test]
fn a_freed_range_is_gone_at_once_and_reused_only_after_its_release() {
    let (table, mut allocator) = board(8, 1);
    let first = VirtualPage(allocate(&mut allocator, 1, 2).unwrap().0);
    let Some(Lookup::Reserved(slot, _)) = table.look_up(pid(1), first) else { panic!() };
    table.map(slot, PhysicalPage(4)).unwrap();
    let freed = allocator.free(pid(1), first).unwrap();
    assert_eq!((table.look_up(pid(1), first), allocator.pages()), (None, 2));
    assert_eq!(allocator.free(pid(1), first), None);
    assert_eq!(allocator.release(freed), [PhysicalPage(4)]);
    assert_eq!(allocator.pages(), 0);
    // Not at once, though the address space has nothing: who frees twice must not hit somebody else.
    let next = VirtualPage(allocate(&mut allocator, 1, 2).unwrap().0);
    assert_eq!(next.0, first.0 + 2);
    let freed = allocator.free(pid(1), next).unwrap();
    allocator.end(pid(1));
    allocator.release(freed);
    assert_eq!(allocate(&mut allocator, 1, 2).unwrap(), (1, 0), "of the address space that ended nothing is left");
}

#[test]
fn what_cannot_be_is_refused() {
    let (_, mut allocator) = board(16, 1);
    assert_eq!(allocate(&mut allocator, 1, 33), Err(NoRoom));
    assert_eq!(allocate(&mut allocator, 1, u32::MAX), Err(NoRoom));
    assert_eq!(allocator.free(pid(1), VirtualPage(1)), None);
    assert!(free_all(&mut allocator, pid(1)).is_empty());
}

#[test]
fn an_allocation_lies_in_its_window_and_in_no_closed_range() {
    let (_, mut allocator) = board(1024, 1);
    let mut closed = ClosedRanges::new().0;
    closed.close(pid(1), 100, 110, Closed::Moved);
    closed.close(pid(1), 112, 120, Closed::Moving);
    let mut within = |from, to, pages| {
        let window = Window::new(from, to);
        allocator.allocate(pid(1), pages, TERMS, window, &closed).map(|(first, _)| first.0)
    };
    assert_eq!(within(95, 130, 5), Ok(95));
    assert_eq!(within(95, 130, 3), Ok(120));
    assert_eq!(within(95, 130, 2), Ok(123));
    assert_eq!(within(95, 122, 2), Ok(110), "what lies before the last allocation is tried as well");
    assert_eq!(within(95, 122, 1), Err(NoRoom));
    assert_eq!((within(0, 0, 1), within(0, 1, 1), within(0, 2, 1)), (Err(NoRoom), Err(NoRoom), Ok(1)));
}

#[test]
fn pages_that_move_are_put_exactly_where_they_were_or_nowhere() {
    let (table, mut allocator) = board(1024, 1);
    assert_eq!(allocator.allocate_moving(pid(1), 50, 4, TERMS), Ok(()));
    assert_eq!(table.look_up(pid(1), VirtualPage(53)), Some(Lookup::Moving));
    for (first, pages) in [(50, 4), (53, 1), (47, 4), (40, 30), (0, 1), (u32::MAX, 2)] {
        assert_eq!(allocator.allocate_moving(pid(1), first, pages, TERMS), Err(NoRoom), "{pages} from {first}");
    }
    assert_eq!(allocator.allocate_moving(pid(1), 54, 4, TERMS), Ok(()));
    assert_eq!(allocator.allocate_moving(pid(1), 47, 3, TERMS), Ok(()));
}

/// Fills a node of 64 Ki pages to 98 % with allocations of up to `longest` pages of many address spaces, and returns
/// the most retries of one, and their mean over the last tenth.
fn retries_near_full(longest: u32) -> (u32, f64) {
    const PAGES: u32 = 65_536;
    let (_, mut allocator) = board(PAGES, 3);
    let (mut most, mut late, mut count) = (0, 0u64, 0u64);
    let mut draw = 1u64;
    while allocator.pages() < u64::from(PAGES) * 98 / 100 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pages = (1 + (draw >> 33) as u32 % longest).min((u64::from(PAGES) * 98 / 100 - allocator.pages()) as u32);
        let (_, retries) = allocate(&mut allocator, 1 + (draw >> 20) as u32 % 100, pages).unwrap();
        most = most.max(retries);
        if allocator.pages() > u64::from(PAGES) * 88 / 100 {
            (late, count) = (late + u64::from(retries), count + 1);
        }
    }
    (most, late as f64 / count as f64)
}

#[test]
fn retries_stay_few_up_to_98_percent() {
    for longest in [1, 16, 64, 256, 1024] {
        let (most, mean_late) = retries_near_full(longest);
        println!("up to {longest} pages: at most {most} retries, {mean_late:.2} on average near full");
        assert!(most <= 60, "{most} retries of allocations up to {longest} pages");
    }
}

/// An address space of single pages with gaps of one between them, and a window that is all of those: every allocation
/// of two pages would look at each gap.
#[test]
fn a_search_among_many_gaps_ends_soon() {
    const RANGES: u32 = if cfg!(miri) { 1 << 8 } else { 1 << 16 };
    let (_, mut allocator) = board(16 * RANGES, 1);
    let closed = ClosedRanges::new().0;
    let mut within = |from, to, pages| {
        let found = allocator.allocate(pid(1), pages, TERMS, Window::new(from, to), &closed);
        found.map(|(first, _)| first.0)
    };
    for number in 0..RANGES {
        let page = 1 + 2 * number;
        assert_eq!(within(page, page + 1, 1), Ok(page));
    }
    // The search begins behind the last allocation, where there is room.
    assert_eq!(within(1, 4 * RANGES, 2), Ok(2 * RANGES));
    let last = 4 * RANGES - 2;
    assert_eq!(within(last, last + 1, 1), Ok(last));
    // Now it begins before the gaps, and the room behind them is farther than it goes.
    assert_eq!(within(1, last, 2).is_err(), !cfg!(miri), "a search has looked at every gap");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]
    /// Against a model: a set of pages. Every allocated page is found, no other is, and no bucket overflows (which
    /// `insert` asserts), however full the node is.
    #[test]
    fn keeps_what_a_set_would_keep(
        seed in any::<u64>(), operations in prop::collection::vec((1u32..5, 1u32..40, any::<u8>()), 1..120),
    ) {
        let (table, mut allocator) = board(128, seed);
        let mut ranges: Vec<(Pid, u32, u32)> = Vec::new();
        let mut waiting = Vec::new();
        for (owner, pages, choice) in operations {
            match choice % 4 {
                0 if !ranges.is_empty() => {
                    let (owner, first, _) = ranges.swap_remove(usize::from(choice) % ranges.len());
                    waiting.push(allocator.free(owner, VirtualPage(first)).unwrap());
                }
                1 => waiting.drain(..).for_each(|freed| { allocator.release(freed); }),
                _ => if let Ok((first, _)) = allocate(&mut allocator, owner, pages) {
                    ranges.push((pid(owner), first, pages));
                }
            }
            let model: BTreeSet<(Pid, u32)> = ranges.iter()
                .flat_map(|(owner, first, pages)| (*first..first + pages).map(|page| (*owner, page))).collect();
            let wanted: u32 = ranges.iter().map(|(.., pages)| pages).sum();
            prop_assert_eq!(model.len() as u32, wanted, "two ranges overlap");
            for owner in 1..5 {
                for page in 0..200 {
                    let found = table.look_up(pid(owner), VirtualPage(page)).is_some();
                    prop_assert_eq!(found, model.contains(&(pid(owner), page)));
                }
            }
        }
        for (owner, ..) in ranges { waiting.extend(free_all(&mut allocator, owner)); }
        waiting.drain(..).for_each(|freed| { allocator.release(freed); });
        prop_assert_eq!(allocator.pages(), 0);
        prop_assert!(allocator.taken.iter().all(|taken| *taken == 0));
    }
}
