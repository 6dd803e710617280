//! What the kernel is told of mappings: what is in large pages and in no core dump, and that many scattered runs of
//! pages are dropped, with one TLB flush.
//!
//! `process_madvise` takes a vector of ranges; kernels from 6.16 on flush once for the whole vector. Where the kernel
//! refuses the call for the own process, each run is dropped by itself.
//!
//! UNSAFETY: system calls on ranges inside a mapping this crate owns.

use std::sync::OnceLock;
use std::{io, ptr};

use yonder_units::{Narrow as _, PAGE_BYTES, Run};

use crate::{MapError, Mapping};

/// Runs handed to the kernel in one call: half of its limit, and 8 KiB of stack.
const RUNS_PER_CALL_MAX: usize = 512;
/// `PIDFD_SELF` of recent kernels: the calling process without a descriptor.
const PIDFD_SELF: libc::c_int = -10_000;

/// How runs are dropped on this kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropMethod {
    /// `process_madvise` on a vector of runs.
    Vectored(Descriptor),
    /// `madvise` on each run.
    PerRun,
}

/// What names the own process to `process_madvise`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor(libc::c_int);

/// The best way of this kernel, found once by trying it.
#[must_use]
pub fn drop_method() -> DropMethod {
    static METHOD: OnceLock<DropMethod> = OnceLock::new();
    *METHOD.get_or_init(|| {
        let Ok(scratch) = Mapping::anonymous(PAGE_BYTES) else { return DropMethod::PerRun };
        // Only for an older kernel, because a program that closes all that it does not know closes this one too.
        // SAFETY: pidfd_open takes two integers. The descriptor stays open for the life of the process.
        #[expect(clippy::cast_possible_truncation, reason = "a descriptor, or -1")]
        let open = || unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) } as libc::c_int;
        std::iter::once(PIDFD_SELF)
            .chain(std::iter::once_with(open))
            .map(|fd| DropMethod::Vectored(Descriptor(fd)))
            .find(|method| scratch.drop_runs_by(*method, &[Run { first_page: 0, pages: 1 }]).is_ok())
            .unwrap_or(DropMethod::PerRun)
    })
}

impl Mapping {
    /// Maps `bytes` of private zero memory, with huge pages where the kernel gives them: memory that stands in for a
    /// memory node's, which is read a page at a time at random and would otherwise miss the TLB each time. No core dump
    /// has it: it is as long as the node's memory, and stands for another machine's.
    pub fn huge(bytes: usize) -> Result<Self, MapError> {
        Self::map_anonymous(bytes)?.advised([libc::MADV_HUGEPAGE, libc::MADV_DONTDUMP])
    }

    pub(crate) fn advised<const N: usize>(self, advice: [libc::c_int; N]) -> Result<Self, MapError> {
        advice.into_iter().try_for_each(|advice| self.advise(advice)).map(|()| self)
    }

    /// Leaves the memory out when the process dumps its core.
    pub fn keep_out_of_core_dumps(&self) -> Result<(), MapError> {
        self.keep_part_out_of_core_dumps(0, self.len())
    }

    pub(crate) fn keep_part_out_of_core_dumps(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let start = self.checked(offset, bytes);
        // SAFETY: the range is in bounds, and the advice changes nothing that is in it.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTDUMP) } != 0 {
            return Err(MapError::last("madvise(MADV_DONTDUMP)", bytes));
        }
        Ok(())
    }

    /// Has the kernel map pages as if they were read. An error if it may not map all of them.
    pub fn populate_part(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let start = self.checked(offset, bytes);
        // SAFETY: the range is in bounds, and its content stays as it is.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_READ) } != 0 {
            return Err(MapError::last("madvise(MADV_POPULATE_READ)", bytes));
        }
        Ok(())
    }

    /// Unmaps the pages of `runs`: later touches are missing-page faults. Allocates nothing.
    pub fn drop_runs(&self, runs: &[Run]) -> Result<(), MapError> {
        self.drop_runs_by(drop_method(), runs)
    }

    /// As [`Mapping::drop_runs`], by a given method.
    pub fn drop_runs_by(&self, method: DropMethod, runs: &[Run]) -> Result<(), MapError> {
        match method {
            DropMethod::Vectored(descriptor) => {
                runs.chunks(RUNS_PER_CALL_MAX).try_for_each(|chunk| self.drop_vector(descriptor, chunk))
            }
            DropMethod::PerRun => runs.iter().try_for_each(|run| self.discard(offset(*run), bytes(*run))),
        }
    }

    fn drop_vector(&self, descriptor: Descriptor, runs: &[Run]) -> Result<(), MapError> {
        let mut vector = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; RUNS_PER_CALL_MAX];
        for (entry, run) in vector.iter_mut().zip(runs) {
            *entry = libc::iovec { iov_base: self.checked(offset(*run), bytes(*run)).cast(), iov_len: bytes(*run) };
        }
        let total: usize = runs.iter().copied().map(bytes).sum();
        let mut done = 0;
        while done < total {
            let rest = advance(&mut vector[..runs.len()], done);
            // SAFETY: every range was checked to lie in this mapping, and no Rust reference covers them.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    descriptor.0,
                    rest.as_ptr(),
                    rest.len(),
                    libc::MADV_DONTNEED,
                    0,
                )
            };
            match result {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 | 0 => return Err(MapError::last("process_madvise", total)),
                advised => done += advised.cast_unsigned().narrow_usize(),
            }
        }
        Ok(())
    }
}

/// The part of `vector` after its first `done` bytes. The kernel stops between ranges when it is interrupted.
fn advance(vector: &mut [libc::iovec], done: usize) -> &[libc::iovec] {
    let mut left = done;
    let skip = vector
        .iter()
        .take_while(|entry| {
            let whole = left >= entry.iov_len;
            if whole {
                left -= entry.iov_len
            };
            whole
        })
        .count();
    assert!(left == 0, "the kernel stopped inside a range");
    &vector[skip..]
}

fn offset(run: Run) -> u64 {
    u64::from(run.first_page) * PAGE_BYTES as u64
}

fn bytes(run: Run) -> usize {
    run.pages as usize * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn far_memory_its_frames_and_a_nodes_are_in_no_core_dump() {
        let file = crate::create_memfd(c"yonder-test", 4 * PAGE_BYTES).unwrap();
        let node = Mapping::shared(file.as_fd(), 4 * PAGE_BYTES).unwrap();
        assert!(is_dumped(&node));
        node.keep_out_of_core_dumps().unwrap();
        let client = Mapping::reserved(8 * PAGE_BYTES).unwrap();
        client.map_file(0, file.as_fd(), 0, 4 * PAGE_BYTES).unwrap();
        let [region, frames] = [Mapping::region, Mapping::anonymous].map(|map| map(4 * PAGE_BYTES).unwrap());
        for mapping in [Mapping::huge(4 * PAGE_BYTES).unwrap(), node, client, region, frames] {
            assert!(!is_dumped(&mapping));
        }
    }

    /// Whether a core dump has what is at the start of a mapping.
    fn is_dumped(mapping: &Mapping) -> bool {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let holds = |line: &&str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = ends.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
            matches!(ends, Some((Ok(start), Ok(end))) if (start..end).contains(&mapping.address()))
        };
        let mut lines = all.lines().skip_while(|line| !holds(line));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        flags.split_whitespace().all(|flag| flag != "dd")
    }

    #[test]
    fn both_methods_drop_exactly_the_runs() {
        for method in [drop_method(), DropMethod::PerRun] {
            let mapping = Mapping::anonymous(1200 * PAGE_BYTES).unwrap();
            mapping.populate().unwrap();
            let runs: Vec<Run> = (0..600).map(|run| Run { first_page: 2 * run, pages: 1 }).collect();
            mapping.drop_runs_by(method, &runs).unwrap();
            assert_eq!(mapping.resident_pages().unwrap(), 600, "{method:?}");
        }
    }
}
