//! [`Child`]: a process that a benchmark has started, ended with its guard; what it costs, as the kernel counts it.
//!
//! A benchmark that measures a server runs it in a process of its own, so that its memory and its CPU time are its own.
//! How a `yonder` process is started is the command's business: it implements [`Launch`].
//!
//! Neighbours: `target` starts memory nodes, `peers_get` other servers, `scale_clients` clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::BenchError;
use crate::scale_clients::ClientTask;
use crate::target::NodeTask;

/// How long a process may take until it serves.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a server may take until it listens: the kernel's swap makes it slow.
const LISTEN_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a process that was asked to end may take.
const END_TIME_MAX: Duration = Duration::from_secs(3);
/// Pause between two looks at a process that starts or ends.
const LOOK_PAUSE: Duration = Duration::from_millis(2);
/// What a node's first line ends with.
const NODE_LISTENS: &str = "Ctrl-C ends it";
/// What comes before the address of a node's metrics.
const METRICS_ON: &str = "metrics on ";

/// Starts the processes that benchmarks need.
pub trait Launch {
    /// A memory node that says where it listens, and where its metrics are.
    fn node(&self, task: &NodeTask) -> Command;

    /// A client process of `bench scale-clients`.
    fn client(&self, task: &ClientTask) -> Command;

    /// Another program, which ends when this process ends, however that ends.
    fn guarded(&self, program: &Path) -> Command;
}

/// A started process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    name: String,
}

/// What a process holds in memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Resident {
    /// Memory of its own: heap, stacks, tables.
    pub(crate) private: u64,
    /// Shared memory: in a node, what it lends.
    pub(crate) shared: u64,
}

impl Child {
    /// Starts a process whose output nobody reads.
    pub(crate) fn start(command: &mut Command, name: &str) -> Result<Self, BenchError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self::spawn(command, name)
    }

    /// Starts a process with the streams that `command` has.
    pub(crate) fn spawn(command: &mut Command, name: &str) -> Result<Self, BenchError> {
        let process =
            command.spawn().map_err(|error| BenchError::Child(format!("{name} cannot be started: {error}")))?;
        Ok(Self { process, name: name.to_owned() })
    }

    /// Waits until somebody accepts connections at `address`, and connects.
    pub(crate) fn connect(&mut self, address: SocketAddr) -> Result<TcpStream, BenchError> {
        let connected = connect(address, || self.is_running());
        connected.map_err(|error| BenchError::Child(format!("{} does not listen: {error}", self.name)))
    }

    /// Its standard output, if that is a pipe which nobody has taken yet.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    /// The same for its standard error.
    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.process.stderr.take()
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// CPU time that all its threads have used, as exact as the kernel's tick.
    pub(crate) fn cpu_time(&self) -> Result<Duration, BenchError> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let ticks =
            cpu_ticks(&text).ok_or_else(|| BenchError::Child(format!("the kernel says '{text}' of {}", self.name)))?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// CPU time that those of its threads have used which are there, to the nanosecond; none where the kernel does not
    /// tell.
    pub(crate) fn threads_cpu_time(&self) -> Option<Duration> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?;
        threads.filter_map(Result::ok).map(|thread| run_time(&thread.path())).sum()
    }

    /// What it holds in memory.
    pub(crate) fn resident(&self) -> Result<Resident, BenchError> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        Ok(resident(&text))
    }

    /// Asks it to end, and sees to it.
    fn end(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.process), Signal::INT);
        let give_up = Instant::now() + END_TIME_MAX;
        while self.is_running() && Instant::now() < give_up {
            std::thread::sleep(LOOK_PAUSE);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// A running memory node.
#[derive(Debug)]
pub(crate) struct NodeChild {
    pub(crate) child: Child,
    pub(crate) url: String,
    metrics: SocketAddr,
}

impl NodeChild {
    /// Starts a node, and returns once it has said where it listens.
    pub(crate) fn start(launch: &dyn Launch, task: &NodeTask) -> Result<Self, BenchError> {
        let mut command = launch.node(task);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Child::spawn(&mut command, "the memory node")?;
        let said = lines_of(child.take_stderr().expect("it is piped"))?;
        let (mut url, mut all) = (None, String::new());
        let give_up = Instant::now() + START_TIME_MAX;
        loop {
            let line = match said.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                    return Err(BenchError::Child(format!("the memory node did not start; it said: {}", all.trim())));
                }
            };
            if line.ends_with(NODE_LISTENS) {
                url = line
                    .split_whitespace()
                    .find(|word| word.contains("://"))
                    .map(|word| word.trim_end_matches(';').to_owned());
            }
            let metrics = line.split_once(METRICS_ON).and_then(|(_, rest)| rest.trim().parse().ok());
            if let (Some(url), Some(metrics)) = (&url, metrics) {
                return Ok(Self { child, url: url.clone(), metrics });
            }
            all = format!("{all} {line}");
        }
    }

    /// Bytes of its own tables, as the node counts them.
    pub(crate) fn own_bytes(&self) -> Result<u64, BenchError> {
        const NAME: &str = "yonder_node_own_bytes";
        let mut stream = TcpStream::connect(self.metrics)?;
        stream.set_read_timeout(Some(START_TIME_MAX))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        metric(&answer, NAME).ok_or_else(|| BenchError::Child(format!("the memory node has no metric {NAME}")))
    }
}

/// The lines of a stream, read to its end whether anyone wants them or not: its writer never waits.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Result<Receiver<String>, BenchError> {
    let (sender, lines) = channel();
    std::thread::Builder::new().name("yonder-lines".to_owned()).spawn(move || {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            match stream.read_until(b'\n', &mut line) {
                Ok(0) => return,
                // Nobody may listen any more.
                Ok(_) => drop(sender.send(String::from_utf8_lossy(&line).trim_end().to_owned())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(lines)
}

/// A folder for temporary files of this process's benchmark, which says whose it is.
pub(crate) fn folder(bench: &str) -> std::io::Result<TempDir> {
    TempDir::with_prefix(format!("yonder-{bench}-{}-", std::process::id()))
}

/// An address at which a server may listen: nobody does at the moment. If another program takes it first, the server
/// ends, and that is said.
pub(crate) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Connects to a server that was just started, as soon as it listens; gives up once it does not run any more.
pub(crate) fn connect(address: SocketAddr, mut is_running: impl FnMut() -> bool) -> std::io::Result<TcpStream> {
    let give_up = Instant::now() + LISTEN_TIME_MAX;
    loop {
        match TcpStream::connect(address) {
            Err(_) if is_running() && Instant::now() < give_up => std::thread::sleep(LOOK_PAUSE),
            connected => return connected,
        }
    }
}

/// Why a program cannot be run, and what to type; nothing if it is on the search path.
pub(crate) fn not_installed(program: &str, package: &str) -> Option<String> {
    let is_missing = find_program(program).is_none();
    is_missing.then(|| format!("{program} is not installed: type `apt-get install {package}` as root"))
}

/// A program's path, if it is on the search path.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// CPU time that this process has used.
pub(crate) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long a thread has run, by its folder in `/proc`; none where the kernel does not tell.
pub(crate) fn run_time(task: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// User and system time in a line of `/proc/PID/stat`, in ticks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    const USER: usize = 11;
    let mut times = behind_name(stat)?.skip(USER).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// Major and minor faults in a line of `/proc/PID/stat`.
pub(crate) fn faults(stat: &str) -> Option<(u64, u64)> {
    const MINOR: usize = 7;
    let mut counts = behind_name(stat)?.skip(MINOR).step_by(2).map(|word| word.parse().ok());
    let (minor, major) = (counts.next()??, counts.next()??);
    Some((major, minor))
}

/// What stands in a line of `/proc/PID/stat` behind the name, which may have spaces and brackets in it.
fn behind_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    stat.rsplit_once(')').map(|(_, behind)| behind.split_whitespace())
}

/// What `/proc/PID/status` says of memory. A kernel that does not say has none.
fn resident(status: &str) -> Resident {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_matches([':', ' ', '\t']).trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    Resident { private: bytes("RssAnon").unwrap_or(0) << 10, shared: bytes("RssShmem").unwrap_or(0) << 10 }
}

/// The value of a metric without labels in Prometheus' text format.
fn metric(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse::<f64>().ok().map(|value| value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read() {
        let stat = "12 (a (b) c) S 1 12 12 0 -1 4194304 100 0 0 0 70 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(100));
        assert_eq!(cpu_ticks("12 (a) S 1"), None);
        assert_eq!(faults("12 (a (b) c) S 1 12 12 0 -1 4194304 100 1 7 2 70 30"), Some((7, 100)));
        assert_eq!(faults("12 (a) S 1"), None);
        let status = "VmRSS:\t  900 kB\nRssAnon:\t     384 kB\nRssFile:\t 400 kB\nRssShmem:\t       8 kB\n";
        assert_eq!(resident(status), Resident { private: 384 << 10, shared: 8 << 10 });
        assert_eq!(resident(""), Resident::default());
        assert_eq!(metric("# HELP a b\nab 1\na 2e3\n", "a"), Some(2000));
        assert_eq!(metric("ab 1\n", "a"), None);
    }

    #[test]
    fn a_child_ends_with_its_guard_and_its_time_is_counted() {
        // It works without end: the kernel counts by its tick, and may count nothing of a process that sleeps at once.
        let started = Instant::now();
        let mut child = Child::start(Command::new("sh").args(["-c", "while :; do :; done"]), "sh").unwrap();
        assert!(child.is_running());
        let counted = loop {
            match child.threads_cpu_time() {
                Some(Duration::ZERO) if started.elapsed() < START_TIME_MAX => std::thread::yield_now(),
                counted => break counted,
            }
        };
        // One thread runs no longer than time passes, but for a tick.
        let most = || started.elapsed() + Duration::from_secs(1);
        match counted {
            Some(time) => assert!(time > Duration::ZERO && time < most(), "{time:?}"),
            None => println!("SKIP: this kernel does not tell how long a thread ran"),
        }
        assert!(child.cpu_time().unwrap() < most());
        let path = format!("/proc/{}", child.process.id());
        assert!(Path::new(&path).exists());
        drop(child);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn programs_are_found_on_the_search_path_or_not() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-program-has-this-name"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_with_its_name() {
        let error = Child::start(&mut Command::new("/nowhere/at-all"), "the peer").unwrap_err();
        assert!(error.to_string().starts_with("the peer cannot be started: "), "{error}");
    }
}
