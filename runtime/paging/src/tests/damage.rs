//! Damaged memory that the reclaimer meets.

use std::time::Duration;

use yonder_units::PAGE_BYTES;

use crate::{Config, Deadlines, FarMemory, PagingCause};

/// No test can damage memory everywhere: a page that is mapped by its entry alone stands for it, since the reclaimer's
/// copy of that fails too.
#[test]
fn the_first_hand_loses_a_page_that_it_cannot_copy_and_no_other() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let deadlines = Deadlines { fault: Duration::from_secs(2), ..Deadlines::default() };
    let config = Config { deadlines, ..Config::with_local(4 << 20) };
    let far = FarMemory::open("emu://?latency=1us&size=64MiB", config).unwrap();
    let region = far.region(16 << 20).unwrap();
    let (lost, block) = (5 * PAGE_BYTES as u64, 64 * PAGE_BYTES as u64);
    (0..block).step_by(PAGE_BYTES).for_each(|offset| region.write_u64(offset, offset + 1).unwrap());
    assert!(region.is_resident(lost));
    region.core.memory().discard(lost, PAGE_BYTES).unwrap();
    // The block is swept when others need the room.
    (block..16 << 20).step_by(PAGE_BYTES).for_each(|offset| while region.write_u64(offset, offset + 1).is_err() {});
    for offset in (0..16 << 20).step_by(PAGE_BYTES) {
        let seen = region.read_u64(offset).map_err(|error| error.cause);
        let expected = if offset == lost { Err(PagingCause::HardwareError) } else { Ok(offset + 1) };
        assert_eq!(seen, expected, "at {offset}");
    }
    assert_eq!(far.stats().damaged_pages, 1);
}
