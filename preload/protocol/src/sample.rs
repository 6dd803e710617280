//! [`Sampler`] and [`read_sample`]: which pages of a sample a process touched, in order, in a file.
//!
//! What a sample is says `core/sizing`; `word_log` has the file. Who watches takes what was touched away again with
//! [`Sampler::touched_since`], and makes the sample coarser if there is too much to see.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use yonder_paging::{FaultObserver, Needed, SeenFault};
use yonder_sizing::{Coarseness, Sample, Seen, Touch, Weight, is_sampled};
use yonder_units::PageIndex;

use crate::word_log::{LogKind, WordLog};

/// Touches that a sample has room for. What is touched then is not in it.
pub const SAMPLE_TOUCHES_MAX: u64 = (1 << 23) - 2;
/// Samples, which take 64 MiB at most.
static SAMPLE: LogKind = LogKind { magic: 0x0031_4c50_4d53_4e59, words_max: SAMPLE_TOUCHES_MAX, name: "sample" };

/// Where a process writes what it touches of the sample.
pub struct Sampler {
    seen: WordLog,
    coarseness: AtomicU8,
}

impl Sampler {
    /// Makes the sample of process number `number` of a run, beside the others that are called after `stem`.
    pub fn create(stem: &Path, number: u64) -> io::Result<Self> {
        Ok(Self { seen: SAMPLE.create(&LogKind::path(stem, number))?, coarseness: AtomicU8::new(0) })
    }

    /// How coarse the sample is.
    #[must_use]
    pub fn coarseness(&self) -> Coarseness {
        Coarseness(self.coarseness.load(Ordering::Relaxed))
    }

    /// From now on the sample is this coarse, which is coarser than before.
    pub fn set_coarseness(&self, coarseness: Coarseness) {
        self.coarseness.store(coarseness.0, Ordering::Relaxed);
        self.seen.add(Seen::Coarser(coarseness).word());
    }

    /// What was seen since this was last called stands for so many times as much.
    pub fn weigh(&self, weight: Weight) {
        self.seen.add(Seen::Counts(weight).word());
    }

    /// How much was seen.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seen.count()
    }

    /// What was seen from number `first` to number `end`.
    pub fn touched(&self, first: u64, end: u64) -> impl Iterator<Item = Touch> + '_ {
        (first..end).filter_map(|index| match Seen::of_word(self.seen.word(index)) {
            Some(Seen::Touch(touch)) => Some(touch),
            _ => None,
        })
    }

    #[inline]
    fn touch(&self, offset: u64, is_first: bool) {
        let page = PageIndex::containing(offset);
        if is_sampled(page, self.coarseness()) {
            self.seen.add(Seen::Touch(Touch { page, is_first }).word());
        }
    }
}

impl FaultObserver for Sampler {
    fn saw(&self, fault: &SeenFault) {
        self.touch(fault.offset, fault.needed == Needed::Nothing);
    }

    fn brings(&self, offset: u64, needed: Needed) {
        self.touch(offset, needed == Needed::Nothing);
    }
}

/// The samples of a run, by the numbers of its processes.
#[must_use]
pub fn samples(stem: &Path, processes: u64) -> Vec<PathBuf> {
    LogKind::of_run(stem, processes)
}

/// A sample that was written.
pub fn read_sample(path: &Path) -> io::Result<Sample> {
    Ok(Sample::new(SAMPLE.read(path)?.into_iter().filter_map(Seen::of_word).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_touched_of_the_sample_is_read_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let stem = folder.path().join("sample");
        let sampler = Sampler::create(&stem, 1).unwrap();
        let fault = |page: u32, needed| SeenFault {
            offset: PageIndex(page).offset() + 9,
            instruction: 1,
            began: 0,
            took: 1,
            needed,
        };
        (0..4096).for_each(|page| sampler.saw(&fault(page, Needed::Nothing)));
        (0..4096).for_each(|page| sampler.saw(&fault(page, Needed::NoFetch)));
        let in_sample: Vec<u32> = (0..4096).filter(|page| is_sampled(PageIndex(*page), Coarseness(0))).collect();
        assert_eq!((in_sample.len(), sampler.count()), (256, 512));
        let pages = |first, end| sampler.touched(first, end).map(|touch| touch.page.0).collect::<Vec<_>>();
        assert_eq!(pages(0, 256), in_sample);
        assert!(sampler.touched(250, 262).map(|touch| touch.is_first).eq((250..262).map(|at| at < 256)));
        sampler.set_coarseness(Coarseness(1));
        (0..4096).for_each(|page| sampler.saw(&fault(page, Needed::NoFetch)));
        assert_eq!(sampler.count(), 513 + 128);
        assert_eq!(samples(&stem, 4).len(), 1);
        let sample = read_sample(&samples(&stem, 4)[0]).unwrap();
        assert_eq!((sample.coarseness(), sample.seen_again()), (Coarseness(1), 256 + 128));
        std::fs::write(&stem, [0; 64]).unwrap();
        assert!(read_sample(&stem).unwrap_err().to_string().ends_with("is no sample"));
    }
}
