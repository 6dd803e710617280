//! `bench size`: what `yonder size` predicts of a program, and what the program then takes.
//!
//! One run under `yonder size` predicts; then the program runs with each of the sizes in turn. Of a batch program the
//! whole time is predicted. Of a server it is what its clients wait for longer than with all of its memory local.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::{Deserialize, Serialize};
use yonder::units::PAGE_BYTES;

use super::catalogue::{PROGRAMS, Program, Work};
use super::told::Told;
use super::trial::Task;
use super::{NATIVE_TIME_MAX, Scale, TIME_LIMIT, known_program};
use crate::children::Launch;
use crate::comparison::{ends, median};
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
    /// Which programs, with commas between; all if not given
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", value_delimiter = ',', value_parser = known_program)]
    pub programs: Vec<String>,
    /// How much work they are given
    #[arg(long, help_heading = BENCHMARK, value_name = "SCALE", default_value = "full")]
    pub scale: Scale,
    /// Sizes of local memory, from the smallest to all of it in equal steps
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 8, value_parser = positive_count)]
    pub points: usize,
    /// Runs with each size; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub runs: usize,
    /// What comes before a program that is sized. The words `{far}`, `{memory}`, `{points}` and `{summary}` stand for
    /// what they say
    #[arg(skip)]
    pub size_prefix: Vec<String>,
    /// What comes before a program that runs with a size, `{local}`
    #[arg(skip)]
    pub run_prefix: Vec<String>,
    /// Becomes true when the user wants to stop
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

/// What `yonder size` has said.
#[derive(Deserialize)]
struct Sized {
    far: Vec<OfFar>,
}

#[derive(Deserialize)]
struct OfFar {
    points: Vec<OfSize>,
}

#[derive(Deserialize)]
struct OfSize {
    local_bytes: u64,
    seconds: f64,
    misses: u64,
}

/// What `yonder run` has said.
#[derive(Deserialize)]
struct Ran {
    fetched_bytes: u64,
}

/// One program with one size; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    /// Always `size`.
    pub bench: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// `small` or `full`.
    pub scale: Scale,
    /// Far memory.
    pub far: String,
    /// Local memory.
    pub local_bytes: u64,
    /// What was predicted, in seconds.
    pub predicted_seconds: f64,
    /// What it took, the median of the runs.
    pub seconds: f64,
    /// The least and the greatest of them.
    pub seconds_spread: [f64; 2],
    /// By how much the prediction is off, as a share of what it took: above 0 where it is too long.
    pub error: f64,
    /// Pages that were predicted to be fetched.
    pub predicted_pages: u64,
    /// Pages' worth of bytes that were fetched.
    pub fetched_pages: u64,
    /// Outputs and values that were wrong.
    pub wrong: u64,
}

/// Predicts and runs every program. Those that are not installed are left out, and told to `skip`.
pub fn run(
    settings: &Settings,
    launch: &dyn Launch,
    progress: OnProgress<'_>,
    mut skip: impl FnMut(&str, &str),
    mut told: impl FnMut(SizeResult),
) -> Result<(), BenchError> {
    let is_wanted =
        |program: &&Program| settings.programs.is_empty() || settings.programs.iter().any(|name| name == program.name);
    let programs: Vec<&Program> = PROGRAMS.iter().filter(is_wanted).collect();
    for (number, program) in programs.iter().enumerate() {
        let share = |of: f64| (number as f64 + of) / programs.len() as f64;
        progress(&format!("{}: prepare", program.name), share(0.0));
        let Some(task) = Task::prepare(program, settings.scale)? else {
            skip(program.name, &format!("type `apt-get install {}` as root", program.package));
            continue;
        };
        let bench = OfProgram { settings, launch, task: &task };
        let mut show = |what: &str, of: f64| progress(&format!("{}: {what}", program.name), share(of));
        for result in bench.run(program, &mut show)? {
            told(result);
        }
    }
    Ok(())
}

struct OfProgram<'a> {
    settings: &'a Settings,
    launch: &'a dyn Launch,
    task: &'a Task,
}

impl OfProgram<'_> {
    fn run(&self, program: &Program, show: OnProgress<'_>) -> Result<Vec<SizeResult>, BenchError> {
        show("alone", 0.0);
        let Settings { far, points, size_prefix, run_prefix, stop, .. } = self.settings;
        let told = Told { launch: self.launch, task: self.task, stop };
        let shared = [("{far}", far.clone()), ("{memory}", MEMORY.to_owned()), ("{points}", points.to_string())];
        let alone = told.run_alone(NATIVE_TIME_MAX)?;
        let time_max = TIME_LIMIT.of(alone.wall_seconds);
        show("size", 0.1);
        let (_, sized) = told.run::<Sized>(size_prefix, &shared, time_max)?;
        let points = &sized.far.first().ok_or_else(|| BenchError::Child("nothing was predicted".to_owned()))?.points;
        let all = points.last().map_or(0.0, |point| point.seconds);
        let mut took = vec![(Vec::new(), 0, 0); points.len()];
        for turn in 0..self.settings.runs {
            for (number, point) in points.iter().enumerate() {
                let of = (turn * points.len() + number) as f64 / (self.settings.runs * points.len()) as f64;
                show(&format!("run {}/{}", turn + 1, self.settings.runs), 0.2 + 0.8 * of);
                let values = [&shared[..], &[("{local}", point.local_bytes.to_string())]].concat();
                let (trial, ran) = told.run::<Ran>(run_prefix, &values, time_max)?;
                let (seconds, fetched, wrong) = &mut took[number];
                seconds.push(trial.wall_seconds);
                (*fetched, *wrong) = (ran.fetched_bytes / PAGE_BYTES as u64, *wrong + trial.wrong);
            }
        }
        let is_server = matches!(self.task.work(), Work::Serve { .. });
        let result = |(point, (mut seconds, fetched_pages, wrong)): (&OfSize, (Vec<f64>, u64, u64))| {
            seconds.sort_by(f64::total_cmp);
            let took = median(&seconds).unwrap_or_default();
            let predicted_seconds = if is_server { alone.wall_seconds + point.seconds - all } else { point.seconds };
            SizeResult {
                bench: "size",
                program: program.name,
                scale: self.settings.scale,
                far: self.settings.far.clone(),
                local_bytes: point.local_bytes,
                predicted_seconds,
                seconds: took,
                seconds_spread: ends(&seconds).unwrap_or_default(),
                error: predicted_seconds / took - 1.0,
                predicted_pages: point.misses,
                fetched_pages,
                wrong,
            }
        };
        Ok(points.iter().zip(took).map(result).collect())
    }
}
