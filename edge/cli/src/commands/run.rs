//! `yonder run`: an unmodified program whose memory is far.
//!
//! `program` finds it and says why it cannot be run, `guide` does that for the guide that it runs with. `process`
//! becomes it, with the library that does the work; here is what a helper does meanwhile: it watches, and tells figures
//! when the program ends. `uncovered` sees what the limit does not cover. `report` makes a picture of its faults, in
//! which `symbols` names the code.

mod guide;
mod process;
pub(super) mod program;
mod report;
pub(crate) mod size;
mod symbols;
mod uncovered;

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use rustix::process::Signal;
use serde::Serialize;
use tempfile::TempDir;
use yonder::Config;
use yonder::units::{PAGE_BYTES, format_bytes};
use yonder_fabric::{Credentials, end_space, keeps_in_file};
use yonder_preload_protocol::{
    Faults, Figures, PROCESSES_MAX, Settings, SharedStats, Space, pid_namespace, traces, trim_trace,
};
use yonder_uffd::{Delivery, Uffd};

use self::process::{CredentialVariables, Part, Watched, is_gone};
use self::report::{ReportFile, RunSummary};
use self::uncovered::{Uncovered, Watch};
use crate::args::RunArgs;
use crate::commands::ctl::folder_for_programs;

/// The library that is preloaded.
const LIBRARY: &str = "libyonder_preload.so";
/// How often the figures are looked at while the program runs.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// What a run that lasts longer shows how it goes on.
const LONG: Duration = Duration::from_secs(2);
/// How often at its beginning, so that a short one is seen as well.
const LOOK_FIRST: Duration = Duration::from_millis(20);
/// Exit code of what a user has typed wrong.
const USAGE: u8 = 2;

/// Becomes the program. A helper, which the program does not see, prepares all of it, watches, and tells the figures:
/// whatever knows the process by its number, its parent, its terminal, and whatever ends it, meet the program itself.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    become_program(&args.program, args.summary.as_deref(), |program, summary, draws| {
        help(args, program, summary, draws)
    })
}

/// Becomes a program that is helped by `help`, which is told where the summary goes, and whether it may draw.
fn become_program<'a>(
    words: &[OsString],
    summary: Option<&'a Path>,
    help: impl FnOnce(&mut Watched, Option<SummaryFile<'a>>, bool) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    // The program's own output goes first: on a terminal, nothing is drawn into it.
    let draws = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
    // It may be a descriptor of this process, which the helper does not have.
    let summary = match summary.map(SummaryFile::open).transpose() {
        Ok(summary) => summary,
        Err(error) => {
            say(&format!("yonder: --summary {error:#}"));
            return Ok(ExitCode::from(USAGE));
        }
    };
    match process::part()? {
        Part::Program(program) => program.execute(words),
        Part::Helper(mut program) => {
            if let Err(error) = help(&mut program, summary, draws) {
                say(&format!("yonder: {error:#}"));
                program.refuse(1);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Where the summary goes.
struct SummaryFile<'a> {
    path: &'a Path,
    file: File,
    /// Whether it was made for this, and has nothing in it.
    is_new: bool,
}

impl<'a> SummaryFile<'a> {
    /// Leaves what is in it until there is something else.
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let is_new = !path.exists();
        let file = File::options().append(is_descriptor(path)).write(true).create(true).truncate(false).open(path);
        Ok(Self { path, file: file.with_context(|| format!("cannot be written to {}", path.display()))?, is_new })
    }

    fn write(mut self, summary: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(summary)? + "\n";
        if !is_descriptor(self.path) {
            // A pipe has no length.
            let _ = self.file.set_len(0);
        }
        self.is_new = false;
        self.file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Whether others may write there as well, such as the program to its standard output.
fn is_descriptor(path: &Path) -> bool {
    ["/dev", "/proc"].iter().any(|folder| path.starts_with(folder))
}

impl Drop for SummaryFile<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // Nothing was run.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// Says something to whoever has started the run, if he still listens.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// What the helper does. What is wrong before the program runs is said here, and its process ends with a code.
fn help(
    args: &RunArgs,
    program: &mut Watched,
    summary_file: Option<SummaryFile<'_>>,
    draws: bool,
) -> anyhow::Result<()> {
    let (ends, end) = program.watch()?;
    let library = find_library()?;
    let Checked { local_bytes, guide, report, credential } = match check(args, &library) {
        Ok(checked) => checked,
        Err(error) => {
            say(&format!("yonder: {error:#}"));
            program.refuse(USAGE);
            return Ok(());
        }
    };
    let folder = folder_of_run("run", program)?;
    let path = args.board.clone().unwrap_or_else(|| folder.path().join("board"));
    let board = SharedStats::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let settings = Settings {
        far: args.far.clone(),
        local_bytes,
        slowdown: args.slowdown(),
        memory_bytes: args.memory,
        prefetch: args.prefetch,
        faults: args.faults.into(),
        transfer: args.transfer.into(),
        board: path,
        guide,
        records: report.as_ref().map(|_| folder.path().to_owned()),
        trace: args.trace.as_deref().map(std::path::absolute).transpose()?,
        sample: None,
        control: folder_for_programs(),
        process: program.id(),
    };

    let (board, began) = (Arc::new(board), Instant::now());
    if !program.begin(&library, &credential, &settings, board.clone(), ends)? {
        // It has said why, or was ended before.
        return Ok(());
    }
    let (uncovered, is_over) = watch(program, &end, &board, args.strict, draws);
    let summary = Summary::new(args, &settings, &board.figures(), uncovered, began.elapsed());
    let told = tell(args, &summary, summary_file, &board, report.as_ref(), folder.path());
    if let Err(error) = &told {
        say(&format!("yonder: {error:#}"));
    }
    // The end of a container's first process is this one's too.
    drop(folder);
    board.let_end(is_over || told.is_err());
    program.wait_for_end();
    end_spaces(&board, &args.far);
    if keeps_in_file(&args.far) {
        // Who opens a store that nobody uses gives its bytes back to the disk.
        drop(yonder::open(&args.far));
    }
    if let Some(stem) = &settings.trace {
        for path in traces(stem, board.figures().processes) {
            let touches = trim_trace(&path).with_context(|| format!("cannot read {}", path.display()))?;
            say(&format!("trace: {}, {touches} touches", path.display()));
        }
    }
    Ok(())
}

/// A folder for the files that a run's processes share. What is in it opens their far memory, so no other user may look
/// in, whatever the mask of new files is.
fn folder_of_run(command: &str, program: &Watched) -> anyhow::Result<TempDir> {
    let prefix = format!("yonder-{command}-{}-", program.id().number);
    let made = tempfile::Builder::new().prefix(&prefix).permissions(Permissions::from_mode(0o700)).tempdir();
    made.context("there is no folder for temporary files")
}

/// Tells what a run has come to.
fn tell(
    args: &RunArgs,
    summary: &Summary,
    file: Option<SummaryFile<'_>>,
    board: &SharedStats,
    report: Option<&ReportFile<'_>>,
    records: &Path,
) -> anyhow::Result<()> {
    say(&summary.to_string());
    if let Some(file) = file {
        file.write(summary)?;
    }
    if let Some(report) = report {
        let totals = summary.to_string().replacen("yonder run: ", "", 1);
        let figures = board.figures();
        let summary = RunSummary { title: title_of(&args.program), far: &args.far, totals, figures: &figures };
        say(&format!("report: {}", report.write(records, &summary)?.display()));
    }
    Ok(())
}

/// Gives the memory of processes that are gone for certain back to the node. What does not work, or belongs to others,
/// the node takes back when their leases are over.
fn end_spaces(board: &SharedStats, far: &str) {
    let here = pid_namespace();
    let is_gone = |space: &Space| here == Some(space.namespace) && is_gone(space.process);
    for space in board.spaces().into_iter().filter(is_gone) {
        let _ = end_space(far, Credentials { pid: space.number, capability: space.capability });
    }
}

/// What was run, as it is typed.
fn title_of(program: &[OsString]) -> String {
    let words = program.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// What a run needs beside its arguments.
struct Checked<'a> {
    local_bytes: u64,
    guide: Option<PathBuf>,
    report: Option<ReportFile<'a>>,
    credential: CredentialVariables,
}

/// Says what cannot work before anything is started, and where the guide is.
fn check<'a>(args: &'a RunArgs, library: &Path) -> anyhow::Result<Checked<'a>> {
    args.credential.show()?;
    let credential = args.credential.child_variables()?;
    let local_bytes = args.local_bytes()?;
    Config::with_local(local_bytes).check()?;
    program::check(&args.program[0])?;
    let delivery = match args.faults.into() {
        Faults::Inline => Delivery::Signal,
        Faults::Monitor => Delivery::Messages,
    };
    Uffd::open_for(delivery)?;
    let guides = library.parent().unwrap_or(Path::new("/"));
    let guide = args.guide.as_ref().map(|named| guide::find(named, guides)).transpose()?;
    // The program opens it again; whether that can work is better known now.
    let far = yonder::open(&args.far)?;
    if keeps_in_file(&args.far) {
        // Each process takes the room for all of its memory from the disk when it begins.
        far.allocate(args.memory.next_multiple_of(PAGE_BYTES as u64))?;
    }
    if let Some(stem) = &args.trace {
        let faults: Faults = args.faults.into();
        ensure!(
            faults == Faults::Inline,
            "threads that watch for faults see no touches: --trace needs --faults inline"
        );
        let old = traces(stem, PROCESSES_MAX);
        ensure!(old.is_empty(), "--trace would write over {}: remove it, or name another file", old[0].display());
    }
    let report = args.report.as_ref().map(|path| ReportFile::check(path, args.faults.into())).transpose()?;
    Ok(Checked { local_bytes, guide, report, credential })
}

/// The guide of this name, if a program can be run with it.
pub(crate) fn find_guide(name: &str) -> anyhow::Result<PathBuf> {
    guide::find(name, find_library()?.parent().unwrap_or(Path::new("/")))
}

/// The library, beside this program or where it is installed.
pub(crate) fn find_library() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find where yonder is")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places =
        [folder.join(LIBRARY), folder.join("../lib/yonder").join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    found.and_then(|place| place.canonicalize().ok()).with_context(|| {
        format!("{LIBRARY} is not beside {}: build it with `cargo build --release -p yonder-preload`", own.display())
    })
}

/// Watches the program until it is about to end, or has, and shows how it goes on. Ends it if it has more memory than
/// `allowed` that the limit does not cover. Returns what was seen of that, and whether it was more than is allowed.
fn watch(
    program: &Watched,
    end: &Receiver<()>,
    board: &SharedStats,
    allowed: Option<u64>,
    draws: bool,
) -> (Uncovered, bool) {
    let began = Instant::now();
    let mut spinner: Option<ProgressBar> = None;
    let mut processes = Watch::of(program.id().number);
    let mut is_over = false;
    let pause = || if began.elapsed() < LONG { LOOK_FIRST } else { LOOK_EVERY };
    while end.recv_timeout(pause()) == Err(RecvTimeoutError::Timeout) {
        let seen = processes.look(board);
        if let Some(allowed) = allowed.filter(|allowed| !is_over && seen.bytes > *allowed) {
            is_over = true;
            say(&format!(
                "yonder: not far are {seen}, which is more than --strict={} allows: type a larger size, or run it \
                 without --strict",
                format_bytes(allowed)
            ));
            if program.id().number == 1 {
                say("yonder: the kernel ends no first process of a container: it goes on, and its exit code will be 1");
            }
            processes.signal(Signal::TERM);
        }
        if draws && began.elapsed() > LONG {
            let spinner = spinner.get_or_insert_with(ProgressBar::new_spinner);
            spinner.set_message(progress(&board.figures()));
            spinner.tick();
        }
    }
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    (processes.most(), is_over)
}

fn progress(figures: &Figures) -> String {
    format!(
        "{} far, {} local at most; {} fetched, {} written",
        format_bytes(figures.peak_far_bytes),
        format_bytes(figures.peak_local_bytes),
        format_bytes(figures.fetched_bytes),
        format_bytes(figures.written_bytes)
    )
}

/// What a run has come to.
#[derive(Serialize)]
struct Summary {
    program: String,
    far: String,
    memory_bytes: u64,
    local_bytes: u64,
    guide: Option<String>,
    seconds: f64,
    /// Processes whose memory was far.
    processes: u64,
    major_faults: u64,
    minor_faults: u64,
    fetched_bytes: u64,
    written_bytes: u64,
    saved_bytes: u64,
    waited_seconds: f64,
    /// CPU time of the program's own work, and how long faults of all kinds have held it up.
    worked_seconds: f64,
    stalled_seconds: f64,
    peak_local_bytes: u64,
    /// Over the time of the run.
    average_local_bytes: u64,
    /// What was allowed, if the program found out by itself how much local memory it needs.
    slowdown: Option<f64>,
    peak_far_bytes: u64,
    far_calls: u64,
    trapped_calls: u64,
    #[serde(flatten)]
    uncovered: Uncovered,
}

impl Summary {
    fn new(args: &RunArgs, settings: &Settings, figures: &Figures, uncovered: Uncovered, ran: Duration) -> Self {
        Self {
            program: args.program[0].to_string_lossy().into_owned(),
            far: settings.far.clone(),
            memory_bytes: settings.memory_bytes,
            local_bytes: settings.local_bytes,
            guide: args.guide.clone(),
            seconds: ran.as_secs_f64(),
            processes: figures.processes,
            major_faults: figures.major_faults,
            minor_faults: figures.minor_faults,
            fetched_bytes: figures.fetched_bytes,
            written_bytes: figures.written_bytes,
            saved_bytes: figures.saved_bytes,
            waited_seconds: Duration::from_nanos(figures.waited_ns).as_secs_f64(),
            worked_seconds: Duration::from_nanos(figures.worked_ns).as_secs_f64(),
            stalled_seconds: Duration::from_nanos(figures.stalled_ns).as_secs_f64(),
            peak_local_bytes: figures.peak_local_bytes,
            average_local_bytes: average_local_bytes(figures, ran),
            slowdown: settings.slowdown.map(|millionths| f64::from(millionths) / 1e6),
            peak_far_bytes: figures.peak_far_bytes,
            far_calls: figures.far_calls,
            trapped_calls: figures.trapped_calls,
            uncovered,
        }
    }
}

/// How much of their memory was local, of all processes together, over the time of the run.
fn average_local_bytes(figures: &Figures, ran: Duration) -> u64 {
    figures.local_byte_ms / u64::try_from(ran.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.processes == 0 {
            return write!(
                f,
                "yonder run: {:.2} s; too little memory was used for any of it to be far; not far are {}",
                self.seconds, self.uncovered
            );
        }
        let peak = format_bytes(self.peak_local_bytes);
        let local = match self.slowdown {
            Some(slowdown) => {
                let average = format_bytes(self.average_local_bytes);
                format!("{average} local on average and {peak} at most, for {} %", slowdown * 100.0)
            }
            None => format!("{peak} of {} local at most", format_bytes(self.local_bytes)),
        };
        write!(
            f,
            "yonder run: {:.2} s; {} far and {local}; {} major and {} minor faults, {} fetched, {} \
             written; {:.2} s waited for pages; not far are {}",
            self.seconds,
            format_bytes(self.peak_far_bytes),
            self.major_faults,
            self.minor_faults,
            format_bytes(self.fetched_bytes),
            format_bytes(self.written_bytes),
            self.waited_seconds,
            self.uncovered
        )
    }
}
