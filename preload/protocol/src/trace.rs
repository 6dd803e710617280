//! [`Tracer`] and [`read_trace`]: which pages a process touched, in order, in a file.
//!
//! What is seen of a touch is its fault, so a trace has the touches of pages that were not mapped: with little local
//! memory nearly all that matters for more. What a policy would have made of the same touches can then be replayed.
//!
//! `word_log` has the file.

use std::io;
use std::path::{Path, PathBuf};

use yonder_paging::{FaultObserver, Needed, SeenFault};
use yonder_units::PageIndex;

use crate::word_log::{LogKind, WordLog};

/// Traces, which take 256 MiB at most.
static TRACE: LogKind = LogKind { magic: 0x0031_4352_544e_4f59, words_max: (1 << 25) - 2, name: "trace" };

/// Where a process writes what it touches.
pub struct Tracer {
    touches: WordLog,
}

impl Tracer {
    /// Makes the trace of process number `number` of a run, beside the others that are called after `stem`.
    pub fn create(stem: &Path, number: u64) -> io::Result<Self> {
        Ok(Self { touches: TRACE.create(&LogKind::path(stem, number))? })
    }

    #[inline]
    fn touch(&self, offset: u64) {
        // One more than the page, so that it is not 0.
        self.touches.add(u64::from(PageIndex::containing(offset).0) + 1);
    }
}

impl FaultObserver for Tracer {
    fn saw(&self, fault: &SeenFault) {
        self.touch(fault.offset);
    }

    fn brings(&self, offset: u64, _needed: Needed) {
        self.touch(offset);
    }
}

/// The traces of a run, by the numbers of its processes.
#[must_use]
pub fn traces(stem: &Path, processes: u64) -> Vec<PathBuf> {
    LogKind::of_run(stem, processes)
}

/// Gives back the room that a trace has not used, or all of it if it has nothing. How many touches it has. Its length
/// stays: a child may still have it mapped, and would be killed where its file has ended.
pub fn trim_trace(path: &Path) -> io::Result<u64> {
    TRACE.trim(path)
}

/// The pages of a trace that [`trim_trace`] has seen, in the order in which they were touched.
pub fn read_trace(path: &Path) -> io::Result<Vec<PageIndex>> {
    let page = |word: u64| u32::try_from(word - 1).map(PageIndex).map_err(io::Error::other);
    TRACE.read(path)?.into_iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_is_read_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("trace");
        let tracer = Tracer::create(&stem, 2).unwrap();
        assert!(Tracer::create(&stem, 2).is_err(), "a trace of somebody else was taken");
        let fault = |offset| SeenFault { offset, instruction: 1, began: 0, took: 1, needed: Needed::Fetch };
        tracer.saw(&fault(0x5fff));
        tracer.brings(0x3000, Needed::Fetch);
        tracer.saw(&fault(0));
        drop(Tracer::create(&stem, 3).unwrap());
        let paths = traces(&stem, 4);
        assert_eq!(paths.iter().map(|path| trim_trace(path).unwrap()).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(traces(&stem, 4), paths[..1], "an empty trace stays");
        assert_eq!(read_trace(&paths[0]).unwrap(), [5, 3, 0].map(PageIndex));
        // A child that goes on has its room, also behind what was there.
        (0..10_000).for_each(|_| tracer.brings(0x7000, Needed::NoFetch));
        assert_eq!(read_trace(&paths[0]).unwrap()[10_000..], [7; 3].map(PageIndex));
        std::fs::write(&stem, [0; 64]).unwrap();
        assert!(read_trace(&stem).is_err());
    }
}
