//! The fuzzer's command line: `smoke`, `run TARGET`, `replay TARGET FILE`, `list`. `cargo xtask fuzz` calls it.
//!
//! Each search is a process of its own, so that an input that ends the process is found as any other: the parent reads
//! it from where the child has kept it. `search TARGET` is that child.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use yonder_fuzz::driver::{Campaign, Found, Limits, Watch, corpus_of, execute, read_corpus, save};
use yonder_fuzz::{TARGETS, Target, Trail, target};

/// Seconds of a smoke run.
const SMOKE_SECONDS: u64 = 30;
/// Seconds of a run of one target.
const RUN_SECONDS: u64 = 60;
/// Inputs that one run adds to a corpus, at most.
const KEPT_MAX: usize = 24;
/// How often a run that does not end is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How a process ends that has said what is wrong.
const FAILED: u8 = 1;

/// Hostile inputs for everything that parses or executes what others send.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask fuzz", override_usage = USAGE)]
struct Arguments {
    /// smoke, a target, replay, or list.
    what: String,
    /// The target that is replayed.
    target: Option<String>,
    /// The input that is.
    file: Option<PathBuf>,
    /// How long: 30 for all targets, 60 for one.
    #[arg(long)]
    seconds: Option<u64>,
    /// Another seed is another search.
    #[arg(long, default_value = "0")]
    seed: u64,
    /// Inputs that reach something new are added to the corpus.
    #[arg(long)]
    keep: bool,
}

const USAGE: &str = "
  smoke [--seconds N]                      every target, N seconds in all
  TARGET [--seconds N] [--seed N] [--keep] one target for N seconds
  replay TARGET FILE                       one input
  list                                     the targets";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match (arguments.what.as_str(), &arguments.target, &arguments.file) {
        ("smoke", None, None) => smoke(&arguments),
        ("search", Some(name), None) => target(name).and_then(|found| search(found, &arguments)),
        ("replay", Some(name), Some(file)) => target(name).and_then(|found| replay(found, file)),
        ("list", None, None) => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        (name, None, None) => target(name).and_then(|found| supervise(found, &arguments)),
        _ => Err(format!("type one of{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            if !message.is_empty() {
                eprintln!("fuzz: {message}");
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Every target for a while. All of them are run, also after one has failed.
fn smoke(arguments: &Arguments) -> Result<(), String> {
    let seconds = arguments.seconds.unwrap_or(SMOKE_SECONDS).div_ceil(TARGETS.len() as u64);
    let each = Arguments { seconds: Some(seconds), ..arguments.clone() };
    let failed: Vec<String> = TARGETS.iter().filter_map(|target| supervise(target, &each).err()).collect();
    for message in failed.iter().filter(|message| !message.is_empty()) {
        eprintln!("fuzz: {message}");
    }
    if failed.is_empty() { Ok(()) } else { Err(String::new()) }
}

/// Runs a search in a process of its own, and reports how that ended if it could not do so itself.
fn supervise(target: &Target, arguments: &Arguments) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["search", target.name, "--seed", &arguments.seed.to_string()]);
    command.args(["--seconds", &arguments.seconds.unwrap_or(RUN_SECONDS).to_string()]);
    if arguments.keep {
        command.arg("--keep");
    }
    let status = command.status().map_err(|error| format!("{}: {error}", target.name))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(FAILED) => Err(String::new()),
        _ => {
            let input = Watch::last_input(&running_file(target)?).unwrap_or_default();
            Err(report(target, &input, &format!("the process ended with {status}"))?)
        }
    }
}

/// Searches for an input that fails.
fn search(target: &'static Target, arguments: &Arguments) -> Result<(), String> {
    let running = running_file(target)?;
    let watch = Arc::new(Watch::new(&running)?);
    let watched = Arc::clone(&watch);
    std::thread::spawn(move || look_after(target, &watched, &running));
    let corpus = read_corpus(&corpus_of(target.name))?;
    let mut campaign = Campaign::new(target, arguments.seed, &watch);
    let (start, seconds) = (Instant::now(), arguments.seconds.unwrap_or(RUN_SECONDS));
    let limits = Limits { until: start + Duration::from_secs(seconds), executions_max: u64::MAX };
    let outcome = campaign.run(&corpus, &limits);
    let (executions, elapsed) = (campaign.executions(), start.elapsed().as_secs_f64());
    let (reached, kept) = (campaign.reached(), campaign.kept());
    let name = target.name;
    println!("{name:>9}: {executions} executions in {elapsed:.1} s, {reached} things reached by {kept} inputs");
    if let Err(Found { input, fault }) = outcome {
        return Err(report(target, &input, &format!("{} at {}", fault.message, fault.place))?);
    }
    if arguments.keep {
        for input in campaign.best(KEPT_MAX).into_iter().filter(|input| !corpus.iter().any(|known| known == input)) {
            save(&corpus_of(name), "reaches", input)?;
        }
    }
    Ok(())
}

/// Ends the process if one run takes too long.
fn look_after(target: &Target, watch: &Watch, running: &Path) {
    while !watch.is_stuck() {
        std::thread::sleep(LOOK_INTERVAL);
    }
    let input = Watch::last_input(running).unwrap_or_default();
    match report(target, &input, "one run does not end") {
        Ok(message) | Err(message) => eprintln!("fuzz: {message}"),
    }
    std::process::exit(i32::from(FAILED));
}

/// Saves an input that fails, and says what it does and how to see it again.
fn report(target: &Target, input: &[u8], what: &str) -> Result<String, String> {
    let path = save(&results_folder()?, target.name, input)?;
    let (name, path) = (target.name, path.display());
    let (bytes, what) = (input.len(), what.trim());
    Ok(format!(
        "{name}: {what}\n  the input: {path} ({bytes} bytes)\n  again:     cargo xtask fuzz replay {name} {path}\n  \
         when it is mended, put the input into fuzz/corpus/{name}/ under a name that says what was wrong"
    ))
}

/// Runs one input, so that a panic is printed as any other.
fn replay(target: &Target, file: &Path) -> Result<(), String> {
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    execute(target, &input, &mut Trail::default())
        .map_err(|fault| format!("{}: {} at {}", target.name, fault.message.trim(), fault.place))?;
    println!("{}: {} bytes, nothing is wrong", target.name, input.len());
    Ok(())
}

/// Beside this program, in the build folder.
fn results_folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    Ok(program.parent().and_then(Path::parent).unwrap_or(Path::new(".")).join("fuzz"))
}

fn running_file(target: &Target) -> Result<PathBuf, String> {
    Ok(results_folder()?.join(format!("{}.running", target.name)))
}
