//! `yonder run`: an unmodified program whose memory is far.
//!
//! `program` finds it and says why it cannot be run, `guide` does that for the guide that it runs with; here it is
//! started with the library that does the work, watched, and its figures are told when it has ended. `uncovered` sees
//! what the limit does not cover. `report` makes a picture of its faults, in which `symbols` names the code.

mod guide;
mod program;
mod report;
mod symbols;
mod uncovered;

use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use yonder::Config;
use yonder::units::{PAGE_BYTES, format_bytes};
use yonder_fabric::{Credentials, end_space, is_tiered, keeps_in_file};
use yonder_preload_protocol::{
    Faults, Figures, PROCESSES_MAX, Settings, SharedStats, Space, pid_namespace, traces, trim_trace,
};

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
/// Exit code of a program that had more than `--strict` allows.
const TOO_MUCH: u8 = 1;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let local_bytes = args.local.resolve(args.memory);
    let library = find_library()?;
    let Checked { guide, report } = match check(args, local_bytes, &library) {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("yonder: {error:#}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    let folder = Scratch::new("run")?;
    let path = args.board.clone().unwrap_or_else(|| folder.path().join("board"));
    let board = SharedStats::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let settings = Settings {
        far: args.far.clone(),
        local_bytes,
        memory_bytes: args.memory,
        prefetch: args.prefetch,
        faults: args.faults.into(),
        transfer: args.transfer.into(),
        board: path,
        guide,
        records: report.as_ref().map(|_| folder.path().to_owned()),
        trace: args.trace.as_deref().map(std::path::absolute).transpose()?,
        control: folder_for_programs(),
    };

    let mut signals = SignalsInfo::<WithOrigin>::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let began = Instant::now();
    let child = start(args, &library, &settings)?;
    let Watched { status, uncovered, is_over } = watch(child, &board, &mut signals, began, args.strict)?;
    end_spaces(&board, &args.far);
    if keeps_in_file(&args.far) {
        // Who opens a store that nobody uses gives its bytes back to the disk.
        drop(yonder::open(&args.far));
    }
    let figures = board.figures();
    let summary = Summary::new(args, &settings, &figures, uncovered, began.elapsed());
    eprintln!("{summary}");
    if let Some(file) = &args.summary {
        let text = serde_json::to_string(&summary)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(stem) = &settings.trace {
        for path in traces(stem, figures.processes) {
            let touches = trim_trace(&path).with_context(|| format!("cannot read {}", path.display()))?;
            eprintln!("trace: {}, {touches} touches", path.display());
        }
    }
    if let Some(report) = report {
        let totals = summary.to_string().replacen("yonder run: ", "", 1);
        let summary = RunSummary { title: title(args), far: &args.far, totals, figures: &figures };
        eprintln!("report: {}", report.write(folder.path(), &summary)?.display());
    }
    Ok(if is_over { ExitCode::from(TOO_MUCH) } else { exit_code(status) })
}

/// Gives the memory of processes that are gone for certain back to the node. What does not work, or belongs to others,
/// the node takes back when their leases are over.
fn end_spaces(board: &SharedStats, far: &str) {
    let here = pid_namespace();
    let is_gone = |space: &Space| {
        let pid = i32::try_from(space.process).ok().and_then(Pid::from_raw);
        here == Some(space.namespace) && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    };
    for space in board.spaces().into_iter().filter(is_gone) {
        let _ = end_space(far, Credentials { pid: space.number, capability: space.capability });
    }
}

/// What was run, as it is typed.
fn title(args: &RunArgs) -> String {
    let words = args.program.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// What a run needs beside its arguments.
struct Checked<'a> {
    guide: Option<PathBuf>,
    report: Option<ReportFile<'a>>,
}

/// Says what cannot work before anything is started, and where the guide is.
fn check<'a>(args: &'a RunArgs, local_bytes: u64, library: &Path) -> anyhow::Result<Checked<'a>> {
    Config::with_local(local_bytes).check()?;
    if is_tiered(&args.far) && keeps_in_file(&args.far) {
        bail!(
            "a program's far memory cannot be in tiers of which one is a file: type --far file:///folder?size=64GiB for the \
             file alone, or --far tcp://host:port for the node alone"
        );
    }
    program::check(&args.program[0])?;
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
    Ok(Checked { guide, report })
}

/// The guide of this name, if a program can be run with it.
pub(crate) fn find_guide(name: &str) -> anyhow::Result<PathBuf> {
    guide::find(name, find_library()?.parent().unwrap_or(Path::new("/")))
}

/// A folder for files of a run, which goes with this.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(what: &str) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("yonder-{what}-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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

fn start(args: &RunArgs, library: &Path, settings: &Settings) -> anyhow::Result<Child> {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]).env("LD_PRELOAD", preload);
    for (name, value) in settings.variables() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn().with_context(|| format!("cannot start {}", args.program[0].to_string_lossy()))
}

/// How a program has ended, and what was seen of it.
struct Watched {
    status: ExitStatus,
    uncovered: Uncovered,
    /// Whether that was more than is allowed.
    is_over: bool,
}

/// Waits for the program, passes signals on to it, and shows how it goes on. Ends it if it has more memory than
/// `allowed` that the limit does not cover.
fn watch(
    mut child: Child,
    board: &SharedStats,
    signals: &mut SignalsInfo<WithOrigin>,
    began: Instant,
    allowed: Option<u64>,
) -> anyhow::Result<Watched> {
    // The program's own output goes first: on a terminal, nothing is drawn into it.
    let shows = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
    let mut spinner: Option<ProgressBar> = None;
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    let pid = Pid::from_child(&child);
    let mut processes = Watch::of(child.id());
    let mut is_over = false;
    let status = std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let status = child.wait();
            drop(ended);
            status
        });
        let pause = || if began.elapsed() < LONG { LOOK_FIRST } else { LOOK_EVERY };
        while has_ended.recv_timeout(pause()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let seen = processes.look(board);
            if let Some(allowed) = allowed.filter(|allowed| !is_over && seen.bytes > *allowed) {
                is_over = true;
                eprintln!(
                    "yonder: not far are {seen}, which is more than --strict={} allows: type a larger size, or run it \
                     without --strict",
                    format_bytes(allowed)
                );
                processes.signal(Signal::TERM);
            }
            for origin in signals.pending() {
                // The terminal sends its signals to the program as well.
                if origin.process.is_some()
                    && let Some(signal) = Signal::from_named_raw(origin.signal)
                {
                    // A program that has just ended takes none.
                    let _ = kill_process(pid, signal);
                }
            }
            if shows && began.elapsed() > LONG {
                let spinner = spinner.get_or_insert_with(ProgressBar::new_spinner);
                spinner.set_message(progress(&board.figures()));
                spinner.tick();
            }
        }
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        waiter.join().expect("the thread only waits").context("cannot wait for the program")
    })?;
    Ok(Watched { status, uncovered: processes.most(), is_over })
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

fn exit_code(status: ExitStatus) -> ExitCode {
    /// What shells add to the number of the signal that ended a program.
    const BY_SIGNAL: i32 = 128;
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1);
    ExitCode::from(code as u8)
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
    peak_local_bytes: u64,
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
            peak_local_bytes: figures.peak_local_bytes,
            peak_far_bytes: figures.peak_far_bytes,
            far_calls: figures.far_calls,
            trapped_calls: figures.trapped_calls,
            uncovered,
        }
    }
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
        write!(
            f,
            "yonder run: {:.2} s; {} far and {} of {} local at most; {} major and {} minor faults, {} fetched, {} \
             written; {:.2} s waited for pages; not far are {}",
            self.seconds,
            format_bytes(self.peak_far_bytes),
            format_bytes(self.peak_local_bytes),
            format_bytes(self.local_bytes),
            self.major_faults,
            self.minor_faults,
            format_bytes(self.fetched_bytes),
            format_bytes(self.written_bytes),
            self.waited_seconds,
            self.uncovered
        )
    }
}
