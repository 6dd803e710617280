//! [`Started`]: a process of the catalogue's, with all that it starts: watched for the memory that it takes, waited for
//! until a deadline, and ended.
//!
//! Memory is what is private and anonymous, or shared, of the process that has most of it, as the process file system
//! tells while it runs; pages of files are not counted, because the kernel can drop them. The process leads a group of
//! its own. Its descendants may leave that, as servers do, so they are found by their parents, and all of them are
//! killed by their numbers, and only while the process that was started has not been waited for.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// Pause between two looks at a process.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Looks at the processes that are known for each search for new ones.
const LOOKS_PER_SEARCH: u32 = 5;

/// A process that was started. Dropping it kills it and all that it has started.
pub(super) struct Started {
    child: Child,
    said: PathBuf,
    complained: PathBuf,
    family: Vec<u32>,
    looks: u32,
    peak_bytes: u64,
    /// Whether it was waited for: its number may be another process's.
    has_ended: bool,
}

impl Started {
    /// Starts a command, which writes to files in `folder`.
    pub(super) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self, String> {
        let files = ["out", "err"].map(|ending| folder.join(format!("{name}.{ending}")));
        let create = |path: &PathBuf| File::create(path).map_err(|error| format!("'{}': {error}", path.display()));
        let (out, err) = (create(&files[0])?, create(&files[1])?);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child =
            command.spawn().map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let [said, complained] = files;
        Ok(Self { family: vec![child.id()], child, said, complained, looks: 0, peak_bytes: 0, has_ended: false })
    }

    /// Looks at the memory of all its processes.
    pub(super) fn look(&mut self) {
        if self.looks.is_multiple_of(LOOKS_PER_SEARCH) {
            self.family = family(self.child.id());
        }
        self.looks += 1;
        let most = self.family.iter().filter_map(|process| unfiled_bytes(*process)).max();
        self.peak_bytes = self.peak_bytes.max(most.unwrap_or(0));
    }

    /// The most memory that one of its processes has had.
    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.id()), options), Ok(None))
    }

    /// Asks it, and none of what it has started, to end.
    pub(super) fn ask_to_end(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process(self.id(), signal);
    }

    /// Waits until it ends, and looks meanwhile at it, and at the process `beside` it. An error says how it failed.
    pub(super) fn end_by(&mut self, deadline: Instant, mut beside: Option<&mut Self>) -> Result<(), String> {
        while !self.is_over() {
            if Instant::now() > deadline {
                return Err(format!("it takes too long{}", self.last_words()));
            }
            self.look();
            if let Some(beside) = &mut beside {
                beside.look();
            }
            pause();
        }
        let status = self.reap()?;
        if status.success() { Ok(()) } else { Err(format!("{status}{}", self.last_words())) }
    }

    /// What it has written to standard output.
    pub(super) fn said(&self) -> String {
        fs::read(&self.said).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The lines that it has written to standard error.
    pub(super) fn complaints(&self) -> Vec<String> {
        let bytes = fs::read(&self.complained).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }

    /// The last line that says something.
    fn last_words(&self) -> String {
        let lines = self.complaints();
        let is_figures = |line: &str| line.starts_with("yonder run: ");
        let last = lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty() && !is_figures(line));
        last.map(|line| format!(": {line}")).unwrap_or_default()
    }

    /// Kills what is left, and lets the kernel forget the process.
    fn reap(&mut self) -> Result<ExitStatus, String> {
        for process in family(self.child.id()).into_iter().filter_map(|process| Pid::from_raw(process.cast_signed())) {
            // Some may have ended.
            let _ = (process != self.id()).then(|| kill_process(process, Signal::KILL));
        }
        let _ = kill_process_group(self.id(), Signal::KILL);
        self.has_ended = true;
        self.child.wait().map_err(|error| format!("it cannot be waited for: {error}"))
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.has_ended {
            // Why it is dropped was said already.
            let _ = self.reap();
        }
    }
}

/// Lets time pass between two looks.
pub(super) fn pause() {
    std::thread::sleep(LOOK_PAUSE);
}

/// A process and all its descendants.
fn family(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc").into_iter().flatten().filter_map(parent).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        next += 1;
    }
    found
}

/// A process and its parent.
fn parent(entry: std::io::Result<fs::DirEntry>) -> Option<(u32, u32)> {
    let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have anything in it: the state, and the parent.
    let parent = text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((process, parent))
}

/// What a process has that is no file's; None if it is gone.
fn unfiled_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some((kib("RssAnon:")? + kib("RssShmem:")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Started {
        Started::start(Command::new("sh").args(["-c", script]), folder, "shell").unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_a_process_says_and_how_it_fails() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let mut well = shell("echo answer", folder);
        assert_eq!(well.end_by(soon(), None), Ok(()));
        assert_eq!(well.said(), "answer\n");
        let mut badly = shell("echo why >&2; echo 'yonder run: figures' >&2; exit 3", folder);
        assert_eq!(badly.end_by(soon(), None), Err("exit status: 3: why".to_owned()));
        let until = soon();
        let mut late = shell("sleep 100 & wait", folder);
        assert_eq!(late.end_by(Instant::now(), None), Err("it takes too long".to_owned()));
        let family = family(late.child.id());
        drop(late);
        let lives = |process: &u32| Path::new(&format!("/proc/{process}/exe")).exists();
        while family.iter().any(lives) {
            assert!(Instant::now() < until, "{family:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn this_process_has_memory_and_a_parent() {
        assert!(unfiled_bytes(std::process::id()).unwrap() > 64 << 10);
        assert!(family(std::os::unix::process::parent_id()).contains(&std::process::id()));
    }
}
