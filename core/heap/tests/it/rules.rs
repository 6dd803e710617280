//! A test for each rule.

use yonder_heap::{Allocated, Class, Freed, Heap, MAGAZINE_OBJECTS_MAX, Magazine, NotAllocated, Resized};
use yonder_units::{BLOCK_BYTES, PAGE_BYTES, PageIndex, Vector};

const PAGE: u64 = PAGE_BYTES as u64;
const GIB: u64 = 1 << 30;

fn class(bytes: u64) -> Class {
    Class::fitting(bytes, 1).unwrap()
}

/// Frees a run and releases its pages.
fn free_run(heap: &mut Heap, offset: u64) {
    match heap.free(offset) {
        Ok(Freed::Run(retired)) => heap.release(retired),
        other => panic!("{offset} is no run: {other:?}"),
    }
}

#[test]
fn what_is_freed_twice_is_refused() {
    let mut heap = Heap::new(GIB);
    let (small, other, large) = (heap.alloc(40, 1).unwrap(), heap.alloc(40, 1).unwrap(), heap.alloc(9000, 1).unwrap());
    assert_eq!(heap.free(small), Ok(Freed::Object(class(40))));
    assert_eq!(heap.free(small), Err(NotAllocated { offset: small }));
    free_run(&mut heap, large);
    assert_eq!(heap.free(large), Err(NotAllocated { offset: large }));
    for never in [other + 16, other + 48, large + PAGE, GIB, u64::MAX] {
        assert_eq!(heap.free(never), Err(NotAllocated { offset: never }), "{never} was never given out");
    }
    assert_eq!(heap.size_of(other), Ok(48));
}

#[test]
fn a_run_is_split_into_runs_that_live_on_their_own() {
    let mut heap = Heap::new(64 * PAGE);
    let run = heap.alloc_run(5 * PAGE + 100, 1).unwrap();
    let live = |heap: &Heap, page: u64| heap.map().live(PageIndex::containing(run + page * PAGE));
    let before: Vec<Option<Vector>> = (0..6).map(|page| live(&heap, page)).collect();
    heap.split(run, 2 * PAGE).unwrap();
    heap.split(run + 2 * PAGE, 3 * PAGE).unwrap();
    assert_eq!((0..6).map(|page| live(&heap, page)).collect::<Vec<_>>(), before, "what is live has changed");
    let runs = [0, 1, 2, 5, 6].map(|page| heap.map().run_at(PageIndex::containing(run + page * PAGE)));
    assert_eq!(runs, [Some(2), None, Some(3), Some(1), None]);
    let sizes = [0, 2, 5].map(|page| heap.size_of(run + page * PAGE).unwrap());
    assert_eq!(sizes, [2 * PAGE, 3 * PAGE, 112]);
    assert!(heap.split(run + PAGE, PAGE).is_err(), "a run was split that does not begin there");
    free_run(&mut heap, run + 2 * PAGE);
    assert_eq!((live(&heap, 1), live(&heap, 2), live(&heap, 4)), (Some(Vector::WHOLE), None, None));
    assert_ne!(live(&heap, 5), None);
    free_run(&mut heap, run);
    free_run(&mut heap, run + 5 * PAGE);
    assert_eq!(heap.alloc(64 * PAGE, 1), Some(0), "pages were lost");
}

#[test]
fn what_is_freed_twice_into_magazines_is_found_by_the_flush() {
    let mut heap = Heap::new(GIB);
    let (mut one, mut two) = (Magazine::new(), Magazine::new());
    let (twice, once) = (heap.alloc(100, 1).unwrap(), heap.alloc(100, 1).unwrap());
    one.free(class(100), twice).unwrap();
    assert!(one.contains(class(100), twice), "its own thread can see it at once");
    two.free(class(100), twice).unwrap();
    two.free(class(100), once).unwrap();
    heap.flush_all(&mut one).unwrap();
    assert_eq!(heap.map().look_up(twice), Err(NotAllocated { offset: twice }));
    assert_eq!(heap.flush_all(&mut two), Err(NotAllocated { offset: twice }));
    assert_eq!(heap.stats().objects, 0, "the others are taken back");
    assert_ne!(heap.alloc(100, 1), heap.alloc(100, 1), "nothing is given out twice");
}

#[test]
fn a_run_that_is_freed_twice_into_magazines_is_found_by_the_flush() {
    let mut heap = Heap::new(GIB);
    let (mut one, mut two) = (Magazine::new(), Magazine::new());
    let [twice, once] = [20_000, 20_000].map(|bytes| heap.alloc_large(bytes, 1).unwrap());
    let Ok(Allocated::Run(bytes)) = heap.map().look_up(twice) else { panic!("it is large") };
    assert_eq!(one.free_run(twice, bytes), None);
    assert!(one.contains_run(twice, bytes), "its own thread can see it at once");
    assert_eq!([once, twice].map(|run| two.free_run(run, bytes)), [None, None]);
    assert_eq!(heap.flush_all(&mut one), Ok(()));
    assert_eq!(heap.flush_all(&mut two), Err(NotAllocated { offset: twice }));
    assert_eq!((heap.stats().run_pages, heap.stats().retired_pages), (0, 0), "the other is taken back");
}

#[test]
fn a_flush_refuses_what_has_become_something_else() {
    let mut heap = Heap::new(16 * PAGE);
    let mut magazine = Magazine::new();
    let objects: Vec<u64> = (0..17).map(|_| heap.alloc(100, 1).unwrap()).collect();
    objects.iter().for_each(|offset| assert!(heap.free(*offset).is_ok()));
    let offset = objects[16];
    magazine.free(class(100), offset).unwrap();
    // The page that was kept empty becomes part of a run, whose length has a bit where the slot had one.
    assert_eq!(heap.alloc(16 * PAGE, 1), Some(0));
    assert_eq!(heap.flush_all(&mut magazine), Err(NotAllocated { offset }));
    assert_eq!(heap.map().look_up(0), Ok(Allocated::Run(16 * PAGE)));
}

#[test]
fn a_full_heap_refuses_and_recovers() {
    let mut heap = Heap::new(64 * PAGE);
    let objects: Vec<u64> = std::iter::from_fn(|| heap.alloc(2048, 1)).collect();
    assert_eq!(objects.len(), 128);
    assert_eq!((heap.alloc(1, 1), heap.alloc(5000, 1)), (None, None));
    let mut magazine = Magazine::new();
    assert_eq!(heap.refill(&mut magazine, class(16)), 0);
    // The last object has the last page, so nothing moves down.
    let _ = heap.free(objects[5]).unwrap();
    assert_eq!(heap.alloc(16, 1), None, "the page is still of another class");
    assert_eq!(heap.alloc(2048, 1), Some(objects[5]));
    objects.into_iter().for_each(|offset| assert!(heap.free(offset).is_ok()));
    assert_eq!(heap.alloc(64 * PAGE, 1), Some(0), "slabs that are kept empty do not stand in the way");
    assert_eq!([heap.alloc(u64::MAX, 1), heap.alloc(1, 1 << 63)], [None, None]);
}

#[test]
fn retired_pages_are_given_to_nobody_before_their_release() {
    let mut heap = Heap::new(4 * PAGE);
    let offset = heap.alloc(4 * PAGE, 1).unwrap();
    let Ok(Freed::Run(retired)) = heap.free(offset) else { panic!("four pages are a run") };
    assert_eq!((heap.alloc(1, 1), heap.stats().retired_pages), (None, 4));
    heap.release(retired);
    assert_eq!((heap.alloc(4 * PAGE, 1), heap.stats().retired_pages), (Some(0), 0));
}

#[test]
fn alignments_up_to_a_gibibyte_are_kept() {
    let mut heap = Heap::new(64 * GIB);
    for align in (0..=30).map(|power| 1u64 << power) {
        for bytes in [1, 100, 2048, 5000, 3 << 20] {
            let offset = heap.alloc(bytes, align).unwrap();
            assert!(offset.is_multiple_of(align.max(16)), "{bytes} bytes at {align}: {offset:#x}");
        }
    }
}

#[test]
fn objects_are_low_and_together() {
    let mut heap = Heap::new(GIB);
    let objects: Vec<u64> = (0..30_000).map(|number| heap.alloc(1 + number % 1024, 1).unwrap()).collect();
    let highest = *objects.iter().max().unwrap();
    let bytes = heap.stats().object_bytes;
    assert!(highest as f64 <= bytes as f64 * 1.1, "{bytes} bytes reach up to {highest}");
    // Three of four go. What comes then fills the lowest pages that have room.
    let (stay, go): (Vec<_>, Vec<_>) = objects.into_iter().enumerate().partition(|(index, _)| index % 4 == 0);
    go.into_iter().for_each(|(_, offset)| assert!(heap.free(offset).is_ok()));
    let lowest = (0..500).map(|_| heap.alloc(512, 1).unwrap()).max().unwrap();
    assert!(lowest < highest / 2, "{lowest} of {highest} with {} that stayed", stay.len());
}

#[test]
fn a_heap_of_terabytes_is_made_at_once_and_used_at_its_low_end() {
    let mut heap = Heap::new(1 << 40);
    let offset = heap.alloc(100, 1).unwrap();
    assert!(offset < BLOCK_BYTES as u64);
    let stats = heap.stats();
    assert!(stats.metadata_bytes < 1 << 12, "{stats:?}");
    assert!(stats.metadata_reserved_bytes < (1 << 40) / 100, "{stats:?}");
    let top = heap.alloc((1 << 40) - (1 << 20), 1).unwrap();
    assert_eq!(heap.map().live(PageIndex::containing(top + (1 << 39))), Some(Vector::WHOLE));
    let before = heap.stats().metadata_bytes;
    assert!(before > stats.metadata_reserved_bytes * 99 / 100);
    assert_eq!(heap.resize_in_place(top, (1 << 40) - top), Ok(Resized::Done));
    assert!(heap.stats().metadata_bytes > before && before < stats.metadata_reserved_bytes);
}

#[test]
fn a_few_empty_slabs_are_kept_and_they_are_the_lowest() {
    let mut heap = Heap::new(GIB);
    let objects: Vec<u64> = (0..40).map(|_| heap.alloc(1024, 1).unwrap()).collect();
    objects.into_iter().for_each(|offset| assert!(heap.free(offset).is_ok()));
    assert_eq!(heap.stats().object_pages, 4);
    assert_eq!(heap.alloc(3 * PAGE, 1), Some(4 * PAGE), "a page that is not kept is the lowest free one");
}

#[test]
fn resizing_in_place() {
    let mut heap = Heap::new(32 * PAGE);
    let object = heap.alloc(100, 1).unwrap();
    assert_eq!(heap.resize_in_place(object, 112), Ok(Resized::Done));
    assert_eq!(heap.resize_in_place(object, 113), Ok(Resized::Refused));
    assert_eq!(heap.resize_in_place(object + 1, 1), Err(NotAllocated { offset: object + 1 }));
    let run = heap.alloc(3 * PAGE, 1).unwrap();
    let behind = heap.alloc(3 * PAGE, 1).unwrap();
    assert_eq!(heap.resize_in_place(run, 3 * PAGE + 1), Ok(Resized::Refused), "another run is behind it");
    free_run(&mut heap, behind);
    assert_eq!(heap.resize_in_place(run, 4 * PAGE + 100), Ok(Resized::Done));
    assert_eq!(heap.map().look_up(run), Ok(Allocated::Run(4 * PAGE + 112)));
    assert_eq!(heap.map().live(PageIndex::containing(run + 4 * PAGE)), Some(Vector::new(std::iter::once(0..112))));
    assert_eq!(
        heap.map().live(PageIndex::containing(run + 2 * PAGE)),
        Some(Vector::WHOLE),
        "it is not the last page any more"
    );
    let Ok(Resized::Shrunk(retired)) = heap.resize_in_place(run, 1) else { panic!("pages are cut off") };
    assert_eq!((retired.first().offset(), retired.pages()), (run + PAGE, 4));
    assert_eq!(heap.map().live(retired.first()), None);
    heap.release(retired);
    assert_eq!(heap.resize_in_place(run, 64 * PAGE), Ok(Resized::Refused), "the heap ends before");
    assert_eq!(heap.resize_in_place(run, u64::MAX), Ok(Resized::Refused));
    assert_eq!(heap.resize_in_place(run, 31 * PAGE), Ok(Resized::Done), "it may reach the end of the heap");
}

#[test]
fn magazines_give_ascending_offsets_and_take_what_others_gave() {
    let mut heap = Heap::new(GIB);
    let (mut one, mut two) = (Magazine::new(), Magazine::new());
    let came = heap.refill(&mut one, class(64));
    let offsets: Vec<u64> = std::iter::from_fn(|| one.alloc(class(64))).collect();
    assert!(offsets.len() == came && came == MAGAZINE_OBJECTS_MAX / 2 && offsets.is_sorted());
    offsets.iter().for_each(|offset| two.free(class(64), *offset).unwrap());
    assert_eq!(heap.stats().objects, came as u64, "objects in a magazine are live");
    assert_eq!(two.alloc(class(64)), offsets.last().copied());
    heap.flush_all(&mut two).unwrap();
    assert_eq!(heap.stats().objects, 1);
}

/// A value of 4 KiB with its header.
#[test]
fn objects_of_several_pages_share_slabs() {
    let mut heap = Heap::new(GIB);
    let objects: Vec<u64> = (0..1500).map(|_| heap.alloc(4198, 16).unwrap()).collect();
    let stats = heap.stats();
    assert_eq!((stats.objects, stats.run_pages), (1500, 0));
    let taken = stats.object_pages * PAGE;
    assert!(taken as f64 <= 1500.0 * 4198.0 * 1.05, "{taken} bytes");
    assert_eq!(heap.map().look_up(objects[1]), Ok(Allocated::Object(class(4198))));
    assert_eq!(heap.map().look_up(objects[1] + 16), Err(NotAllocated { offset: objects[1] + 16 }));
    // Of the second page of a slab a part of each of three objects is live.
    assert!(heap.map().live(PageIndex(1)).is_some());
    objects.into_iter().for_each(|offset| assert!(heap.free(offset).is_ok()));
    assert!(heap.stats().object_pages <= 16, "one empty slab is kept");
    assert_eq!(heap.map().live(PageIndex(1)), None);
}

#[test]
fn where_no_slab_fits_a_large_object_gets_pages_of_its_own() {
    let mut heap = Heap::new(8 * PAGE);
    let run = heap.alloc(5000, 1).unwrap();
    assert_eq!(heap.map().look_up(run), Ok(Allocated::Run(5008)));
}

/// A copy between places that are nearly the same within their pages takes several times as long.
#[test]
fn large_objects_begin_anywhere_in_their_first_page_and_take_no_page_more_for_that() {
    let mut heap = Heap::new(GIB);
    let mut starts: Vec<u64> = (0..16).map(|_| heap.alloc(64 * 1024 + 24, 16).unwrap() % PAGE).collect();
    assert_eq!(heap.stats().run_pages, 16 * 17);
    assert!(starts.iter().all(|start| start % 64 == 0), "{starts:?}");
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 64), "{starts:?}");
    assert_eq!(heap.alloc(16 * PAGE, 16).unwrap() % PAGE, 0, "there is no room");
    assert_eq!(heap.alloc(64 * 1024 + 24, 128).unwrap() % 128, 0);
    assert_eq!(heap.alloc_run(64 * 1024 + 24, 1).unwrap() % PAGE, 0, "it begins with its page");
}

#[test]
fn a_large_object_is_where_it_was_said_to_be_and_nowhere_else() {
    let mut heap = Heap::new(GIB);
    let run = std::iter::repeat_with(|| heap.alloc(6 * PAGE + 100, 1).unwrap()).find(|run| run % PAGE > 0).unwrap();
    let (page, start) = (run - run % PAGE, run % PAGE);
    for other in [page, run + 64, run + PAGE] {
        assert_eq!(heap.map().look_up(other), Err(NotAllocated { offset: other }));
        assert_eq!(heap.free(other).unwrap_err(), NotAllocated { offset: other });
    }
    assert_eq!(heap.split(run, PAGE), Err(NotAllocated { offset: run }), "it does not begin with its page");
    assert_eq!(heap.map().run_at(PageIndex::containing(run)), Some(7));
    // It keeps its place when it grows and shrinks, and its pages are those of what it has.
    assert_eq!(heap.resize_in_place(run, 9 * PAGE).unwrap(), Resized::Done);
    assert_eq!(heap.map().run_at(PageIndex::containing(run)), Some(10));
    let Ok(Resized::Shrunk(retired)) = heap.resize_in_place(run, PAGE - start) else { panic!("it is shorter") };
    assert_eq!((retired.first().offset(), retired.pages()), (page + PAGE, 9));
    heap.release(retired);
    assert_eq!(heap.map().look_up(run), Ok(Allocated::Run(PAGE - start)));
    free_run(&mut heap, run);
}

/// Whoever splits, resizes and frees pages gets a run, however few they are.
#[test]
fn two_pages_are_a_run_if_that_is_what_is_asked_for() {
    let mut heap = Heap::new(GIB);
    let run = heap.alloc_run(2 * PAGE, PAGE).unwrap();
    assert_eq!(heap.map().look_up(run), Ok(Allocated::Run(2 * PAGE)));
    heap.split(run, PAGE).unwrap();
    free_run(&mut heap, run);
    free_run(&mut heap, run + PAGE);
}

#[test]
fn an_object_in_several_pages_is_found_by_any_byte_of_it() {
    let mut heap = Heap::new(64 * PAGE);
    let mut alloc = |bytes| heap.alloc(bytes, 1).unwrap();
    // Slabs of sixteen pages, in which slots of 4,368 bytes follow one another.
    let offsets: Vec<u64> = (0..15).map(|_| alloc(4_300)).collect();
    let (small, run) = (alloc(100), alloc(3 * PAGE));
    for offset in &offsets {
        let pages = Some((offset / PAGE) as u32..((offset + 4_367) / PAGE) as u32 + 1);
        assert_eq!(
            [0, 2_000, 4_367].map(|byte| heap.map().pages_of_object(offset + byte)),
            [(); 3].map(|()| pages.clone())
        );
    }
    let behind = offsets.iter().max().unwrap() + 4_368;
    assert_eq!([behind, small, run, u64::MAX].map(|offset| heap.map().pages_of_object(offset)), [(); 4].map(|()| None));
}
