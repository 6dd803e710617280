//! The run of a load: connects, starts the loading threads, merges their tallies, reports progress.
//!
//! Key type: [`KvLoad`]. It keeps the ledger of versions over its fill and its runs, so a value that an earlier run
//! stored is still verified in a later one.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use yonder_units::Nanos;

use crate::connection::Connection;
use crate::latency::LatencyRecorder;
use crate::ledger::Ledger;
use crate::pipeline::Pipeline;
use crate::protocol::Protocol;
use crate::results::{FillResult, LoadResult, Progress};
use crate::server_stats::ServerStats;
use crate::settings::{LoadSettings, Rate, SettingError};
use crate::tally::Tally;
use crate::work::{Pace, Work};
use crate::worker::{Assignment, Worker, WorkerError};

/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Why a load failed. Every text is one line that says what is wrong and, where it helps, what to type.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The target is not an address.
    #[error("'{target}' is not an address: type --target HOST:PORT, such as 127.0.0.1:11211")]
    BadTarget {
        /// As typed.
        target: String,
    },
    /// No server listens at the target.
    #[error("nothing listens at {target}: start `yonder kv --listen {target} ...` first")]
    NothingListens {
        /// Host and port.
        target: String,
    },
    /// Another failure to connect or to ask for `stats`.
    #[error("the server at {target} cannot be reached: {cause}")]
    Unreachable {
        /// Host and port.
        target: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Every connection of a thread was lost, or a fill got no answer for the settings' patience.
    #[error("the server at {target} went away after {completed} answers: {cause}")]
    ServerGone {
        /// Host and port.
        target: String,
        /// Requests answered until then.
        completed: u64,
        /// How it went away.
        cause: String,
    },
    /// Keys could not be set.
    #[error("{failed} of {keys} keys could not be set, the first because: {first}")]
    FillFailed {
        /// Sets that failed.
        failed: u64,
        /// Sets in all.
        keys: u64,
        /// The server's words for the first.
        first: String,
    },
    /// The server returned values that cannot be right.
    #[error("{count} wrong values came back, the first: {first}")]
    WrongValues {
        /// How many.
        count: u64,
        /// What was wrong with the first.
        first: String,
    },
    /// This machine refused something the load needs.
    #[error("the load cannot run on this machine: {0}")]
    System(io::Error),
}

/// A load on one server: a fill, then any number of runs.
pub struct KvLoad {
    settings: LoadSettings,
    server: SocketAddr,
    ledger: Ledger,
    runs: u64,
}

impl KvLoad {
    /// A load with these settings. Nothing is connected yet. Fails if a setting is out of range or the target is not
    /// an address.
    pub fn new(settings: LoadSettings) -> Result<Self, LoadError> {
        settings.validate()?;
        let bad_target = || LoadError::BadTarget { target: settings.target.clone() };
        let server = settings.target.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(bad_target)?;
        // An epoch that differs from those of earlier loads, whose values may still be on the server.
        let epoch = RandomState::new().hash_one(Instant::now()) as u32;
        let ledger = Ledger::new(settings.keys, epoch);
        Ok(Self { settings, server, ledger, runs: 0 })
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &LoadSettings {
        &self.settings
    }

    /// Sets every key once, as fast as the server takes it. `progress` is called once a second. Fails if the server
    /// refuses a single key or falls silent.
    pub fn fill(&mut self, progress: impl FnMut(&Progress)) -> Result<FillResult, LoadError> {
        let start = Instant::now();
        let assignment = |thread| self.assignment(Pace::Closed, Work::fill(&self.settings, thread), Nanos::MAX);
        let tally = self.start_threads(assignment, &AtomicBool::new(false), progress)?;
        if let Some(first) = tally.first_error {
            return Err(LoadError::FillFailed { failed: tally.errors, keys: self.settings.keys, first });
        }
        let elapsed_s = start.elapsed().as_secs_f64();
        let keys = self.settings.keys;
        let value_bytes = keys * self.settings.value_size as u64;
        Ok(FillResult { keys, value_bytes, elapsed_s, ops_per_s: keys as f64 / elapsed_s })
    }

    /// Loads the server at `rate` for `duration`. `progress` is called once a second. Wrong values do not fail the
    /// run: ask [`LoadResult::verdict`].
    ///
    /// # Panics
    /// If the duration is zero.
    pub fn run(
        &mut self,
        rate: Rate,
        duration: Duration,
        progress: impl FnMut(&Progress),
    ) -> Result<LoadResult, LoadError> {
        self.run_until(rate, duration, &AtomicBool::new(false), progress)
    }

    /// As [`KvLoad::run`], for `longest`, or until `is_over` is true; it is looked at with each request and reply.
    ///
    /// # Panics
    /// If the longest duration is zero.
    pub fn run_until(
        &mut self,
        rate: Rate,
        longest: Duration,
        is_over: &AtomicBool,
        progress: impl FnMut(&Progress),
    ) -> Result<LoadResult, LoadError> {
        assert!(!longest.is_zero(), "a run needs a duration");
        self.runs += 1;
        let before = self.server_stats()?;
        let (threads, deadline) = (self.settings.threads, longest.as_nanos() as Nanos);
        let assignment = |thread: usize| {
            // Every thread of every run draws its own arrivals and keys.
            let seed = self.settings.seed.wrapping_mul(1_000_003) + self.runs * 4099 + thread as u64;
            self.assignment(
                Pace::new(rate, threads, seed),
                Work::endless(&self.settings, seed.rotate_left(32)),
                deadline,
            )
        };
        let tally = self.start_threads(assignment, is_over, progress)?;
        let duration = Duration::from_nanos(tally.ended_at).min(longest);
        let server = self.server_stats()?.since(&before);
        Ok(LoadResult::new(self.settings.clone(), rate, duration, tally, server))
    }

    fn assignment(&self, pace: Pace, work: Work, deadline: Nanos) -> Assignment {
        let LoadSettings { patience, backlog, threads, waiting, .. } = self.settings;
        Assignment { pace, work, deadline, patience, backlog_max: backlog / threads, waiting }
    }

    /// Connects, runs one worker for each thread, and merges what they have seen.
    fn start_threads(
        &self,
        assignment: impl Fn(usize) -> Assignment,
        is_over: &AtomicBool,
        progress: impl FnMut(&Progress),
    ) -> Result<Tally, LoadError> {
        let connections =
            (0..self.settings.threads).map(|thread| self.connect(thread)).collect::<Result<Vec<_>, _>>()?;
        let (sender, batches) = channel();
        let start = Instant::now();
        let (tally, results) = thread::scope(|scope| {
            let workers: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(thread, connections)| {
                    let (assignment, sender) = (assignment(thread), sender.clone());
                    let worker =
                        move || Worker::new(assignment, connections, &self.ledger, is_over, start, sender)?.run();
                    scope.spawn(worker)
                })
                .collect();
            drop(sender);
            let tally = collect(&batches, start, progress);
            let results = workers.into_iter().map(|worker| worker.join().expect("a loading thread does not panic"));
            (tally, results.collect::<Vec<_>>())
        });
        match results.into_iter().find_map(Result::err) {
            None => Ok(tally),
            Some(WorkerError::System(error)) => Err(LoadError::System(error)),
            Some(WorkerError::ServerGone(cause)) => {
                Err(LoadError::ServerGone { target: self.settings.target.clone(), completed: tally.completed(), cause })
            }
        }
    }

    /// The connections of thread `thread`: its fair share of all.
    fn connect(&self, thread: usize) -> Result<Vec<Connection>, LoadError> {
        let LoadSettings { protocol, connections, threads, depth, value_size, .. } = self.settings;
        let share = connections * (thread + 1) / threads - connections * thread / threads;
        let open = || Connection::open(self.server, Pipeline::new(protocol, depth, value_size));
        (0..share).map(|_| open().map_err(|cause| self.unreachable(cause))).collect()
    }

    fn server_stats(&self) -> Result<ServerStats, LoadError> {
        if self.settings.protocol == Protocol::Redis {
            return Ok(ServerStats::default());
        }
        ServerStats::ask(self.server).map_err(|cause| self.unreachable(cause))
    }

    fn unreachable(&self, cause: io::Error) -> LoadError {
        let target = self.settings.target.clone();
        match cause.kind() {
            io::ErrorKind::ConnectionRefused => LoadError::NothingListens { target },
            _ => LoadError::Unreachable { target, cause },
        }
    }
}

/// Merges batches until every worker is gone, and reports progress meanwhile.
fn collect(batches: &Receiver<Tally>, start: Instant, mut progress: impl FnMut(&Progress)) -> Tally {
    let mut total = Tally::default();
    let mut report_at = start + PROGRESS_EVERY;
    loop {
        match batches.recv_timeout(report_at.saturating_duration_since(Instant::now())) {
            Ok(batch) => total.merge(batch),
            Err(RecvTimeoutError::Disconnected) => return total,
            Err(RecvTimeoutError::Timeout) => {
                report_at += PROGRESS_EVERY;
                let all: LatencyRecorder = total.all();
                progress(&Progress {
                    elapsed: start.elapsed(),
                    ops: all.len(),
                    p99_us: all.percentile_us(99.0),
                    dropped: total.dropped,
                    errors: total.errors,
                });
            }
        }
    }
}
