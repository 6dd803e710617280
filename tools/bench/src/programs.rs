//! `bench programs`: unmodified programs, alone, under `yonder run`, and limited to the same memory with swap on zram.
//!
//! A program does the same work in each variant, and what it writes, or what its client reads, must be the same. The
//! first variant runs it alone and measures the most memory it takes, its peak. Yonder's then has a share of the peak
//! as local memory. The third has the same bytes as a limit of a control group, for everything the program takes: the
//! kernel's own way. Variants take turns, and ratios compare runs of one turn.
//!
//! `catalogue` has the programs, `trial` runs and checks one, which `process` watches, `servers` is the client of those
//! that serve, `kernel_swap` is the kernel's side. A variant that cannot run is skipped with a reason that says what to
//! type. `own` does the same with a program of the user, for `yonder try`.

pub mod auto;
mod catalogue;
mod own;
mod series;
mod servers;
pub mod size;
mod told;
pub mod trade;
mod trial;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use yonder::units::{LocalSize, format_bytes};

use crate::BenchError;
use crate::children::Launch;
use crate::comparison::{self, Ended};
use crate::flags::{BENCHMARK, positive_count};
use crate::kernel_swap::{Group, KernelSwap, SwapOn};
use crate::policies::name_of;
use crate::process::End;
use catalogue::{PROGRAMS, Program};

pub use own::{Own, OwnResult};
pub use series::Figures;
use trial::{Runner, Task, Trial};

/// How long a program may take alone.
const NATIVE_TIME_MAX: Duration = Duration::from_secs(600);
/// How long it may take in another variant, as a multiple of its time alone, and at least.
const TIME_LIMIT: TimeLimit = TimeLimit { times_longer: 30.0, least: Duration::from_secs(60) };
/// Far memory as a multiple of the peak, and at least: heaps are larger than what is resident of them, and sort asks
/// for its buffer of 2 GiB at once.
const FAR_TIMES_PEAK: u64 = 2;
const FAR_BYTES_MIN: u64 = 3 << 30;

/// How much work programs are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Some tenths of a second each, to see that everything works
    Small,
    /// Some hundred MB and some seconds each
    Full,
}

impl Scale {
    /// One number for each scale.
    fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// One way to run a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// Alone
    Native,
    /// Under yonder run
    Yonder,
    /// Limited to the same bytes by a control group, with swap on zram
    Zram,
}

/// What `yonder bench programs --help` ends with.
const AFTER_HELP: &str = "\
How much slower a program gets with less and less local memory, beside the kernel's swap:
  yonder bench programs --programs redis-server,sort --local 100%,50%,25%,12.5%

The leg with zram needs root, to make a control group and to swap to a zram device; both are undone at the
end.";

impl Variant {
    /// What results call it.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Far memory of Yonder's variant: tcp://host:port, shm:///path.sock, or emu://, emulated in the program's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us")]
    pub far: String,
    /// Local memory, with commas between: sizes, or percentages of what the program takes when it runs alone
    #[arg(long, value_name = "SIZE|PCT", default_value = "25%", value_delimiter = ',')]
    pub local: Vec<LocalSize>,
    /// Which programs, with commas between; all that are packages if not given, and none of yonder's own workloads
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", value_delimiter = ',', value_parser = known_program)]
    pub programs: Vec<String>,
    /// Which ways to run them are shown, with commas between; each program runs alone first in any case
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "native,yonder,zram", value_delimiter = ',')]
    pub legs: Vec<Variant>,
    /// How much work they are given
    #[arg(long, help_heading = BENCHMARK, value_name = "SCALE", default_value = "full")]
    pub scale: Scale,
    /// Runs of each program in each way; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub runs: usize,
    /// What comes before a program in Yonder's variant. The words `{far}`, `{local}` and `{memory}` stand for the URL
    /// and the bytes
    #[arg(skip)]
    pub prefix: Vec<String>,
    /// Becomes true when the user wants to stop: programs are killed, and what was set up is undone
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

fn known_program(text: &str) -> Result<String, String> {
    if names().contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("'{text}' is no program of this benchmark: type {}", names().join(", ")))
}

/// One variant of one program; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramResult {
    /// Always `programs`.
    pub bench: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// `small` or `full`.
    pub scale: Scale,
    /// Far memory, of Yonder's variant.
    pub far: Option<String>,
    /// The kernel's swap, of the variant with zram.
    pub swap: Option<String>,
    /// What the variant has come to.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A comparison, and the swap that it stands on.
pub struct Bench<'a> {
    settings: &'a Settings,
    launch: &'a dyn Launch,
    programs: Vec<Program>,
    /// The kernel's side of the comparison, or why there is none.
    kernel: Result<KernelSwap, String>,
}

/// How long a program may take in another variant than alone.
#[derive(Clone, Copy, PartialEq, Debug)]
struct TimeLimit {
    /// A multiple of its time alone.
    times_longer: f64,
    least: Duration,
}

impl TimeLimit {
    fn of(self, alone_seconds: f64) -> Duration {
        Duration::from_secs_f64(alone_seconds * self.times_longer).max(self.least)
    }
}

/// A program in all variants.
struct Compared {
    native: Series,
    limited: Vec<Series>,
}

/// The runs of a variant with one local memory; there is no limit of the program alone.
type Series = comparison::Series<(Variant, Option<u64>), Trial>;

/// What a program that ran alone allows the other variants.
struct Limits {
    time_max: Duration,
    peak_bytes: u64,
}

/// Names of all programs, in the order in which they run.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|program| program.name).collect()
}

/// Names of those that are installed packages, in the order in which they run: what is run if nobody says otherwise.
#[must_use]
pub fn packaged() -> Vec<&'static str> {
    PROGRAMS.iter().filter(|program| !program.is_workload()).map(|program| program.name).collect()
}

impl<'a> Bench<'a> {
    /// Finds the programs, and sets up swap if a variant needs it.
    pub fn prepare(settings: &'a Settings, launch: &'a dyn Launch) -> Result<Self, BenchError> {
        let named = |name: &String| PROGRAMS.iter().find(|program| program.name == name).copied();
        let programs = match &*settings.programs {
            [] => PROGRAMS.iter().filter(|program| !program.is_workload()).copied().collect(),
            names => names.iter().filter_map(named).collect(),
        };
        let is_asked_for = settings.legs.contains(&Variant::Zram);
        let kernel = if is_asked_for { KernelSwap::ready(&SwapOn::Zram) } else { Err("not asked for".to_owned()) };
        Ok(Self { settings, launch, programs, kernel })
    }

    /// How many programs there are to run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.programs.len()
    }

    /// Runs a program in each variant, and returns a result for each variant and local memory. `progress` gets what
    /// runs.
    pub fn run(&self, number: usize, progress: &mut dyn FnMut(&str)) -> Result<Vec<ProgramResult>, BenchError> {
        let program = &self.programs[number];
        progress(&format!("{}: prepare", program.name));
        let Some(task) = Task::prepare(program, self.settings.scale)? else {
            let reason = format!("not installed: type `apt-get install {}` as root", program.package);
            let skipped = |leg: &Variant| Series { skipped: Some(reason.clone()), ..Series::new((*leg, None)) };
            let all = self.settings.legs.iter().map(skipped);
            return Ok(all.map(|series| self.result(program, &series, &series, None)).collect());
        };
        let compared = self.compare(program.name, &task, TIME_LIMIT, progress)?;
        let results =
            compared.all().map(|series| self.result(program, series, &compared.native, compared.zram_of(series)));
        Ok(results.filter(|result| self.settings.legs.contains(&result.figures.leg)).collect())
    }

    /// Runs a task in each variant, in turns.
    fn compare(
        &self,
        name: &str,
        task: &Task,
        time_limit: TimeLimit,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Compared, BenchError> {
        let mut native = Series::new((Variant::Native, None));
        let mut limited: Vec<Series> = Vec::new();
        for turn in 1..=self.settings.runs {
            let mut show = |leg: Variant, bytes: Option<u64>| {
                let local = bytes.map_or_else(String::new, |bytes| format!(", {} local", format_bytes(bytes)));
                progress(&format!("{name}: {}{local} ({turn}/{})", leg.name(), self.settings.runs));
            };
            show(Variant::Native, None);
            native.attempt(|_| Ok::<_, BenchError>(ended(self.trial(task, &[], NATIVE_TIME_MAX)?)))?;
            // The program alone is what the others' limits follow from.
            let Some(alone) = native.trials.last().filter(|_| !native.is_over()) else { break };
            let limits = Limits { time_max: time_limit.of(alone.wall_seconds), peak_bytes: alone.peak_bytes };
            if turn == 1 {
                limited = self.limited(alone.peak_bytes);
            }
            for number in 0..limited.len() {
                // Each turn begins with another one.
                let number = (number + turn - 1) % limited.len();
                let series = &mut limited[number];
                if series.is_over() {
                    continue;
                }
                show(series.variant.0, series.variant.1);
                series.attempt(|(leg, bytes)| {
                    let bytes = bytes.expect("only the program alone has no limit");
                    self.run_limited(task, *leg, bytes, &limits)
                })?;
            }
        }
        if limited.is_empty() {
            let failed = native.failed.as_ref().map(|how| format!("alone it failed: {how}"));
            let without = |leg: &Variant| Series { failed: failed.clone(), ..Series::new((*leg, None)) };
            limited = self.settings.legs.iter().filter(|leg| **leg != Variant::Native).map(without).collect();
        }
        Ok(Compared { native, limited })
    }

    /// Each variant with each local memory, without runs.
    fn limited(&self, native_peak_bytes: u64) -> Vec<Series> {
        let local = self.settings.local.iter().map(|local| local.resolve(native_peak_bytes));
        let all = local.flat_map(|bytes| [Variant::Yonder, Variant::Zram].map(|leg| (leg, Some(bytes))));
        all.filter(|(leg, _)| self.settings.legs.contains(leg)).map(Series::new).collect()
    }

    /// Runs a program once with limited memory.
    fn run_limited(&self, task: &Task, leg: Variant, bytes: u64, native: &Limits) -> Result<Ended<Trial>, BenchError> {
        if leg == Variant::Yonder {
            let prefix = self.yonder_prefix(bytes, native.peak_bytes);
            return Ok(ended(self.trial(task, &prefix, native.time_max)?));
        }
        let group = match self.group(bytes) {
            Ok(group) => group,
            Err(missing) => return Ok(Ended::Skipped(missing)),
        };
        let trial = self.trial(task, &group.prefix(), native.time_max)?;
        let is_killed = trial.end != End::Well && group.was_out_of_memory();
        Ok(if is_killed { Ended::OutOfMemory } else { ended(trial) })
    }

    fn group(&self, bytes: u64) -> Result<Group, String> {
        self.kernel.as_ref().map_err(String::clone)?.group(bytes)
    }

    /// What comes before a program in Yonder's variant.
    fn yonder_prefix(&self, local_bytes: u64, peak_bytes: u64) -> Vec<OsString> {
        let far_bytes = (peak_bytes * FAR_TIMES_PEAK).max(FAR_BYTES_MIN);
        let word = |word: &String| match word.as_str() {
            "{far}" => self.settings.far.clone().into(),
            "{local}" => local_bytes.to_string().into(),
            "{memory}" => far_bytes.to_string().into(),
            _ => word.into(),
        };
        self.settings.prefix.iter().map(word).collect()
    }

    fn trial(&self, task: &Task, prefix: &[OsString], time_max: Duration) -> Result<Trial, BenchError> {
        task.run(Runner { launch: self.launch, prefix, time_max, stop: &self.settings.stop })
    }

    fn result(&self, program: &Program, series: &Series, native: &Series, zram: Option<&Series>) -> ProgramResult {
        let settings = self.settings;
        ProgramResult {
            bench: "programs",
            program: program.name,
            scale: settings.scale,
            far: (series.variant.0 == Variant::Yonder).then(|| settings.far.clone()),
            swap: self
                .kernel
                .as_ref()
                .ok()
                .filter(|_| series.variant.0 == Variant::Zram)
                .map(|kernel| kernel.name.clone()),
            figures: series.beside(native, zram),
        }
    }
}

impl Compared {
    /// The program alone first.
    fn all(&self) -> impl Iterator<Item = &Series> {
        std::iter::once(&self.native).chain(&self.limited)
    }

    /// What runs under Yonder are compared with: those with swap on zram and as much local memory.
    fn zram_of(&self, series: &Series) -> Option<&Series> {
        let (leg, bytes) = series.variant;
        let zram = |other: &&Series| other.variant == (Variant::Zram, bytes);
        self.limited.iter().find(zram).filter(|_| leg == Variant::Yonder)
    }
}

/// What became of a program.
fn ended(trial: Trial) -> Ended<Trial> {
    match trial.end {
        End::Well => Ended::Well(trial),
        End::Badly(how) => Ended::Badly(how),
        End::Killed => Ended::Badly("it was killed".to_owned()),
        End::Late => Ended::Badly(format!("it was stopped after {:.0} s", trial.wall_seconds)),
        End::Stopped => unreachable!("who wants to stop gets no results"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::NoLaunch;

    fn settings(programs: &[&str], prefix: &[&str]) -> Settings {
        Settings {
            programs: programs.iter().map(ToString::to_string).collect(),
            legs: vec![Variant::Native, Variant::Yonder],
            local: vec![LocalSize::Percent(50.0), LocalSize::Bytes(5 << 20)],
            far: "emu://".to_owned(),
            scale: Scale::Small,
            runs: 2,
            prefix: prefix.iter().map(ToString::to_string).collect(),
            stop: Arc::default(),
        }
    }

    fn run(settings: &Settings) -> Vec<ProgramResult> {
        let bench = Bench::prepare(settings, &NoLaunch).unwrap();
        (0..bench.count()).flat_map(|number| bench.run(number, &mut |_| {}).unwrap()).collect()
    }

    #[test]
    fn programs_that_are_installed_are_right_in_every_leg() {
        for results in run(&settings(&["sort", "sqlite3"], &["env"])).chunks(3) {
            if let Some(reason) = &results[0].figures.skipped {
                println!("SKIP: {}: {reason}", results[0].program);
                continue;
            }
            let [native, half, bytes] = results else { panic!("{results:?}") };
            let peak = native.figures.native_peak_bytes.unwrap();
            assert_eq!(
                (native.figures.leg, native.figures.local_bytes, native.figures.ratio),
                (Variant::Native, None, Some(1.0))
            );
            assert_eq!((half.figures.leg, half.figures.local_bytes), (Variant::Yonder, Some(peak / 2)));
            assert_eq!(bytes.figures.local_bytes, Some(5 << 20));
            for result in results {
                assert_eq!(
                    (result.figures.is_right, result.figures.errors, &result.figures.failed),
                    (Some(true), 0, &None),
                    "{result:?}"
                );
                assert_eq!(result.figures.runs, 2);
                assert!(result.figures.seconds.unwrap() > 0.0 && result.figures.ratio.unwrap() > 0.0, "{result:?}");
                assert!(result.figures.peak_bytes.unwrap() > 1 << 20, "{result:?}");
            }
        }
    }

    #[test]
    fn the_prefix_has_far_memory_and_bytes() {
        let settings = settings(&[], &["yonder", "run", "{far}", "{local}", "{memory}", "--"]);
        let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
        let large = (FAR_BYTES_MIN * 2).to_string();
        assert_eq!(bench.yonder_prefix(7, FAR_BYTES_MIN), ["yonder", "run", "emu://", "7", &large, "--"]);
        assert_eq!(bench.yonder_prefix(7, 1)[4], FAR_BYTES_MIN.to_string().as_str());
    }

    #[test]
    fn wrong_and_failing_legs_are_reported_as_such() {
        let results = run(&settings(&["sort"], &["sh", "-c", "\"$@\" | tr 0 1", "sh"]));
        if results[0].figures.skipped.is_some() {
            return println!("SKIP: sort is not installed");
        }
        let told: Vec<_> = results.iter().map(|result| (result.figures.is_right, result.figures.errors)).collect();
        assert_eq!(told, [(Some(true), 0), (Some(false), 2), (Some(false), 2)]);
        let results = run(&settings(&["sort"], &["sh", "-c", "echo no such command >&2; exit 2", "sh"]));
        for result in &results[1..] {
            assert_eq!(result.figures.failed.as_deref(), Some("exit status: 2: no such command"));
            assert_eq!(
                (result.figures.is_right, result.figures.seconds, result.figures.ratio),
                (Some(false), None, None)
            );
        }
    }

    #[test]
    fn who_wants_to_stop_is_obeyed() {
        let settings = settings(&["sort"], &[]);
        settings.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let bench = Bench::prepare(&settings, &NoLaunch).unwrap();
        match bench.run(0, &mut |_| {}) {
            Err(error) => assert_eq!(error.to_string(), "interrupted"),
            Ok(results) => assert!(results[0].figures.skipped.is_some(), "{results:?}"),
        }
    }

    #[test]
    fn a_program_that_nobody_knows_is_refused_with_the_names() {
        let error = known_program("quake").unwrap_err();
        assert!(error.contains("'quake' is no program") && error.contains("type redis-server, memcached"), "{error}");
    }
}
