//! `madvise` of far memory: what a program says of ranges becomes advice to the pager.

use libc::c_int;
use yonder_paging::Advice;
use yonder_trap::hold_back;

use crate::far::Far;
use crate::locked;
use crate::mapped::maps;
use crate::maps::{range_of, whole_pages};

/// Bytes that are made resident at a time.
const POPULATED_BYTES: usize = 64 << 10;

/// What `madvise` does: 0, or an error number below zero.
pub(crate) fn advise(far: &'static Far, address: usize, bytes: usize, advice: c_int) -> i64 {
    let Some(bytes) = whole_pages(bytes) else { return 0 };
    let is_inside = range_of(address, bytes).is_some_and(|range| far.offset(range.end - 1).is_some());
    let result = match advice {
        _ if !is_inside => Err(libc::EINVAL),
        // What the file has would have to come back.
        libc::MADV_DONTNEED | libc::MADV_FREE if is_copied(address, bytes) => Err(libc::EINVAL),
        libc::MADV_DONTNEED | libc::MADV_PAGEOUT | libc::MADV_COLD if locked::has_any(&(address..address + bytes)) => {
            Err(libc::EINVAL)
        }
        libc::MADV_DONTNEED => far.drop_content(address, bytes),
        // It may go at any time, and goes where there has not been room for all.
        libc::MADV_FREE if far.has_been_short() => far.drop_content(address, bytes),
        libc::MADV_NORMAL => far.note(address, bytes, Advice::Normal),
        libc::MADV_RANDOM => far.note(address, bytes, Advice::Random),
        libc::MADV_SEQUENTIAL | libc::MADV_WILLNEED => far.note(address, bytes, Advice::Ahead),
        libc::MADV_COLD | libc::MADV_PAGEOUT => far.note(address, bytes, Advice::Out),
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => far.populate(address, bytes),
        // The memory may stay as it is.
        libc::MADV_FREE
        | libc::MADV_DONTFORK
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP
        | libc::MADV_COLLAPSE => Ok(()),
        // Others promise something that is not kept, or would take the memory away from where it is paged.
        _ => Err(libc::EINVAL),
    };
    result.map_or_else(|errno| -i64::from(errno), |()| 0)
}

fn is_copied(address: usize, bytes: usize) -> bool {
    hold_back(|| maps().has_copied(&(address..address + bytes)))
}

impl Far {
    fn drop_content(&self, address: usize, bytes: usize) -> Result<(), c_int> {
        self.clear(address, bytes as u64);
        Ok(())
    }

    /// Whether memory has left because there was no room for it.
    fn has_been_short(&self) -> bool {
        self.region().far().stats().swept_pages > 0
    }

    fn note(&self, address: usize, bytes: usize, advice: Advice) -> Result<(), c_int> {
        let offset = self.offset(address).ok_or(libc::EINVAL)?;
        self.region().advise(offset, bytes as u64, advice).map_err(|_| libc::EINVAL)
    }

    /// Makes all pages of a range resident, one piece after the other, so that more of it than there is local memory
    /// leaves again behind it.
    fn populate(&self, address: usize, bytes: usize) -> Result<(), c_int> {
        let offset = self.offset(address).ok_or(libc::EINVAL)?;
        let end = offset + bytes as u64;
        (offset..end).step_by(POPULATED_BYTES).try_for_each(|at| {
            let piece = (end - at).min(POPULATED_BYTES as u64);
            let held = hold_back(|| self.region().hold(at, piece as usize).map(drop));
            held.map_err(|_| libc::EFAULT)
        })
    }
}
