//! [`Recorder`] and [`Record`]: the faults of a process over time, by call site and by address, in a file.
//!
//! The process maps the file and counts in the fault path: a few additions, no lock, no allocation and no system call.
//! So the record is there also if the process is killed. Its pages are reserved first: a file that cannot grow would
//! end the process.
//!
//! A forked child counts in its parent's record: it is the same program. What a child executes has a record of its own.
//!
//! Layout, in words: a head, the tallies over time ([`TIME`]), the call sites, and major faults over time and address
//! ([`MAP_TIME`], [`MAP_BYTES`]).

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use yonder_mapping::Mapping;
use yonder_paging::{FaultObserver, Needed, SeenFault};

use crate::create_private;
use crate::modules::Modules;
use crate::scale::{self, Folded, Scale};
use crate::sites::{SITES, Sites, TALLY_WORDS, Tally, Words, add_tally, load_tally};

/// Processes of one run that have a record.
pub const RECORDS_MAX: u64 = 64;
/// Tallies over time: 512 of 4 ms, then coarser; two months.
const TIME: Scale = Scale::new(22, 9, 21);
/// Major faults over time: 128 of 17 ms, then coarser; half an hour.
const MAP_TIME: Scale = Scale::new(24, 7, 10);
/// Major faults over the far memory: 64 of 256 KiB, then coarser; 64 GiB.
const MAP_BYTES: Scale = Scale::new(18, 6, 12);

/// Slots that the time of one fault is spread over; what is left is counted in the last.
const PIECES_MAX: usize = 64;

/// Says that the file is a record of this layout.
const MAGIC: u64 = 0x3152_444e_4f59;
const MAGIC_AT: usize = 0;
/// What has to be added to the process's clock to have the time since the run began.
const CLOCK_AT: usize = 1;
const TIME_AT: usize = 8;
const TABLE: Sites<SITES> = Sites { first: TIME_AT + TIME.slots() * TALLY_WORDS };
const MAP_AT: usize = TABLE.first + Sites::<SITES>::WORDS;
const WORDS: usize = MAP_AT + MAP_TIME.slots() * MAP_BYTES.slots();
const BYTES: usize = (WORDS * 8).next_multiple_of(4096);

struct MappedWords(Mapping);

impl Words for MappedWords {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.0.load_u64(index as u64 * 8)
    }

    #[inline]
    fn add(&self, index: usize, count: u64) {
        self.0.add_u64(index as u64 * 8, count);
    }

    fn claim(&self, index: usize, value: u64) -> u64 {
        self.0.update_u64(index as u64 * 8, |word| if word == 0 { value } else { word })
    }
}

/// Where a process counts its faults.
pub struct Recorder {
    words: MappedWords,
    clock: u64,
}

impl Recorder {
    /// Makes the record of the process with this number in the run's folder. The run began at `began_ns`, see
    /// [`monotonic_ns`].
    pub fn create(folder: &Path, number: u64, began_ns: u64) -> io::Result<Self> {
        if number > RECORDS_MAX {
            return Err(io::Error::other("there are enough records"));
        }
        let file = create_private(&record_path(folder, number))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64)?;
        let words = MappedWords(map(&file)?);
        // Both are read once, so the difference is off by the moment between them.
        let clock = monotonic_ns().wrapping_sub(began_ns).wrapping_sub(yonder_clock::now());
        words.add(CLOCK_AT, clock);
        words.add(MAGIC_AT, MAGIC);
        Ok(Self { words, clock })
    }

    /// How many call sites there are by now.
    #[must_use]
    pub fn sites(&self) -> u64 {
        TABLE.taken(&self.words)
    }

    /// The addresses of all call sites by now.
    #[must_use]
    pub fn addresses(&self) -> Vec<u64> {
        TABLE.list(&self.words).into_iter().map(|(address, _)| address).collect()
    }
}

impl Recorder {
    /// Counts a fault when it began, and its time when that was.
    #[inline]
    fn count_over_time(&self, since: u64, mut tally: Tally) {
        let (mut at, mut left) = (since, tally.waited_ns);
        for _ in 1..PIECES_MAX {
            let room = TIME.room(at);
            if left <= room {
                break;
            }
            tally.waited_ns = room;
            add_tally(&self.words, TIME_AT + TIME.slot(at) * TALLY_WORDS, &tally);
            tally = Tally::default();
            (at, left) = (at + room, left - room);
        }
        tally.waited_ns = left;
        add_tally(&self.words, TIME_AT + TIME.slot(at) * TALLY_WORDS, &tally);
    }
}

impl FaultObserver for Recorder {
    fn saw(&self, fault: &SeenFault) {
        let since = fault.began.wrapping_add(self.clock);
        let major_faults = u64::from(fault.needed == Needed::Fetch);
        let tally = Tally { major_faults, minor_faults: 1 - major_faults, waited_ns: fault.took };
        self.count_over_time(since, tally);
        TABLE.count(&self.words, fault.instruction as u64, &tally);
        if major_faults > 0 {
            let row = MAP_TIME.slot(since) * MAP_BYTES.slots();
            self.words.add(MAP_AT + row + MAP_BYTES.slot(fault.offset), 1);
        }
    }
}

/// What was recorded of a process.
#[derive(Clone, Debug)]
pub struct Record {
    /// The process, and where its code is.
    pub modules: Modules,
    /// Faults by the address of the instruction.
    pub sites: Vec<(u64, Tally)>,
    /// Faults of instructions for which the table had no room.
    pub others: Tally,
    /// Faults over time, by slots of [`TIME`].
    time: Vec<Tally>,
    /// Major faults, by slots of [`MAP_TIME`] and [`MAP_BYTES`].
    map: Vec<Vec<u64>>,
}

impl Record {
    /// The records of a folder, in the order in which processes began to use far memory.
    pub fn read_all(folder: &Path) -> io::Result<Vec<Self>> {
        let numbers = (1..=RECORDS_MAX).filter(|number| record_path(folder, *number).exists());
        let records = numbers.map(|number| Self::read(folder, number)).collect::<io::Result<Vec<_>>>()?;
        Ok(records.into_iter().flatten().collect())
    }

    /// `None` if the process had not got as far as to its first fault.
    fn read(folder: &Path, number: u64) -> io::Result<Option<Self>> {
        let file = File::options().read(true).write(true).open(record_path(folder, number))?;
        if file.metadata()?.len() < BYTES as u64 {
            return Ok(None);
        }
        let words = MappedWords(map(&file)?);
        if words.load(MAGIC_AT) != MAGIC {
            return Ok(None);
        }
        let map_row = |row: usize| {
            let cells = MAP_AT + row * MAP_BYTES.slots();
            (cells..cells + MAP_BYTES.slots()).map(|cell| words.load(cell)).collect()
        };
        Ok(Some(Self {
            modules: Modules::read(folder, number),
            sites: TABLE.list(&words),
            others: TABLE.others(&words),
            time: (0..TIME.slots()).map(|slot| load_tally(&words, TIME_AT + slot * TALLY_WORDS)).collect(),
            map: (0..MAP_TIME.slots()).map(map_row).collect(),
        }))
    }

    /// All faults.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.time.iter().copied().sum()
    }

    /// Faults of all `records` over the time since the run began, in nanoseconds.
    #[must_use]
    pub fn over_time(records: &[Self]) -> Folded<Tally> {
        let sums: Vec<Tally> =
            (0..TIME.slots()).map(|slot| records.iter().map(|record| record.time[slot]).sum()).collect();
        TIME.fold(&sums, |sum, tally| *sum += *tally)
    }

    /// Major faults over the time since the run began, and over the far memory.
    #[must_use]
    pub fn map(&self) -> FaultMap {
        let mut of_all_times = vec![0; MAP_BYTES.slots()];
        self.map.iter().for_each(|row| add_row(&mut of_all_times, row));
        let used = scale::used(&of_all_times);
        let none = vec![0; MAP_BYTES.slots()];
        let times: Vec<usize> = (0..MAP_TIME.slots()).filter(|time| self.map[*time] != none).collect();
        let times_used = times.last().map_or(0, |last| last + 1);
        let Folded { width: time_ns, slots } = MAP_TIME.fold_first(times_used, &self.map, |sum: &mut Vec<u64>, row| {
            sum.resize(row.len(), 0);
            add_row(sum, row);
        });
        let fold = |row: &Vec<u64>| MAP_BYTES.fold_first(used, row, |sum, count| *sum += count);
        let bytes = fold(&none).width;
        let faults = slots.iter().map(|row| if row.is_empty() { fold(&none) } else { fold(row) }.slots).collect();
        FaultMap { time_ns, bytes, faults }
    }
}

/// Major faults over time and far memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultMap {
    /// How long each time is, in nanoseconds.
    pub time_ns: u64,
    /// How many bytes each part of the far memory has.
    pub bytes: u64,
    /// Faults of each part of the far memory, for each time since the run began.
    pub faults: Vec<Vec<u64>>,
}

fn add_row(sum: &mut [u64], row: &[u64]) {
    sum.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
}

/// The time of the clock that all processes have.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn record_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("record-{number}"))
}

fn map(file: &File) -> io::Result<Mapping> {
    Mapping::shared(file.as_fd(), BYTES).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn fault(recorder: &Recorder, instruction: usize, offset: u64, at_ms: u64, needed: Needed) {
        let began = (at_ms * MS).wrapping_sub(recorder.clock);
        recorder.saw(&SeenFault { offset, instruction, began, took: 1000, needed });
    }

    #[test]
    fn what_is_recorded_is_read_also_while_others_record() {
        let folder = tempfile::tempdir().unwrap();
        let recorders = [1, 2].map(|number| Recorder::create(folder.path(), number, monotonic_ns()).unwrap());
        assert!(Recorder::create(folder.path(), 2, 0).is_err(), "a record of somebody else was taken");
        assert!(Recorder::create(folder.path(), RECORDS_MAX + 1, 0).is_err());
        for number in 0..100 {
            fault(&recorders[0], 0x1000, number << 20, 10 * number, Needed::Fetch);
            fault(&recorders[1], 0x2000, 0, 10 * number, Needed::NoFetch);
        }
        fault(&recorders[0], 0x3000, 99 << 20, 999, Needed::NoFetch);
        let records = Record::read_all(folder.path()).unwrap();
        let tally = |major_faults, minor_faults| Tally {
            major_faults,
            minor_faults,
            waited_ns: 1000 * (major_faults + minor_faults),
        };
        let mut sites = records[0].sites.clone();
        sites.sort_by_key(|(address, _)| *address);
        assert_eq!(sites, [(0x1000, tally(100, 0)), (0x3000, tally(0, 1))]);
        assert_eq!(records[1].sites, [(0x2000, tally(0, 100))]);
        assert_eq!((recorders[0].sites(), recorders[1].addresses()), (2, vec![0x2000]));
        assert_eq!((records[0].total(), records[1].others), (tally(100, 1), Tally::default()));
        let Folded { width, slots } = Record::over_time(&records);
        assert_eq!((width, slots.iter().copied().sum()), (1 << 22, tally(100, 101)));
        assert_eq!(slots[0], tally(1, 1), "the first four milliseconds");
        let map = records[0].map();
        assert_eq!((map.time_ns, map.bytes), (1 << 24, 2 << 20));
        assert!(map.faults.iter().all(|row| row.len() == 50), "a part of the memory is missing");
        assert_eq!(map.faults.iter().flatten().sum::<u64>(), 100);
        let diagonal = map.faults.iter().enumerate().all(|(time, row)| {
            row.iter().enumerate().all(|(part, count)| *count == 0 || (time * 17).abs_diff(part * 20) < 40)
        });
        assert!(diagonal, "{map:?}");
        assert_eq!(records[1].map().faults, [] as [Vec<u64>; 0]);
    }

    #[test]
    fn a_long_fault_waits_when_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path(), 1, monotonic_ns()).unwrap();
        let (slot, began) = (1u64 << 22, (1u64 << 21).wrapping_sub(recorder.clock));
        let long = SeenFault { offset: 0, instruction: 1, began, took: 3 * slot, needed: Needed::Fetch };
        recorder.saw(&long);
        let time = Record::over_time(&Record::read_all(folder.path()).unwrap());
        let waited: Vec<u64> = time.slots.iter().map(|tally| 2 * tally.waited_ns / slot).collect();
        assert_eq!((waited, time.slots[0].major_faults), (vec![1, 2, 2, 1], 1));
        // One that lasts for as long as there are slots and more is counted once, and its time is whole.
        recorder.saw(&SeenFault { took: 1 << 50, ..long });
        let record = &Record::read_all(folder.path()).unwrap()[0];
        let whole = Tally { major_faults: 2, minor_faults: 0, waited_ns: 3 * slot + (1 << 50) };
        assert_eq!((record.total(), record.sites[0].1), (whole, whole));
    }

    #[test]
    fn long_runs_are_coarser_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path(), 1, monotonic_ns()).unwrap();
        for seconds in 0..10_000 {
            fault(&recorder, 1 + seconds as usize, seconds << 22, seconds * 1000, Needed::Fetch);
        }
        let records = Record::read_all(folder.path()).unwrap();
        let sites: Tally = records[0].sites.iter().map(|(_, tally)| *tally).sum();
        assert!(records[0].others.major_faults > 0 && sites.major_faults > 4000);
        assert_eq!(sites.major_faults + records[0].others.major_faults, 10_000);
        let Folded { width, slots } = Record::over_time(&records);
        assert!((256..=512).contains(&slots.len()) && width * slots.len() as u64 >= 9_999_000 * MS, "{}", slots.len());
        assert_eq!(slots.iter().map(|tally| tally.major_faults).sum::<u64>(), 10_000);
        let map = records[0].map();
        assert!(map.faults.len() <= 128 && map.faults[0].len() <= 64);
        assert_eq!(map.faults.iter().flatten().sum::<u64>(), 10_000);
    }

    #[test]
    fn a_process_that_was_killed_before_its_record_was_whole_has_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("record-1"), "").unwrap();
        std::fs::write(folder.path().join("record-2"), vec![0; BYTES]).unwrap();
        assert!(Record::read_all(folder.path()).unwrap().is_empty());
    }
}
