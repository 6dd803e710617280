//! `bench auto`: programs that find out by themselves how much local memory they need, beside the same programs with
//! all of it local: by how much they are slowed down, of what was allowed, and how much memory that spares.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::catalogue::{PROGRAMS, Program};
use super::told::Told;
use super::trial::Task;
use super::{NATIVE_TIME_MAX, Scale, TIME_LIMIT, known_program};
use crate::children::Launch;
use crate::comparison::{ends, median, sorted};
use crate::flags::{BENCHMARK, positive_count};
use crate::{BenchError, OnProgress};

/// Far memory of each process.
const MEMORY: &str = "3GiB";

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the program's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub far: String,
    /// How much longer programs may take than with all of their memory local, in percent
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub slowdown: f64,
    /// Which programs, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", value_delimiter = ',', value_parser = known_program,
          default_value = "redis-server,sqlite3,kmeans,sort,phases")]
    pub programs: Vec<String>,
    /// How much work they are given
    #[arg(long, help_heading = BENCHMARK, value_name = "SCALE", default_value = "full")]
    pub scale: Scale,
    /// Turns: a run with all local and one that finds out, each
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub runs: usize,
    /// What comes before a program. The words `{far}`, `{memory}`, `{slowdown}` and `{summary}` stand for what they say
    #[arg(skip)]
    pub all_prefix: Vec<String>,
    /// What comes before a program that finds out
    #[arg(skip)]
    pub auto_prefix: Vec<String>,
    /// Becomes true when the user wants to stop
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

/// What `yonder run` has said.
#[derive(Deserialize)]
struct Ran {
    fetched_bytes: u64,
    average_local_bytes: u64,
    peak_far_bytes: u64,
    worked_seconds: f64,
    stalled_seconds: f64,
}

/// One program; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct AutoResult {
    /// Always `auto`.
    pub bench: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// `small` or `full`.
    pub scale: Scale,
    /// Far memory.
    pub far: String,
    /// What was allowed, a share.
    pub allowed: f64,
    /// How much longer it took than with all of its memory local, the median of the turns.
    pub slowdown: f64,
    /// The least and the greatest of them.
    pub slowdown_spread: [f64; 2],
    /// How long faults held it up where it found out, of what it worked, by its own account: the median.
    pub stalled: f64,
    /// How much more CPU time its own work took than with all local, by the same account: the median.
    pub worked_more: f64,
    /// What it took with all local, in seconds, the median.
    pub seconds: f64,
    /// How much was local over time with all of it local, the median.
    pub all_local_bytes: u64,
    /// How much was local over time where it found out, the median.
    pub average_local_bytes: u64,
    /// Most memory it had at a time.
    pub peak_bytes: u64,
    /// Bytes that were fetched, the median.
    pub fetched_bytes: u64,
    /// Outputs and values that were wrong.
    pub wrong: u64,
}

/// Runs every program. Those that are not installed are left out, and told to `skip`.
pub fn run(
    settings: &Settings,
    launch: &dyn Launch,
    progress: OnProgress<'_>,
    mut skip: impl FnMut(&str, &str),
    mut told: impl FnMut(AutoResult),
) -> Result<(), BenchError> {
    let is_wanted = |program: &&Program| settings.programs.iter().any(|name| name == program.name);
    let programs: Vec<&Program> = PROGRAMS.iter().filter(is_wanted).collect();
    for (number, program) in programs.iter().enumerate() {
        let share = |of: f64| (number as f64 + of) / programs.len() as f64;
        progress(&format!("{}: prepare", program.name), share(0.0));
        let Some(task) = Task::prepare(program, settings.scale)? else {
            skip(program.name, &format!("type `apt-get install {}` as root", program.package));
            continue;
        };
        let runs = Told { launch, task: &task, stop: &settings.stop };
        let mut show = |turn: usize| {
            let of = turn as f64 / settings.runs as f64;
            progress(&format!("{}: turn {}/{}", program.name, turn + 1, settings.runs), share(of));
        };
        told(compare(settings, program, &runs, &mut show)?);
    }
    Ok(())
}

fn compare(
    settings: &Settings,
    program: &Program,
    runs: &Told<'_>,
    show: &mut dyn FnMut(usize),
) -> Result<AutoResult, BenchError> {
    // The first run leaves what all others are compared with.
    let alone = runs.run_alone(NATIVE_TIME_MAX)?;
    let time_max = TIME_LIMIT.of(alone.wall_seconds);
    let values = [
        ("{far}", settings.far.clone()),
        ("{memory}", MEMORY.to_owned()),
        ("{slowdown}", format!("{}%", settings.slowdown)),
    ];
    let mut turns = Vec::new();
    for turn in 0..settings.runs {
        show(turn);
        let all = runs.run::<Ran>(&settings.all_prefix, &values, time_max)?;
        turns.push((all, runs.run::<Ran>(&settings.auto_prefix, &values, time_max)?));
    }
    let mut figures = [const { Vec::new() }; 7];
    for ((all, all_told), (auto, auto_told)) in &turns {
        let bytes = [all_told.average_local_bytes, auto_told.average_local_bytes, auto_told.fetched_bytes];
        let [all_bytes, auto_bytes, fetched_bytes] = bytes.map(|bytes| bytes as f64);
        let stalled = auto_told.stalled_seconds / auto_told.worked_seconds;
        let worked_more = auto_told.worked_seconds / all_told.worked_seconds - 1.0;
        let slowdown = auto.seconds / all.seconds - 1.0;
        let of_turn = [slowdown, stalled, worked_more, all.seconds, all_bytes, auto_bytes, fetched_bytes];
        figures.iter_mut().zip(of_turn).for_each(|(figures, figure)| figures.push(figure));
    }
    let [slowdown, stalled, worked_more, seconds, all_bytes, auto_bytes, fetched_bytes] = figures.map(sorted);
    let middle = |figures: &[f64]| median(figures).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of bytes")]
    let bytes = |figures: &[f64]| middle(figures) as u64;
    Ok(AutoResult {
        bench: "auto",
        program: program.name,
        scale: settings.scale,
        far: settings.far.clone(),
        allowed: settings.slowdown / 100.0,
        slowdown: middle(&slowdown),
        slowdown_spread: ends(&slowdown).unwrap_or_default(),
        stalled: middle(&stalled),
        worked_more: middle(&worked_more),
        seconds: middle(&seconds),
        all_local_bytes: bytes(&all_bytes),
        average_local_bytes: bytes(&auto_bytes),
        peak_bytes: turns.iter().map(|((_, told), _)| told.peak_far_bytes).max().unwrap_or_default(),
        fetched_bytes: bytes(&fetched_bytes),
        wrong: turns.iter().map(|((all, _), (auto, _))| all.wrong + auto.wrong).sum(),
    })
}
