//! `yonder size`: how much local memory a program needs, from one run with all of it local.
//!
//! The program becomes this process as with `yonder run`. The helper measures what pages cost while the program has not
//! begun, and replays what the program's processes have written down of their samples when it has ended.
//!
//! Neighbours: `core/sizing` predicts, `yonder_bench::costs` measures.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use yonder::Config;
use yonder::units::format_bytes;
use yonder_bench::costs::{Watching, costs, watching, zram};
use yonder_preload_protocol::{
    Faults, Figures, SAMPLE_TOUCHES_MAX, Settings, SharedStats, Transfer, read_sample, samples,
};
use yonder_report::{Line, Picture, Quantity, picture_svg};
use yonder_sizing::{Costs, Curve, Point, Replayed, Sample};
use yonder_uffd::{Delivery, Uffd};

use super::process::{CredentialVariables, Watched};
use super::{SummaryFile, USAGE, become_program, find_library, folder_of_run, program, say, title_of, watch};
use crate::args::SizeArgs;

/// Local memory of which nothing is missed is the program's, and what is kept free for faults: a share of it, and at
/// most so much.
const FREE_SHARE: u64 = 100;
const FREE_BYTES: u64 = 2 << 20;
/// Touches of one process that are replayed for each size, which takes about half a second.
const TOUCHES_MAX: usize = 16 << 20;
/// Share of the time that the watching may take before what is predicted is in doubt.
const WATCHED_SHARE_MAX: f64 = 0.25;
/// Where the samples' pages would be, if memory were ever short.
const NOWHERE: &str = "emu://";

/// Becomes the program; a helper watches and predicts.
pub(crate) fn run(args: &SizeArgs) -> anyhow::Result<ExitCode> {
    become_program(&args.program, args.summary.as_deref(), |program, summary, draws| {
        help(args, program, summary, draws)
    })
}

fn help(
    args: &SizeArgs,
    program: &mut Watched,
    summary_file: Option<SummaryFile<'_>>,
    draws: bool,
) -> anyhow::Result<()> {
    let (ends, end) = program.watch()?;
    let library = find_library()?;
    let credential = match check(args) {
        Ok(credential) => credential,
        Err(error) => {
            say(&format!("yonder: {error:#}"));
            program.refuse(USAGE);
            return Ok(());
        }
    };
    let folder = folder_of_run("size", program)?;
    let watching = watching()?;
    let measured = args.far.iter().map(|url| Ok((url.clone(), costs(url, args.prefetch, watching)?)));
    let mut measured: Vec<(String, Costs)> = measured.collect::<anyhow::Result<_>>()?;
    if args.zram {
        match zram(&std::env::current_exe()?) {
            Ok(costs) => measured.push(("zram".to_owned(), costs)),
            Err(why) => say(&format!("yonder size: nothing is predicted for zram: {why}")),
        }
    }
    let (path, stem) = (folder.path().join("board"), folder.path().join("sample"));
    let board = SharedStats::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let settings = Settings {
        far: NOWHERE.to_owned(),
        local_bytes: args.memory,
        slowdown: None,
        memory_bytes: args.memory,
        prefetch: yonder::Prefetch::None,
        faults: Faults::Inline,
        transfer: Transfer::Live,
        board: path,
        guide: None,
        records: None,
        trace: None,
        sample: Some(stem.clone()),
        control: None,
        process: program.id(),
    };
    let (board, began) = (Arc::new(board), Instant::now());
    if !program.begin(&library, &credential, &settings, board.clone(), ends)? {
        return Ok(());
    }
    let (uncovered, _) = watch(program, &end, &board, None, draws);
    let (ran, figures) = (began.elapsed(), board.figures());
    let told = tell(args, ran, &figures, &stem, watching, measured, summary_file);
    if figures.processes == 0 {
        say(&format!("yonder size: too little memory was used for any of it to be far; not far are {uncovered}"));
    }
    if let Err(error) = &told {
        say(&format!("yonder: {error:#}"));
    }
    // The end of a container's first process is this one's too.
    drop(folder);
    board.let_end(told.is_err());
    program.wait_for_end();
    Ok(())
}

/// Replays what was seen, and tells what is predicted.
fn tell(
    args: &SizeArgs,
    ran: Duration,
    figures: &Figures,
    stem: &Path,
    watching: Watching,
    measured: Vec<(String, Costs)>,
    file: Option<SummaryFile<'_>>,
) -> anyhow::Result<()> {
    let read: Vec<Sample> =
        samples(stem, figures.processes).iter().map(|path| read_sample(path)).collect::<Result<_, _>>()?;
    if read.is_empty() {
        return Ok(());
    }
    let prediction = Prediction::new(args, ran, figures, &read, watching, measured);
    say(&prediction.to_string());
    if let Some(file) = file {
        file.write(&prediction)?;
    }
    args.picture.as_deref().map_or(Ok(()), |path| prediction.draw(path))
}

/// Why a prediction may be far off, if the watching took this share of the time.
fn doubts(watched_share: f64, read: &[Sample]) -> Vec<String> {
    let mut doubts = Vec::new();
    if watched_share > WATCHED_SHARE_MAX {
        doubts.push(format!(
            "the watching took {:.0} % of the time, and how long the program takes by itself is not known well: it may \
             be slowed down by far more than this says",
            100.0 * watched_share
        ));
    }
    // A few words say how coarse it is.
    if read.iter().any(|sample| sample.touches() + u64::from(u8::MAX) >= SAMPLE_TOUCHES_MAX) {
        doubts.push(
            "a sample is full: what was touched after that is not in it, and more is missed than this says".to_owned(),
        );
    }
    doubts
}

/// Says what cannot work before anything is started, and what the program is to show.
fn check(args: &SizeArgs) -> anyhow::Result<CredentialVariables> {
    args.credential.show()?;
    let credential = args.credential.child_variables()?;
    Config::with_local(args.memory).check()?;
    program::check(&args.program[0])?;
    Uffd::open_for(Delivery::Signal)?;
    for far in &args.far {
        yonder::open(far)?;
    }
    if let Some(path) = &args.picture {
        let shown = path.display();
        let is_svg = path.extension().is_some_and(|extension| extension == "svg");
        ensure!(is_svg, "--picture draws an SVG: name a file that ends with .svg, not {shown}");
    }
    Ok(credential)
}

/// What is predicted; the fields are a contract with scripts.
#[derive(Serialize)]
struct Prediction {
    /// The program, as it was typed.
    program: String,
    /// How long it took while it was watched.
    watched_seconds: f64,
    /// How long it would have taken with all of its memory local, unwatched.
    seconds: f64,
    /// Local memory of which nothing is missed: its memory that could be far, and what is kept free.
    bytes: u64,
    /// Of how many pages one was watched.
    pages_for_each: u64,
    /// Touches of the sample that were seen.
    touches: u64,
    /// How much slower it may get.
    slowdown: f64,
    /// What is predicted for each far memory.
    far: Vec<OfFar>,
    /// Why it may be far off.
    doubts: Vec<String>,
}

/// What is predicted of one far memory.
#[derive(Serialize)]
struct OfFar {
    /// Its URL.
    far: String,
    /// What was measured of it, in nanoseconds.
    random_ns: f64,
    sequence_ns: f64,
    rescue_ns: f64,
    first_ns: f64,
    /// The least local memory that is enough.
    enough_bytes: Option<u64>,
    points: Vec<OfSize>,
}

/// What is predicted of one size of local memory.
#[derive(Serialize)]
struct OfSize {
    local_bytes: u64,
    seconds: f64,
    /// As a multiple of the time with all of it local.
    slowdown: f64,
    misses: u64,
    in_sequences: u64,
    rescues: u64,
    firsts: u64,
}

impl Prediction {
    fn new(
        args: &SizeArgs,
        ran: Duration,
        figures: &Figures,
        read: &[Sample],
        watching: Watching,
        measured: Vec<(String, Costs)>,
    ) -> Self {
        let again: u64 = read.iter().map(Sample::seen_again).sum();
        let firsts = figures.minor_faults.saturating_sub(again);
        let watched = (again as f64 * watching.again_ns + firsts as f64 * watching.first_ns) * 1e-9;
        let watched_seconds = ran.as_secs_f64();
        let seconds = (watched_seconds - watched).max(watched_seconds / 10.0);
        let processes: Vec<_> = read.iter().map(|sample| sample.unfold(TOUCHES_MAX)).collect();
        let peak = figures.peak_local_bytes;
        let bytes = peak + peak / FREE_SHARE + FREE_BYTES;
        let sizes: Vec<u64> = (1..=args.points).map(|part| bytes * part / args.points).collect();
        let curve = Curve::new(seconds, &processes, &sizes);
        let of_far = |(far, costs): (String, Costs)| OfFar::new(far, &curve, &costs, args.slowdown);
        Self {
            program: title_of(&args.program),
            watched_seconds,
            seconds,
            bytes,
            pages_for_each: read.iter().map(|sample| sample.coarseness().pages_for_each()).max().unwrap_or(1),
            touches: read.iter().map(Sample::touches).sum(),
            slowdown: args.slowdown,
            far: measured.into_iter().map(of_far).collect(),
            doubts: doubts(watched / watched_seconds, read),
        }
    }

    /// Draws local memory against time.
    fn draw(&self, path: &Path) -> anyhow::Result<()> {
        let line = |of_far: &OfFar| Line {
            name: of_far.far.clone(),
            points: of_far.points.iter().map(|point| (point.local_bytes as f64, point.seconds)).collect(),
        };
        let words = ["Local memory and expected time", "Below on the right is better"];
        let axes = [Quantity::Memory, Quantity::Number("seconds")];
        let picture = Picture::new("size", words, axes, self.far.iter().map(line).collect());
        std::fs::write(path, picture_svg(&picture)?).with_context(|| format!("cannot write {}", path.display()))?;
        say(&format!("picture: {}", path.display()));
        Ok(())
    }
}

impl OfFar {
    fn new(far: String, curve: &Curve, costs: &Costs, slowdown: f64) -> Self {
        let of_size = |point: &Point| {
            let Point { local_bytes, replayed } = *point;
            let Replayed { misses, in_sequences, rescues, firsts } = replayed;
            let slowdown = curve.slowdown(point, costs);
            OfSize { local_bytes, seconds: curve.seconds * slowdown, slowdown, misses, in_sequences, rescues, firsts }
        };
        let Costs { random_ns, sequence_ns, rescue_ns, first_ns } = *costs;
        let enough_bytes = curve.enough(slowdown, costs);
        let points = curve.points.iter().map(of_size).collect();
        Self { far, random_ns, sequence_ns, rescue_ns, first_ns, enough_bytes, points }
    }
}

impl std::fmt::Display for Prediction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (all, percent) = (format_bytes(self.bytes), self.slowdown * 100.0);
        write!(
            f,
            "yonder size: {:.2} s alone, {:.2} s watched; {all} are all of it, of which one page in {} was watched",
            self.seconds, self.watched_seconds, self.pages_for_each
        )?;
        for of_far in &self.far {
            write!(f, "\n\n{:>10} {:>9} {:>8} {:>10}  with {}", "local", "seconds", "slower", "misses", of_far.far)?;
            for point in &of_far.points {
                let (local, slower) = (format_bytes(point.local_bytes), format!("{:.2}x", point.slowdown));
                write!(f, "\n{local:>10} {:>9.2} {slower:>8} {:>10}", point.seconds, point.misses)?;
            }
            match of_far.enough_bytes {
                Some(bytes) => write!(f, "\n{} of {all} keep it within {percent}%", format_bytes(bytes))?,
                None => write!(f, "\nonly all of {all} keep it within {percent}%")?,
            }
        }
        for doubt in &self.doubts {
            write!(f, "\nin doubt: {doubt}")?;
        }
        Ok(())
    }
}
