//! How much memory of a program the limit does not cover: what it shares, the code that it makes, and what cannot be
//! far or was there before its memory was.
//!
//! It is looked at from outside, in the process file system, so that a program that is killed, or whose memory never
//! became far, is seen as well. Not counted are pages of files, which the kernel can drop, and what the system itself
//! has in a process.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use yonder::units::{PAGE_BYTES, format_bytes};
use yonder_preload_protocol::{Process, SharedStats, WINDOW, pid_namespace};

/// One of how many parts of the time is spent on looking.
const SHARE: u32 = 50;
/// Longest pause between two looks, however long one takes.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Entries of a page map that are read at a time.
const ENTRIES: usize = 64 << 10;
/// Bit of an entry whose page is in memory.
const IS_PRESENT: u64 = 1 << 63;
/// Bit of one whose page is a file's, or shared memory.
const IS_SHARED: u64 = 1 << 61;
/// Addresses that a mapping may have to be looked at: larger ones are tables of sanitizers, of which little is used.
const MAPPING_BYTES_MAX: u64 = 1 << 38;

/// Bytes in memory that the limit does not cover.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct Uncovered {
    /// All of them.
    #[serde(rename = "peak_uncovered_bytes")]
    pub(crate) bytes: u64,
    /// Those of them that are in mappings that can be shared.
    #[serde(rename = "peak_uncovered_shared_bytes")]
    pub(crate) shared_bytes: u64,
    /// Those in private mappings whose content can be run.
    #[serde(rename = "peak_uncovered_code_bytes")]
    pub(crate) code_bytes: u64,
}

impl std::fmt::Display for Uncovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", format_bytes(self.bytes))?;
        let parts = [(self.shared_bytes, "shared memory"), (self.code_bytes, "code")];
        let named: Vec<_> = parts.iter().filter(|(bytes, _)| *bytes * 8 >= self.bytes.max(1)).collect();
        for (index, (bytes, what)) in named.iter().enumerate() {
            write!(f, "{}{} {what}", if index == 0 { ", of that " } else { " and " }, format_bytes(*bytes))?;
        }
        Ok(())
    }
}

/// Looks at the processes of a run from time to time.
pub(crate) struct Watch {
    /// None where the process file system has numbers of another namespace.
    root: Option<u32>,
    namespace: Option<u64>,
    most: Uncovered,
    next: Instant,
}

impl Watch {
    /// Of the process `root` and all that it starts.
    pub(crate) fn of(root: u32) -> Self {
        let this = std::fs::read_link("/proc/self").ok();
        let root = (this == Some(std::process::id().to_string().into())).then_some(root);
        Self { root, namespace: pid_namespace(), most: Uncovered::default(), next: Instant::now() }
    }

    /// Looks, unless that was done a moment ago; the same as [`Watch::most`] then.
    pub(crate) fn look(&mut self, board: &SharedStats) -> Uncovered {
        let began = Instant::now();
        if let Some(root) = self.root.filter(|_| began >= self.next) {
            let known = self.known(board);
            for (process, own) in family(root, &known) {
                let is_limited = known.iter().any(|known| known.number == process);
                let seen = uncovered(process, own, is_limited);
                if seen.bytes > self.most.bytes {
                    self.most = seen;
                }
            }
            self.next = Instant::now() + (began.elapsed() * SHARE).min(PAUSE_MAX);
        }
        self.most
    }

    /// The processes whose memory is far, by numbers that are theirs here.
    fn known(&self, board: &SharedStats) -> Vec<Process> {
        board.processes().into_iter().filter(|known| Some(known.namespace) == self.namespace).collect()
    }

    /// Sends a signal to all of the processes.
    pub(crate) fn signal(&self, signal: Signal) {
        let processes = self.root.map(|root| family(root, &[])).unwrap_or_default();
        for pid in processes.iter().filter_map(|(process, _)| Pid::from_raw(i32::try_from(*process).ok()?)) {
            // One that has just ended takes none.
            let _ = kill_process(pid, signal);
        }
    }

    /// The most that one process has had so far.
    pub(crate) fn most(&self) -> Uncovered {
        self.most
    }
}

/// A process and all that it has started and that still have it as an ancestor, each with the memory that is the
/// system's own: a forked one has that of its parent.
fn family(root: u32, known: &[Process]) -> Vec<(u32, &[Range<u64>])> {
    let own = |process: u32| known.iter().find(|known| known.number == process).map(|known| &*known.own);
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc").into_iter().flatten().filter_map(parent).collect();
    let mut found = vec![(root, own(root).unwrap_or_default())];
    let mut next = 0;
    while let Some(&(parent, inherited)) = found.get(next) {
        // The helper that looks is one.
        let children = parents.iter().filter(|(child, of)| *of == parent && *child != std::process::id());
        found.extend(children.map(|(child, _)| (*child, own(*child).unwrap_or(inherited))));
        next += 1;
    }
    found
}

/// A process and its parent.
fn parent(entry: std::io::Result<std::fs::DirEntry>) -> Option<(u32, u32)> {
    let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have anything in it: the state, and the parent.
    let parent = text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((process, parent))
}

/// What a process has now; nothing, if it is gone or may not be looked at. Far memory is not, if it `is_limited`: in a
/// forked child it is not.
fn uncovered(process: u32, own: &[Range<u64>], is_limited: bool) -> Uncovered {
    let mut found = Uncovered::default();
    let files = (File::open(format!("/proc/{process}/maps")), File::open(format!("/proc/{process}/pagemap")));
    let (Ok(maps), Ok(pages)) = files else { return found };
    let far = is_limited.then_some(WINDOW.start as u64..WINDOW.end as u64);
    let cut: Vec<Range<u64>> = own.iter().cloned().chain(far).collect();
    for line in BufReader::new(maps).lines().map_while(Result::ok) {
        let Some(mapping) = MemoryMapping::parse(&line) else { continue };
        let parts = mapping.without(&cut).into_iter();
        let bytes: u64 = parts.map(|part| resident_bytes(&pages, part, mapping.kind)).sum();
        found.bytes += bytes;
        match mapping.kind {
            Kind::Shared => found.shared_bytes += bytes,
            Kind::Code => found.code_bytes += bytes,
            Kind::Data | Kind::Copies => {}
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Shared,
    Code,
    Data,
    /// Of pages of a file, which are the process's own once it has written to them.
    Copies,
}

/// A mapping that may have pages which are in no file.
#[derive(PartialEq, Eq, Debug)]
struct MemoryMapping {
    range: Range<u64>,
    kind: Kind,
}

impl MemoryMapping {
    /// By a line of the process file system; `None` if its pages are of a file, or nobody can touch them now.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let (access, inode, name) = (words.next()?, words.nth(2)?, words.next().unwrap_or_default());
        let is_memory = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"].iter().any(|start| name.starts_with(start));
        let is_the_kernels = ["[vvar", "[vdso", "[vsyscall"].iter().any(|start| name.starts_with(start));
        let kind = match (inode, access.as_bytes()) {
            _ if is_memory => Kind::Shared,
            ("0", [_, _, b'x', _]) => Kind::Code,
            ("0", _) => Kind::Data,
            (_, [_, b'w', _, b'p']) => Kind::Copies,
            _ => return None,
        };
        let can_be_touched = !access.starts_with("---") && range.end - range.start <= MAPPING_BYTES_MAX;
        (can_be_touched && !is_the_kernels).then_some(Self { range, kind })
    }

    /// The parts of it that are in none of `cuts`.
    fn without(&self, cuts: &[Range<u64>]) -> Vec<Range<u64>> {
        cuts.iter().fold(vec![self.range.clone()], |parts, cut| {
            let around = |part: Range<u64>| {
                [part.start..part.end.min(cut.start.max(part.start)), part.start.max(cut.end.min(part.end))..part.end]
            };
            let overlaps = |part: &Range<u64>| part.start < cut.end && cut.start < part.end;
            let (cut_up, whole): (Vec<_>, Vec<_>) = parts.into_iter().partition(overlaps);
            whole.into_iter().chain(cut_up.into_iter().flat_map(around)).filter(|part| !part.is_empty()).collect()
        })
    }
}

/// How much of a range is in memory, by the page map of its process; of copies, without the pages that are the file's.
fn resident_bytes(pages: &File, range: Range<u64>, kind: Kind) -> u64 {
    let looked_at = if kind == Kind::Copies { IS_PRESENT | IS_SHARED } else { IS_PRESENT };
    const ENTRY: u64 = size_of::<u64>() as u64;
    let page_bytes = PAGE_BYTES as u64;
    let (mut page, end) = (range.start / page_bytes, range.end.div_ceil(page_bytes));
    let mut entries = vec![0; ENTRIES.min((end - page) as usize) * ENTRY as usize];
    let mut present = 0;
    while page < end {
        let wanted = ((end - page).min(ENTRIES as u64) * ENTRY) as usize;
        let read = pages.read_at(&mut entries[..wanted], page * ENTRY).unwrap_or(0) / ENTRY as usize;
        if read == 0 {
            break;
        }
        let words = entries[..read * ENTRY as usize].chunks_exact(ENTRY as usize);
        let is_present = |word: &&[u8]| {
            u64::from_ne_bytes((*word).try_into().expect("a word has as many bytes")) & looked_at == IS_PRESENT
        };
        present += words.filter(is_present).count() as u64;
        page += read as u64;
    }
    present * page_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(line: &str) -> Option<(Range<u64>, Kind)> {
        MemoryMapping::parse(line).map(|mapping| (mapping.range, mapping.kind))
    }

    #[test]
    fn mappings_are_of_memory_or_of_files() {
        let plain = 0x7fcc_8000_0000..0x7fcc_8000_2000;
        assert_eq!(mapping("7fcc80000000-7fcc80002000 rw-p 00000000 00:00 0 "), Some((plain.clone(), Kind::Data)));
        assert_eq!(mapping("7fcc80000000-7fcc80002000 rwxp 00000000 00:00 0 "), Some((plain.clone(), Kind::Code)));
        assert_eq!(
            mapping("7fcc80000000-7fcc80002000 rw-s 00000000 00:01 77 /dev/zero (deleted)"),
            Some((plain.clone(), Kind::Shared))
        );
        assert_eq!(
            mapping("7fcc80000000-7fcc80002000 rw-s 00000000 00:01 9 /memfd:pool (deleted)"),
            Some((plain, Kind::Shared))
        );
        assert_eq!(mapping("7fcc80000000-7fcc80002000 ---p 00000000 00:00 0 "), None, "a guard");
        assert_eq!(mapping("7fcc80000000-7fcc80002000 r--p 00000000 fe:00 18500 /usr/bin/python3.11"), None);
        assert_eq!(
            mapping("7fcc80000000-7fcc80002000 rw-p 00000000 fe:00 18500 /usr/bin/python3.11").map(|(_, kind)| kind),
            Some(Kind::Copies)
        );
        assert_eq!(mapping("7ffd5d7f2000-7ffd5d7f4000 r-xp 00000000 00:00 0 [vdso]"), None);
        assert_eq!(mapping(""), None);
    }

    #[test]
    fn what_is_the_systems_own_is_cut_out() {
        let left = |range: Range<u64>, own: &[Range<u64>]| {
            let parts = MemoryMapping { range, kind: Kind::Data }.without(own);
            parts.into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(left(100..200, &[]), [(100, 200)]);
        assert_eq!(left(100..200, &[0..50, 120..130, 150..300, 200..400]), [(100, 120), (130, 150)]);
        assert_eq!(left(100..200, &[0..150, 150..400]), []);
    }

    #[test]
    fn memory_of_this_process_is_found() {
        const BYTES: u64 = 24 << 20;
        let this = std::process::id();
        let memory = vec![1u8; BYTES as usize];
        let range = memory.as_ptr() as u64..memory.as_ptr() as u64 + BYTES;
        let pages = File::open("/proc/self/pagemap").unwrap();
        // Its first page may have begun before it.
        assert!((BYTES..=BYTES + PAGE_BYTES as u64).contains(&resident_bytes(&pages, range.clone(), Kind::Data)));
        assert!(uncovered(this, &[], true).bytes >= BYTES);
        assert_eq!(
            uncovered(this, &[0..range.start, range.end..1 << 47], true).bytes / BYTES,
            1,
            "all else is cut out"
        );
        assert!(memory.iter().all(|byte| *byte == 1));
        assert!(family(this, &[]).iter().any(|(process, _)| *process == this));
    }

    #[test]
    fn what_is_most_of_it_is_named() {
        let all = Uncovered { bytes: 100 << 20, shared_bytes: 80 << 20, code_bytes: 1 << 20 };
        assert_eq!(all.to_string(), "100 MiB, of that 80 MiB shared memory");
        assert_eq!(
            Uncovered { code_bytes: 90 << 20, ..all }.to_string(),
            "100 MiB, of that 80 MiB shared memory and 90 MiB code"
        );
        assert_eq!(Uncovered { bytes: 5 << 20, ..Uncovered::default() }.to_string(), "5 MiB");
    }
}
