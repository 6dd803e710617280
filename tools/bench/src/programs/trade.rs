//! `bench governor`: two programs that trade phases, of which one works on all of its memory while the other works on a
//! tenth: with fixed halves of all the memory that both ever need, with fixed halves of less, and with as little under
//! `yonder governor`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use yonder::units::parse_bytes;

use crate::children::Launch;
use crate::comparison::{ends, median, sorted};
use crate::flags::{BENCHMARK, positive_count};
use crate::{BenchError, OnProgress};

/// Far memory of each process.
const MEMORY: &str = "1GiB";
/// Beside its data a program has local memory that it needs now and then, and what is kept free.
const MORE_PERCENT: u64 = 108;
/// Pause between two looks whether the programs have ended.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the program's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub far: String,
    /// Memory of each program
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub size: u64,
    /// Memory for both under the governor, as a percentage of what both need at most
    #[arg(long, help_heading = BENCHMARK, value_name = "PCT", default_value_t = 75)]
    pub percent: u64,
    /// Turns of all three
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub runs: usize,
    /// The `yonder` to start
    #[arg(skip)]
    pub program: std::path::PathBuf,
    /// Becomes true when the user wants to stop
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

/// How two programs have their memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Each has all that it ever needs.
    AllFixed,
    /// Each has half of less.
    LessFixed,
    /// Both have less together, and the governor divides it.
    LessGoverned,
}

/// One way; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct TradeResult {
    /// Always `governor`.
    pub bench: &'static str,
    /// How memory was divided.
    pub way: Way,
    /// Far memory.
    pub far: String,
    /// Local memory that both may have together.
    pub local_bytes: u64,
    /// Until both have ended, in seconds, the median of the turns.
    pub seconds: f64,
    /// The least and the greatest of them.
    pub seconds_spread: [f64; 2],
    /// Of the same turn: seconds with all of it fixed, to these.
    pub ratio: f64,
    /// The least and the greatest of them.
    pub ratio_spread: [f64; 2],
    /// How much of it was local over time, of both, the median.
    pub average_local_bytes: u64,
    /// Bytes that were fetched, of both, the median.
    pub fetched_bytes: u64,
}

/// What `yonder run` has said.
#[derive(Deserialize)]
struct Ran {
    seconds: f64,
    average_local_bytes: u64,
    fetched_bytes: u64,
}

struct Turn {
    seconds: f64,
    local: f64,
    fetched: f64,
}

/// Runs all three ways in turn.
pub fn run(settings: &Settings, launch: &dyn Launch, progress: OnProgress<'_>) -> Result<Vec<TradeResult>, BenchError> {
    let all = 2 * settings.size * MORE_PERCENT / 100;
    let less = all * settings.percent / 100;
    let ways = [(Way::AllFixed, all), (Way::LessFixed, less), (Way::LessGoverned, less)];
    let mut turns = ways.map(|_| Vec::new());
    for turn in 0..settings.runs {
        for (number, (way, bytes)) in ways.into_iter().enumerate() {
            let share = (turn * ways.len() + number) as f64 / (settings.runs * ways.len()) as f64;
            progress(&format!("turn {}/{}: {way:?}", turn + 1, settings.runs), share);
            turns[number].push(trade(settings, launch, way, bytes)?);
        }
    }
    let fixed: Vec<f64> = turns[0].iter().map(|turn: &Turn| turn.seconds).collect();
    let results = ways.iter().zip(&turns).map(|((way, bytes), turns)| {
        let of = |figure: fn(&Turn) -> f64| sorted(turns.iter().map(figure));
        let seconds = of(|turn| turn.seconds);
        let ratios = sorted(turns.iter().zip(&fixed).map(|(turn, fixed)| turn.seconds / fixed));
        let middle = |figures: &[f64]| median(figures).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of bytes")]
        let bytes_of = |figures: Vec<f64>| middle(&figures) as u64;
        TradeResult {
            bench: "governor",
            way: *way,
            far: settings.far.clone(),
            local_bytes: *bytes,
            seconds: middle(&seconds),
            seconds_spread: ends(&seconds).unwrap_or_default(),
            ratio: middle(&ratios),
            ratio_spread: ends(&ratios).unwrap_or_default(),
            average_local_bytes: bytes_of(of(|turn| turn.local)),
            fetched_bytes: bytes_of(of(|turn| turn.fetched)),
        }
    });
    Ok(results.collect())
}

/// Both programs once.
fn trade(settings: &Settings, launch: &dyn Launch, way: Way, bytes: u64) -> Result<Turn, BenchError> {
    // Nobody else's processes are governed.
    let folder = crate::children::folder("trade")?;
    let yonder = |words: &[&str]| {
        let mut command = launch.guarded(&settings.program);
        command.args(words).env("XDG_RUNTIME_DIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let bytes_text = bytes.to_string();
    let governor = match way {
        Way::LessGoverned => Some(Running::start(&mut yonder(&["governor", "--memory", &bytes_text]))?),
        Way::AllFixed | Way::LessFixed => None,
    };
    let local = if governor.is_some() { bytes } else { bytes / 2 };
    let summaries = [0, 1].map(|number| folder.path().join(format!("summary-{number}")));
    let mut programs = Vec::new();
    for (seed, summary) in summaries.iter().enumerate() {
        let own = settings.program.to_string_lossy();
        let (local, size, seed) = (local.to_string(), format!("{}B", settings.size), seed.to_string());
        let summary = summary.to_string_lossy();
        let run = ["run", "--far", &settings.far, "--memory", MEMORY, "--local", &local, "--summary", &summary, "--"];
        let work = [&own, "workload", "phases", "--size", &size, "--seed", &seed, "--check"];
        programs.push(Running::start(&mut yonder(&[&run[..], &work].concat()))?);
    }
    for program in &mut programs {
        program.wait(&settings.stop)?;
    }
    if let Some(mut governor) = governor {
        governor.end(&settings.stop)?;
    }
    let ran = summaries.iter().map(|summary| read(summary)).collect::<Result<Vec<Ran>, _>>()?;
    let seconds = ran.iter().map(|ran| ran.seconds).fold(0.0, f64::max);
    // Each tells what it had over its own time.
    let local = ran.iter().map(|ran| ran.average_local_bytes as f64 * ran.seconds / seconds).sum();
    Ok(Turn { seconds, local, fetched: ran.iter().map(|ran| ran.fetched_bytes as f64).sum() })
}

/// A process that is ended when this is dropped.
struct Running(std::process::Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self, BenchError> {
        command.spawn().map(Self).map_err(|error| BenchError::Child(format!("yonder cannot be started: {error}")))
    }

    /// Waits until it has ended well.
    fn wait(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        loop {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(BenchError::Child(format!("a program has failed: {status}"))),
                None if stop.load(Ordering::Relaxed) => return Err(BenchError::Child("it was stopped".to_owned())),
                None => std::thread::sleep(LOOK_PAUSE),
            }
        }
    }

    fn end(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.0), Signal::TERM).map_err(std::io::Error::from)?;
        self.wait(stop)
            .map_err(|error| BenchError::Child(format!("{error}, {:?} after it was to end", began.elapsed())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(path: &Path) -> Result<Ran, BenchError> {
    let text = std::fs::read_to_string(path)?;
    serde_json::from_str(&text).map_err(|error| BenchError::Child(format!("'{}' is no summary: {error}", text.trim())))
}
