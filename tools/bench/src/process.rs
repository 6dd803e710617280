//! [`Running`]: a program with all that it starts, watched until it ends: how much memory it took, and why it ended.
//!
//! The program leads a process group of its own, so that all of it can be ended. A thread looks at the group every few
//! milliseconds: it keeps the largest high-water mark that the kernel tells of any of its processes, and kills the
//! group when its time is over or the user wants to stop. Marks are read while processes run because what `wait4` tells
//! of a child begins with the memory of the process that started it.
//!
//! Invariant: the group is signalled only while its leader has not been reaped, so that its number is nobody else's.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::BenchError;
use crate::children::lines_of;

/// Pause between two looks at a program.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// Looks at the known processes of a group for each search for new ones.
const LOOKS_PER_SEARCH: u32 = 4;
/// How long a server that was asked to end may take.
const END_TIME_MAX: Duration = Duration::from_secs(20);
/// How long the last words of a program that has ended are waited for.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);

/// A program that runs. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    watch: Option<Watch>,
    said: Receiver<String>,
}

/// How a program ended, and the most memory that one of its processes had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) peak_bytes: u64,
}

/// Why a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It had done its work.
    Well,
    /// It failed: how, and the last line that it said.
    Badly(String),
    /// It was killed by somebody else, as the kernel does when memory is short.
    Killed,
    /// It took too long.
    Late,
    /// The user wants to stop.
    Stopped,
}

/// The thread that looks at a group, and what ends it.
#[derive(Debug)]
struct Watch {
    thread: JoinHandle<Watched>,
    /// Says until when the program may run; the thread ends when this is dropped.
    until: Sender<Instant>,
}

/// What a watch has seen.
#[derive(Debug, Default)]
struct Watched {
    peak_bytes: u64,
    /// Why it killed the group, if it did.
    killed: Option<End>,
}

impl Running {
    /// Starts a program that may run for `time_max`, unless `stop` becomes true before.
    pub(crate) fn start(command: &mut Command, time_max: Duration, stop: &Arc<AtomicBool>) -> Result<Self, BenchError> {
        Self::start_with(command, Stdio::null(), time_max, stop)
    }

    /// The same for a program that reads this.
    pub(crate) fn start_with(
        command: &mut Command,
        input: Stdio,
        time_max: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, BenchError> {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command
            .spawn()
            .map_err(|error| BenchError::Child(format!("{:?} cannot be started: {error}", command.get_program())))?;
        let said = lines_of(process.stderr.take().expect("it is piped"))?;
        let watch = Watch::start(Pid::from_child(&process), Instant::now() + time_max, stop.clone())?;
        Ok(Self { process, watch: Some(watch), said })
    }

    /// What says something to it, once, if that is a pipe.
    pub(crate) fn input(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// What it writes to standard output, once.
    pub(crate) fn output(&mut self) -> ChildStdout {
        self.process.stdout.take().expect("it is taken once")
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.process)), options), Ok(None))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(self) -> Result<Ended, BenchError> {
        if let Some(watch) = &self.watch {
            // The watch is there until the end is seen.
            let _ = watch.until.send(Instant::now() + END_TIME_MAX);
        }
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits until it ends.
    pub(crate) fn wait(mut self) -> Result<Ended, BenchError> {
        let leader = WaitId::Pid(Pid::from_child(&self.process));
        while let Err(error) = waitid(leader.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if error != Errno::INTR {
                return Err(std::io::Error::from(error).into());
            }
        }
        let (status, watched) = self.reap()?;
        let end = watched.killed.unwrap_or_else(|| self.end_of(status));
        Ok(Ended { end, peak_bytes: watched.peak_bytes })
    }

    /// Ends the watch, kills what is left of the group, and lets the kernel forget the leader.
    fn reap(&mut self) -> std::io::Result<(ExitStatus, Watched)> {
        let watched = self.watch.take().map(Watch::end).unwrap_or_default();
        self.signal(Signal::KILL);
        Ok((self.process.wait()?, watched))
    }

    fn end_of(&self, status: ExitStatus) -> End {
        if status.success() {
            return End::Well;
        }
        if status.signal() == Some(Signal::KILL.as_raw()) {
            return End::Killed;
        }
        let until = Instant::now() + LAST_WORDS_TIME_MAX;
        let mut last = String::new();
        while let Ok(line) = self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if !line.trim().is_empty() {
                last = format!(": {}", line.trim());
            }
        }
        End::Badly(format!("{status}{last}"))
    }

    fn signal(&self, signal: Signal) {
        // There may be nobody left.
        let _ = kill_process_group(Pid::from_child(&self.process), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.watch.is_some() {
            self.signal(Signal::KILL);
            // Whatever it says now, somebody else's error is on its way already.
            let _ = self.reap();
        }
    }
}

impl Watch {
    fn start(group: Pid, deadline: Instant, stop: Arc<AtomicBool>) -> Result<Self, BenchError> {
        let (until, deadlines) = channel();
        let watch = move || watch(group, deadline, &deadlines, &stop);
        let thread = std::thread::Builder::new().name("yonder-watch".to_owned()).spawn(watch)?;
        Ok(Self { thread, until })
    }

    fn end(self) -> Watched {
        drop(self.until);
        self.thread.join().expect("a watch does not panic")
    }
}

fn watch(group: Pid, mut deadline: Instant, deadlines: &Receiver<Instant>, stop: &AtomicBool) -> Watched {
    let (mut watched, mut members) = (Watched::default(), Vec::new());
    for look in 0_u32.. {
        if look % LOOKS_PER_SEARCH == 0 {
            members = members_of(group);
        }
        let peak = members.iter().filter_map(|member| peak_of(*member)).max();
        watched.peak_bytes = watched.peak_bytes.max(peak.unwrap_or(0));
        let why = if stop.load(Ordering::Relaxed) {
            Some(End::Stopped)
        } else {
            (Instant::now() >= deadline).then_some(End::Late)
        };
        if watched.killed.is_none() && why.is_some() {
            watched.killed = why;
            // It may have ended in this moment.
            let _ = kill_process_group(group, Signal::KILL);
        }
        match deadlines.recv_timeout(LOOK_PAUSE) {
            Ok(later) => deadline = later,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    watched
}

/// The processes of a group.
fn members_of(group: Pid) -> Vec<u32> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    let numbers = folder.filter_map(Result::ok).filter_map(|entry| number(&entry.file_name()));
    let is_member = |process: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"));
        text.is_ok_and(|text| group_of(&text) == Some(group.as_raw_nonzero().get()))
    };
    numbers.filter(is_member).collect()
}

/// The group in a line of `/proc/PID/stat`.
fn group_of(stat: &str) -> Option<i32> {
    const GROUP: usize = 2;
    // The name before may have spaces and brackets in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(GROUP)?.parse().ok()
}

/// The most memory that a process has had since it became its program, if it is there.
fn peak_of(process: u32) -> Option<u64> {
    peak(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// The high-water mark in `/proc/PID/status`.
fn peak(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// What the user's wish to stop is as an error.
pub(crate) fn stopped() -> BenchError {
    BenchError::Child("interrupted".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(text: &str, time_max: Duration) -> Running {
        Running::start(Command::new("sh").args(["-c", text]), time_max, &Arc::default()).unwrap()
    }

    #[test]
    fn ends_are_told_apart() {
        for (text, end) in [
            ("true", End::Well),
            ("echo first >&2; echo last words >&2; exit 3", End::Badly("exit status: 3: last words".to_owned())),
            ("kill -KILL $$", End::Killed),
        ] {
            assert_eq!(shell(text, LONG).wait().unwrap().end, end, "{text}");
        }
        let start = Instant::now();
        assert_eq!(shell("sleep 600", Duration::from_millis(20)).wait().unwrap().end, End::Late);
        let stop = Arc::new(AtomicBool::new(true));
        let running = Running::start(Command::new("sleep").arg("600"), LONG, &stop).unwrap();
        assert_eq!(running.wait().unwrap().end, End::Stopped);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn nothing_of_a_program_is_left() {
        // Who writes to the pipe is there until it is closed.
        let mut running = shell("sleep 600 & sleep 600 & echo ready; wait", LONG);
        let mut output = running.output();
        let mut word = [0; 6];
        output.read_exact(&mut word).unwrap();
        assert!(!running.is_over());
        drop(running);
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
        // What a program has left behind as it ended.
        let start = Instant::now();
        let mut running = shell("sleep 30 & echo ready", LONG);
        let mut output = running.output();
        assert_eq!(running.wait().unwrap().end, End::Well);
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 6);
        assert!(start.elapsed() < Duration::from_secs(30));
        let mut running = shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", LONG);
        let mut output = running.output();
        output.read_exact(&mut word).unwrap();
        assert_eq!(running.end().unwrap().end, End::Well);
    }

    #[test]
    fn the_largest_process_of_a_group_counts() {
        // A child of the leader holds 40 MB of text until it may end.
        let text = "(x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ready; while :; do sleep 0.01; done) & wait";
        let mut running = shell(text, LONG);
        let mut output = running.output();
        output.read_exact(&mut [0; 6]).unwrap();
        let group = Pid::from_child(&running.process);
        let largest = members_of(group).into_iter().filter_map(peak_of).max().unwrap();
        assert!(largest >= 40_000_000, "{largest}");
        assert!(running.end().unwrap().peak_bytes >= 40_000_000);
    }

    #[test]
    fn the_kernels_figures_are_read() {
        assert_eq!(group_of("12 (a (b) c) S 1 34 12 0 -1"), Some(34));
        assert_eq!(group_of("12 (a) S 1"), None);
        assert_eq!(peak("VmPeak:\t 9 kB\nVmHWM:\t     384 kB\nVmRSS:\t 3 kB\n"), Some(384 << 10));
        assert_eq!(peak("Name:\tx\n"), None);
    }
}
