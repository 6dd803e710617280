//! [`SharedStats`]: where the processes of a run keep their figures, in a file that all of them map.
//!
//! So they are known also of a process that is killed. Each process that uses far memory takes a place, which only it
//! writes; `yonder run` reads them all. A figure is one word, and each is right by itself.

use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use yonder_mapping::Mapping;

use crate::create_private;
use crate::record::monotonic_ns;

/// Processes of one run whose figures are kept.
pub const PROCESSES_MAX: u64 = 1023;
/// Bytes of a place. The first one has the number of places taken instead, and when the run began.
const PLACE_BYTES: u64 = 512;
/// Where the latter is.
const BEGAN_AT: u64 = 8;
/// Where it says how far the end of the program is, behind that.
const END_AT: u64 = 16;
/// The program has not ended, as far as it can say.
const RUNS: u64 = 0;
/// It waits at its end until its figures are told.
const ENDS: u64 = 1;
/// They are.
const MAY_END: u64 = 2;
/// They are, and it has to end with an error.
const HAS_FAILED: u64 = 3;
/// They are being told.
const IS_TOLD: u64 = 4;
/// Where it says which process tells them.
const HELPER_AT: u64 = 24;
/// Longest that the program waits once somebody has begun to tell.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
const FIGURES: usize = 14;
/// Words of a [`Space`], which stand behind the figures.
const SPACE_WORDS: usize = 5;
/// Words that say which process it is, behind those: its number, and in which namespace.
const PROCESS_WORDS: usize = 2;
/// Ranges of a process's memory that stand behind all of that, two words each.
pub const RANGES_MAX: usize = 16;
const WORDS: usize = FIGURES + SPACE_WORDS + PROCESS_WORDS + 2 * RANGES_MAX;
const _: () = assert!(WORDS * 8 <= PLACE_BYTES as usize);

/// What one process, or all of a run, have done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Processes that these are the figures of.
    pub processes: u64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Bytes read from the node.
    pub fetched_bytes: u64,
    /// Bytes that the node has acknowledged.
    pub written_bytes: u64,
    /// Most local memory that far pages took at a time; of several processes, of the one that took most.
    pub peak_local_bytes: u64,
    /// Time that threads have waited in major faults, in nanoseconds.
    pub waited_ns: u64,
    /// System calls on far memory that had to be sent back by the kernel first.
    pub trapped_calls: u64,
    /// System calls on far memory.
    pub far_calls: u64,
    /// Bytes that were not transferred because nothing lived in them.
    pub saved_bytes: u64,
    /// Most bytes of far memory in use at a time; of several processes, of the one that used most.
    pub peak_far_bytes: u64,
    /// Local memory that far pages took, over time: bytes times milliseconds.
    pub local_byte_ms: u64,
    /// CPU time of the programs' own work, without what faults and reclaim have taken, in nanoseconds.
    pub worked_ns: u64,
    /// How long all faults have held threads up, traps included, in nanoseconds.
    pub stalled_ns: u64,
}

impl Figures {
    fn words(&self) -> [u64; FIGURES] {
        [
            self.processes,
            self.major_faults,
            self.minor_faults,
            self.fetched_bytes,
            self.written_bytes,
            self.peak_local_bytes,
            self.waited_ns,
            self.trapped_calls,
            self.far_calls,
            self.saved_bytes,
            self.peak_far_bytes,
            self.local_byte_ms,
            self.worked_ns,
            self.stalled_ns,
        ]
    }

    fn from_words(words: [u64; FIGURES]) -> Self {
        let [
            processes,
            major_faults,
            minor_faults,
            fetched_bytes,
            written_bytes,
            peak_local_bytes,
            waited_ns,
            trapped_calls,
            far_calls,
            saved_bytes,
            peak_far_bytes,
            local_byte_ms,
            worked_ns,
            stalled_ns,
        ] = words;
        Self {
            processes,
            major_faults,
            minor_faults,
            fetched_bytes,
            written_bytes,
            peak_local_bytes,
            waited_ns,
            trapped_calls,
            far_calls,
            saved_bytes,
            peak_far_bytes,
            local_byte_ms,
            worked_ns,
            stalled_ns,
        }
    }

    /// The figures of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mine, theirs) = (self.words(), other.words());
        let mut sum = Self::from_words(std::array::from_fn(|index| mine[index] + theirs[index]));
        sum.peak_local_bytes = self.peak_local_bytes.max(other.peak_local_bytes);
        sum.peak_far_bytes = self.peak_far_bytes.max(other.peak_far_bytes);
        sum
    }
}

/// The address space on a node that a process has its far memory in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Number of the process.
    pub process: u32,
    /// In which namespace that is its number; see [`pid_namespace`].
    pub namespace: u64,
    /// Number of the address space.
    pub number: u32,
    /// Proof of the right to it; its upper half is never 0.
    pub capability: u128,
}

/// A process by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessId {
    /// The number.
    pub number: u32,
    /// In which namespace that is its number; see [`pid_namespace`].
    pub namespace: u64,
}

impl ProcessId {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self { number: std::process::id(), namespace: pid_namespace().unwrap_or(0) }
    }
}

/// A process whose memory is far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// In which namespace that is its number; see [`pid_namespace`].
    pub namespace: u64,
    /// Memory of it that is the system's own: local copies, buffers, and what stands for a node that is emulated.
    pub own: Vec<Range<u64>>,
}

/// The namespace that numbers of processes are of here; `None` if that cannot be known.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid").ok().map(|file| file.ino())
}

/// The file of a run.
pub struct SharedStats {
    file: Mapping,
}

impl SharedStats {
    /// Makes the file, for [`PROCESSES_MAX`] processes.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = create_private(path)?;
        // A file that has no room yet would end whoever touches it where the disk is full.
        file.write_all_at(&vec![0; ((PROCESSES_MAX + 1) * PLACE_BYTES) as usize], 0)?;
        let board = Self::map(&file)?;
        board.file.write(BEGAN_AT, &monotonic_ns().to_ne_bytes());
        Ok(board)
    }

    /// Opens the file that `yonder run` has made.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::map(&File::options().read(true).write(true).open(path)?)
    }

    fn map(file: &File) -> io::Result<Self> {
        let mapping = Mapping::shared(file.as_fd(), ((PROCESSES_MAX + 1) * PLACE_BYTES) as usize);
        Ok(Self { file: mapping.map_err(|error| io::Error::other(error.to_string()))? })
    }

    /// The figures of all processes.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let taken = self.word(0).min(PROCESSES_MAX);
        let of_place =
            |place| Figures::from_words(std::array::from_fn(|index| self.word(place * PLACE_BYTES + index as u64 * 8)));
        (1..=taken).map(of_place).fold(Figures::default(), |sum, figures| sum.and(&figures))
    }

    /// The address spaces that processes have told of.
    #[must_use]
    pub fn spaces(&self) -> Vec<Space> {
        let of_place = |place: u64| {
            let word = |index: usize| self.word(place * PLACE_BYTES + ((FIGURES + index) * 8) as u64);
            let capability = u128::from(word(4)) << 64 | u128::from(word(3));
            Space { process: word(0) as u32, namespace: word(1), number: word(2) as u32, capability }
        };
        let taken = self.word(0).min(PROCESSES_MAX);
        (1..=taken).map(of_place).filter(|space| space.capability >> 64 != 0).collect()
    }

    /// The processes whose memory is far.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let taken = self.word(0).min(PROCESSES_MAX);
        let of_place = |place: u64| {
            let word = |index: usize| self.word(place * PLACE_BYTES + ((FIGURES + SPACE_WORDS + index) * 8) as u64);
            let range = |index: usize| word(PROCESS_WORDS + 2 * index)..word(PROCESS_WORDS + 2 * index + 1);
            let own = (0..RANGES_MAX).map(range).filter(|range| !range.is_empty());
            Process { number: word(0) as u32, namespace: word(1), own: own.collect() }
        };
        (1..=taken).map(of_place).filter(|process| process.number != 0).collect()
    }

    /// A place for this process; `None` if all are taken, and then its figures are missing.
    #[must_use]
    pub fn take_slot(self) -> Option<ProcessSlot> {
        let number = self.file.update_u64(0, |taken| taken + 1) + 1;
        (number <= PROCESSES_MAX).then_some(ProcessSlot { board: self, number })
    }

    /// When the run began, see [`monotonic_ns`].
    #[must_use]
    pub fn began_ns(&self) -> u64 {
        self.word(BEGAN_AT)
    }

    /// The program is about to end by itself: waits, for this time at most until that is heard, until whoever looks at
    /// the run has told its figures. Whether it may end as it wanted to, and not with an error. Allocates nothing.
    #[must_use]
    pub fn end(&self, within: Duration) -> bool {
        let began = Instant::now();
        self.file.update_u64(END_AT, |end| if end == RUNS { ENDS } else { end });
        self.file.wake(END_AT);
        loop {
            let end = self.end_word();
            let within = if end == IS_TOLD { TOLD_WITHIN } else { within };
            match (end, within.checked_sub(began.elapsed())) {
                (ENDS | IS_TOLD, Some(left)) => self.file.wait_while(END_AT, end as u32, Some(left)),
                _ => return end != HAS_FAILED,
            }
        }
    }

    fn end_word(&self) -> u64 {
        self.file.update_u64(END_AT, |end| end)
    }

    /// The process that tells the figures: this one.
    pub fn is_helper(&self) {
        self.file.write(HELPER_AT, &u64::from(std::process::id()).to_ne_bytes());
    }

    /// The process that tells the figures, by its number where the program began.
    #[must_use]
    pub fn helper(&self) -> u32 {
        self.word(HELPER_AT) as u32
    }

    /// Waits until the program is about to end by itself. For ever, if it is killed.
    pub fn await_end(&self) {
        while self.end_word() == RUNS {
            self.file.wait_while(END_AT, RUNS as u32, None);
        }
        self.file.update_u64(END_AT, |end| if end == ENDS { IS_TOLD } else { end });
        self.file.wake(END_AT);
    }

    /// The figures are told, and the program may end; with an error, if it `has_failed`.
    pub fn let_end(&self, has_failed: bool) {
        self.file.update_u64(END_AT, |_| if has_failed { HAS_FAILED } else { MAY_END });
        self.file.wake(END_AT);
    }

    fn word(&self, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.file.read(offset, &mut word);
        u64::from_ne_bytes(word)
    }
}

/// Where one process keeps its figures.
pub struct ProcessSlot {
    board: SharedStats,
    number: u64,
}

impl ProcessSlot {
    /// Which of the run's places it is, from 1 on.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the run began, see [`monotonic_ns`].
    #[must_use]
    pub fn began_ns(&self) -> u64 {
        self.board.began_ns()
    }

    /// Tells of the address space of this process.
    pub fn tell_space(&self, space: Space) {
        let (upper, lower) = ((space.capability >> 64) as u64, space.capability as u64);
        let words = [space.process.into(), space.namespace, space.number.into(), lower, upper];
        // The upper half of the capability last: without it there is no address space.
        for (index, word) in words.into_iter().enumerate() {
            let at = self.number * PLACE_BYTES + ((FIGURES + index) * 8) as u64;
            self.board.file.write(at, &u64::to_ne_bytes(word));
        }
    }

    /// Tells which process this is, and which of its memory is the system's own: the largest of `own` that there is
    /// room for.
    pub fn tell_process(&self, own: impl Iterator<Item = Range<u64>>) {
        let mut own: Vec<Range<u64>> = own.collect();
        own.sort_by_key(|range| Reverse(range.end - range.start));
        own.resize(RANGES_MAX, 0..0);
        let ProcessId { number, namespace } = ProcessId::own();
        let process = [u64::from(number), namespace];
        // Which process it is last: before that nobody looks at the ranges.
        let ranges = own.iter().flat_map(|range| [range.start, range.end]).enumerate();
        let ranges = ranges.map(|(index, word)| (PROCESS_WORDS + index, word));
        for (index, word) in ranges.chain(process.into_iter().enumerate().rev()) {
            let at = self.number * PLACE_BYTES + ((FIGURES + SPACE_WORDS + index) * 8) as u64;
            self.board.file.write(at, &word.to_ne_bytes());
        }
    }

    /// Writes the figures of now.
    pub fn publish(&self, figures: &Figures) {
        for (index, word) in figures.words().iter().enumerate() {
            self.board.file.write(self.number * PLACE_BYTES + index as u64 * 8, &word.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_and_peaks_are_the_highest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = SharedStats::create(&path).unwrap();
        assert!(SharedStats::create(&path).is_err(), "a board of somebody else was taken");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "it says what opens address spaces");
        let places = [1, 2].map(|_| SharedStats::open(&path).unwrap().take_slot().unwrap());
        for (place, faults) in places.iter().zip([3, 4]) {
            place.publish(&Figures {
                processes: 1,
                major_faults: faults,
                peak_local_bytes: faults,
                ..Figures::default()
            });
        }
        let figures = board.figures();
        assert_eq!((figures.processes, figures.major_faults, figures.peak_local_bytes), (2, 7, 4));
    }

    #[test]
    fn address_spaces_are_those_that_were_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = SharedStats::create(&path).unwrap();
        let places = [1, 2, 3].map(|_| SharedStats::open(&path).unwrap().take_slot().unwrap());
        let spaces = [(&places[0], 7), (&places[2], 9)].map(|(place, number)| {
            let space = Space { process: u32::MAX, namespace: 3, number, capability: u128::MAX - 1 };
            place.tell_space(space);
            place.publish(&Figures { peak_far_bytes: u64::MAX, ..Figures::default() });
            space
        });
        assert_eq!(board.spaces(), spaces);
    }

    #[test]
    fn processes_tell_of_the_largest_ranges_that_are_not_the_programs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = SharedStats::create(&path).unwrap();
        let places = [1, 2].map(|_| SharedStats::open(&path).unwrap().take_slot().unwrap());
        places[1].publish(&Figures { peak_far_bytes: u64::MAX, ..Figures::default() });
        assert_eq!(board.processes(), []);
        let ranges = |count: u64| (1..=count).map(|number| number << 20..(number << 20) + number);
        places[1].tell_process(ranges(20));
        let told = board.processes();
        assert_eq!((told.len(), told[0].number), (1, std::process::id()));
        assert_eq!(told[0].own, ranges(20).rev().take(RANGES_MAX).collect::<Vec<_>>());
        places[1].tell_process(ranges(1));
        assert_eq!(board.processes()[0].own, ranges(1).collect::<Vec<_>>());
    }

    #[test]
    fn a_program_ends_when_its_figures_are_told() {
        const LONG: Duration = Duration::from_secs(60);
        for has_failed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("board");
            let board = SharedStats::create(&path).unwrap();
            let program = SharedStats::open(&path).unwrap();
            let began = Instant::now();
            assert!(program.end(Duration::from_millis(5)), "nobody tells it otherwise");
            assert!(began.elapsed() >= Duration::from_millis(5));
            std::thread::scope(|scope| {
                let ends = scope.spawn(|| program.end(LONG));
                board.await_end();
                board.let_end(has_failed);
                assert_eq!(ends.join().unwrap(), !has_failed);
            });
            assert_eq!(program.end(LONG), !has_failed, "it was told before");
        }
    }

    #[test]
    fn who_comes_too_late_has_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board");
        let board = SharedStats::create(&path).unwrap();
        board.file.update_u64(0, |_| PROCESSES_MAX - 1);
        assert!(SharedStats::open(&path).unwrap().take_slot().is_some());
        assert!(SharedStats::open(&path).unwrap().take_slot().is_none());
        assert_eq!(board.figures(), Figures::default());
    }
}
