//! `mlock`: far memory that a program wants never to leave this machine, such as secrets.
//!
//! Each of its pages is held. That keeps its block of 2 MiB from being swept, so a quarter of local memory at most is
//! in such blocks, and what is more is refused as by a small limit of locked memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_paging::Hold;
use yonder_trap::hold_back;
use yonder_units::{BLOCK_PAGES, PAGE_BYTES};

use crate::far::Far;
use crate::maps::whole_pages;

/// One of how many parts of local memory may be in blocks with locked pages.
const SHARE: u64 = 4;
const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE_BYTES;

/// The pages of a block that are locked, by their addresses.
type Block = BTreeMap<usize, Hold<'static>>;

/// What is locked, by the numbers of blocks.
static LOCKED: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

/// What keeps memory from being locked or unlocked until it is dropped.
pub(crate) type Held = MutexGuard<'static, BTreeMap<usize, Block>>;

/// For who keeps handlers of signals away.
pub(crate) fn held() -> Held {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pages that a range has a part of.
fn pages(address: usize, bytes: usize) -> Option<Range<usize>> {
    let start = address - address % PAGE_BYTES;
    Some(start..start.checked_add(whole_pages(address - start + bytes)?)?)
}

/// Brings the pages of a range, and keeps them here until they are unlocked or unmapped.
pub(crate) fn lock(far: &'static Far, address: usize, bytes: usize) -> Result<(), c_int> {
    let Some(range) = pages(address, bytes) else { return if bytes == 0 { Ok(()) } else { Err(libc::EINVAL) } };
    let first = far.offset(range.start).ok_or(libc::ENOMEM)?;
    far.offset(range.end - 1).ok_or(libc::ENOMEM)?;
    let has_room = |locked: &Held| {
        let blocks = range.start / BLOCK_BYTES..=(range.end - 1) / BLOCK_BYTES;
        let blocks = locked.len() + blocks.filter(|block| !locked.contains_key(block)).count();
        blocks as u64 * BLOCK_BYTES as u64 <= far.region().far().local() / SHARE
    };
    hold_back(|| {
        if !has_room(&held()) {
            return Err(libc::ENOMEM);
        }
        // All of it comes at once, and stays until each page has a hold of its own.
        let _all = far.region().hold(first, range.len()).map_err(|_| libc::ENOMEM)?;
        let mut locked = held();
        // Another thread may have locked some meanwhile.
        if !has_room(&locked) {
            return Err(libc::ENOMEM);
        }
        for page in range.clone().step_by(PAGE_BYTES) {
            if let Entry::Vacant(free) = locked.entry(page / BLOCK_BYTES).or_default().entry(page) {
                let offset = first + (page - range.start) as u64;
                free.insert(far.region().hold(offset, PAGE_BYTES).map_err(|_| libc::ENOMEM)?);
            }
        }
        Ok(())
    })
}

/// Lets the pages of a range go that are locked.
pub(crate) fn unlock(address: usize, bytes: usize) -> Result<(), c_int> {
    let Some(range) = pages(address, bytes) else { return if bytes == 0 { Ok(()) } else { Err(libc::EINVAL) } };
    forget(&range);
    Ok(())
}

/// The same, of whole pages that are the program's no more.
pub(crate) fn forget(range: &Range<usize>) {
    hold_back(|| {
        let mut locked = held();
        for number in blocks_of(&locked, range) {
            let block = locked.get_mut(&number).expect("just found");
            block.retain(|page, _| !range.contains(page));
            if block.is_empty() {
                locked.remove(&number);
            }
        }
    });
}

/// Whether any page of a range is locked.
pub(crate) fn has_any(range: &Range<usize>) -> bool {
    hold_back(|| {
        let locked = held();
        blocks_of(&locked, range).iter().any(|number| locked[number].range(range.clone()).next().is_some())
    })
}

fn blocks_of(locked: &Held, range: &Range<usize>) -> Vec<usize> {
    let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
    locked.range(blocks).map(|(number, _)| *number).collect()
}
