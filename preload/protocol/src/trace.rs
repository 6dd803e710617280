//! [`Tracer`] and [`read_trace`]: which pages a process touched, in order, in a file.
//!
//! What is seen of a touch is its fault, so a trace has the touches of pages that were not mapped: with little local
//! memory nearly all that matters for more. What a policy would have made of the same touches can then be replayed.
//!
//! As a record, the file is mapped, and its pages are reserved first: a touch costs two stores in the fault path, and
//! the trace is there if the process is killed. Forked children add to their parent's. A trace that is full ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use yonder_mapping::Mapping;
use yonder_paging::{FaultObserver, SeenFault};
use yonder_units::{PAGE_BYTES, PageIndex};

/// Says that the file is a trace of this layout.
const MAGIC: u64 = 0x0031_4352_544e_4f59;
const MAGIC_AT: u64 = 0;
/// How many touches were claimed.
const COUNT_AT: u64 = 8;
const TOUCHES_AT: u64 = 16;
const TOUCH_BYTES: u64 = 8;
/// Touches that one trace can have, which take 256 MiB.
const TRACE_TOUCHES_MAX: u64 = (1 << 25) - 2;
#[expect(clippy::cast_possible_truncation, reason = "it is 256 MiB")]
const BYTES: usize = (TOUCHES_AT + TRACE_TOUCHES_MAX * TOUCH_BYTES) as usize;

/// Where a process writes what it touches.
pub struct Tracer {
    words: Mapping,
}

impl Tracer {
    /// Makes the trace of process number `number` of a run, beside the others that are called after `stem`.
    pub fn create(stem: &Path, number: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(trace_path(stem, number))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64)?;
        let words = map(&file)?;
        words.add_u64(MAGIC_AT, MAGIC);
        Ok(Self { words })
    }

    #[inline]
    fn touch(&self, offset: u64) {
        let index = self.words.update_u64(COUNT_AT, |count| (count + 1).min(TRACE_TOUCHES_MAX));
        if index < TRACE_TOUCHES_MAX {
            // One more than the page, so that what was claimed and not written is known.
            self.words.add_u64(TOUCHES_AT + index * TOUCH_BYTES, u64::from(PageIndex::containing(offset).0) + 1);
        }
    }
}

impl FaultObserver for Tracer {
    fn saw(&self, fault: &SeenFault) {
        self.touch(fault.offset);
    }

    fn brings(&self, offset: u64) {
        self.touch(offset);
    }
}

/// The traces of a run, by the numbers of its processes.
#[must_use]
pub fn traces(stem: &Path, processes: u64) -> Vec<PathBuf> {
    (1..=processes).map(|number| trace_path(stem, number)).filter(|path| path.exists()).collect()
}

/// Gives back the room that a trace has not used, or all of it if it has nothing. How many touches it has. Its length
/// stays: a child may still have it mapped, and would be killed where its file has ended.
pub fn trim_trace(path: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    let count = map(&file)?.load_u64(COUNT_AT);
    if count == 0 {
        std::fs::remove_file(path)?;
    } else {
        let end = (TOUCHES_AT + count * TOUCH_BYTES).next_multiple_of(PAGE_BYTES as u64);
        // What a file system without holes keeps is only room.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&file, hole, end, (BYTES as u64).saturating_sub(end));
    }
    Ok(count)
}

/// The pages of a trace that [`trim_trace`] has seen, in the order in which they were touched.
pub fn read_trace(path: &Path) -> io::Result<Vec<PageIndex>> {
    let mut file = File::open(path)?;
    let mut words = |count: u64| {
        let mut bytes = Vec::new();
        (&mut file).take(count * 8).read_to_end(&mut bytes)?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        Ok::<Vec<u64>, io::Error>(words.collect())
    };
    let [MAGIC, count] = words(2)?[..] else {
        return Err(io::Error::other(format!("{} is no trace", path.display())));
    };
    // What was claimed and not written is nothing.
    let touches = words(count.min(TRACE_TOUCHES_MAX))?.into_iter().filter_map(|word| word.checked_sub(1));
    touches.map(|page| u32::try_from(page).map(PageIndex).map_err(io::Error::other)).collect()
}

fn trace_path(stem: &Path, number: u64) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(format!("-{number}"));
    path.into()
}

fn map(file: &File) -> io::Result<Mapping> {
    if file.metadata()?.len() < BYTES as u64 {
        return Err(io::Error::other("a trace is not whole"));
    }
    Mapping::shared(file.as_fd(), BYTES).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use yonder_paging::Needed;

    use super::*;

    #[test]
    fn what_was_touched_is_read_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("trace");
        let tracer = Tracer::create(&stem, 2).unwrap();
        assert!(Tracer::create(&stem, 2).is_err(), "a trace of somebody else was taken");
        let fault = |offset| SeenFault { offset, instruction: 1, began: 0, took: 1, needed: Needed::Fetch };
        tracer.saw(&fault(0x5fff));
        tracer.brings(0x3000);
        tracer.saw(&fault(0));
        drop(Tracer::create(&stem, 3).unwrap());
        let paths = traces(&stem, 4);
        assert_eq!(paths.iter().map(|path| trim_trace(path).unwrap()).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(traces(&stem, 4), paths[..1], "an empty trace stays");
        assert_eq!(read_trace(&paths[0]).unwrap(), [5, 3, 0].map(PageIndex));
        // A child that goes on has its room, also behind what was there.
        (0..10_000).for_each(|_| tracer.brings(0x7000));
        assert_eq!(read_trace(&paths[0]).unwrap()[10_000..], [7; 3].map(PageIndex));
        std::fs::write(&stem, [0; 64]).unwrap();
        assert!(read_trace(&stem).is_err());
    }
}
