//! `yonder report --readme`: the table of figures in README, measured in one run.
//!
//! All systems have the same settings and take turns; the load of latencies follows from a rule that was written
//! before: [`LOAD_SHARE`] of what faults that busy-wait and map their own pages reach. Every figure is a ratio within a
//! turn, with the least and the greatest of all turns beside the median, and the lost comparisons stand with the won
//! ones. A figure that the same command does not give again within [`MOVE_MAX`] is quoted as a range of both runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use yonder::sched::{InstallDelegation, SchedConfig};
use yonder::units::LocalSize;
use yonder::{FaultPolicy, Prefetch};
use yonder_bench::array::{Array, ArrayResult, ArraySettings};
use yonder_bench::comparison::{Ended, Series, take_turns};
use yonder_bench::programs::{self, ProgramResult};
use yonder_bench::seq::{self, Operation, Pattern};
use yonder_load::Rate;
use yonder_node::{Listen, Node, NodeConfig};

use super::scale::Scale;
use super::trial::{FAR, LINK, LOCAL_PERCENT};
use crate::commands::bench::{Launcher, run_prefix, stop_on_ctrl_c};
use crate::commands::machine::machine;
use crate::output::Bar;

/// What stands around the figures.
const BEGIN: &str = "<!-- figures: begin -->";
const END: &str = "<!-- figures: end -->";
/// Turns of each comparison.
const TURNS: usize = 5;
/// Load at which latencies are compared, of what busy-waiting faults reach.
const LOAD_SHARE: f64 = 0.8;
/// How far a median may move from one run to the next and still be quoted as one figure.
const MOVE_MAX: f64 = 0.2;
/// Local share of what an unmodified program takes.
const LOCAL_PERCENT_OF_PROGRAMS: f64 = 25.0;
/// Memory that the node of unmodified programs lends: more than any of them asks for.
const NODE_BYTES: u64 = 8 << 30;
/// Local share of the memory that one thread reads in order.
const LOCAL_PERCENT_IN_ORDER: f64 = 12.5;

/// One of the systems that are compared.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    faults: FaultPolicy,
    installs: InstallDelegation,
}

/// Faults that yield and that busy-wait, whose worker maps its pages itself, and those for which a dispatcher on
/// another CPU maps them.
const SYSTEMS: [System; 4] = [
    System { name: "yield", faults: FaultPolicy::Yield, installs: InstallDelegation::Off },
    System { name: "busy", faults: FaultPolicy::Busy, installs: InstallDelegation::Off },
    System { name: "yield, delegated", faults: FaultPolicy::Yield, installs: InstallDelegation::On },
    System { name: "busy, delegated", faults: FaultPolicy::BusyDelegated, installs: InstallDelegation::On },
];
/// Their places among [`SYSTEMS`].
const YIELD: usize = 0;
const BUSY: usize = 1;
const YIELD_DELEGATED: usize = 2;
const BUSY_DELEGATED: usize = 3;

/// A ratio that was measured: the median of a run's turns, and the least and the greatest turn.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ratio {
    /// The same twice, or those of two runs that are too far apart to be one figure, the lesser first.
    medians: [f64; 2],
    ends: [f64; 2],
}

/// A percentile of latency: its name, and where it is in a result.
type Percentile = (&'static str, fn(&ArrayResult) -> f64);

/// A line of the table.
struct Row {
    what: String,
    /// Or why it could not be measured.
    ratio: Result<Ratio, String>,
    is_less_better: bool,
}

/// Measures, and puts the table in the place of the old one in the file at `readme`. If this is the same run `again`,
/// figures of the old table that have moved too far become ranges.
pub(super) fn run(readme: &Path, again: bool, scale: &Scale, command: &str) -> anyhow::Result<()> {
    let old = std::fs::read_to_string(readme)
        .with_context(|| format!("cannot read {}: name the file with --readme FILE", readme.display()))?;
    // What cannot be put anywhere is not measured.
    replaced(&old, "").with_context(|| format!("{} has no place for figures", readme.display()))?;
    anyhow::ensure!(!again || old.lines().any(|line| figure_of(line).is_some()), "{}", nothing_to_compare(readme));
    let mut rows = at_random(scale)?;
    rows.extend(in_order(scale)?);
    rows.extend(unmodified(scale)?);
    if again {
        compare(&mut rows, &old);
    }
    let text = table(&rows, &origin(command));
    std::fs::write(readme, replaced(&old, &text)?)
        .with_context(|| format!("cannot write {}: name another file with --readme FILE", readme.display()))?;
    eprintln!("report: {}", readme.display());
    Ok(())
}

/// Random reads of an array, by all systems.
fn at_random(scale: &Scale) -> anyhow::Result<Vec<Row>> {
    let settings = ArraySettings {
        duration: scale.run,
        ..ArraySettings::new(FAR.to_owned(), scale.memory, LocalSize::Percent(LOCAL_PERCENT))
    };
    let bar = Bar::new("readme: random reads");
    let array = Array::prepare(&settings, &mut |what, share| bar.show(what, 0.1 * share))?;
    let peaks = turns(&array, &settings, Rate::Max, &bar)?;
    let peak = peaks[BUSY].median(|result| result.ops_per_s).context("a run has ended")?;
    let offered = LOAD_SHARE * peak;
    let loaded = turns(&array, &settings, Rate::PerSecond(offered), &bar)?;
    let what = format!("random reads, {LOCAL_PERCENT} % local, {LINK}");
    let throughput = |own: usize, others: &[usize], words: &str| {
        let others: Vec<_> = others.iter().map(|other| &peaks[*other]).collect();
        let ratio = ratio(&peaks[own], &others, |result| result.ops_per_s, f64::max)?;
        Some(Row { what: format!("{what}: throughput, {words}"), ratio: Ok(ratio), is_less_better: false })
    };
    let load = format!("at {:.0} % of the peak of faults that busy-wait", 100.0 * LOAD_SHARE);
    let latency = |own: usize, others: &[usize], words: &str, figure: fn(&ArrayResult) -> f64| {
        let others: Vec<_> = others.iter().map(|other| &loaded[*other]).collect();
        let ratio = ratio(&loaded[own], &others, figure, f64::min)?;
        Some(Row { what: format!("{what}: {words}, less is better"), ratio: Ok(ratio), is_less_better: true })
    };
    let percentiles: [Percentile; 3] =
        [("P50", |result| result.p50_us), ("P99", |result| result.p99_us), ("P99.9", |result| result.p999_us)];
    let alone = "faults that yield / that busy-wait, each worker maps its pages";
    let delegated = "faults that yield, a dispatcher on a second CPU maps pages too / that busy-wait, the better of \
                     with and without that";
    let mut rows = Vec::new();
    for (own, others, words) in [(YIELD, &[BUSY][..], alone), (YIELD_DELEGATED, &[BUSY, BUSY_DELEGATED], delegated)] {
        rows.extend(throughput(own, others, words));
        rows.extend(percentiles.iter().filter_map(|(percentile, figure)| {
            latency(own, others, &format!("{percentile} {load}, {words}"), *figure)
        }));
    }
    Ok(rows)
}

fn turns(
    array: &Array,
    settings: &ArraySettings,
    rate: Rate,
    bar: &Bar,
) -> anyhow::Result<[Series<System, ArrayResult>; 4]> {
    let mut all = SYSTEMS.map(Series::new);
    take_turns(
        &mut all,
        TURNS,
        &mut |what, share| bar.show(what, share),
        |system| format!("{}, {rate} requests/s", system.name),
        |system, _| {
            let sched = SchedConfig { faults: system.faults, installs: system.installs, ..settings.sched.clone() };
            let result = array.run(&ArraySettings { sched, rate, ..settings.clone() }, &mut |_, _| ())?;
            anyhow::ensure!(
                result.counts.errors == 0,
                "{} requests failed in a run of the report: look at the log with YONDER_LOG=info",
                result.counts.errors
            );
            Ok(Ended::Well(result))
        },
    )?;
    Ok(all)
}

/// Pages read and written in order by one thread, with and without readahead.
fn in_order(scale: &Scale) -> anyhow::Result<Vec<Row>> {
    let bar = Bar::new("readme: pages in order");
    let settings = seq::Settings {
        far: FAR.to_owned(),
        memory: scale.memory,
        local: LocalSize::Percent(LOCAL_PERCENT_IN_ORDER),
        prefetch: vec![Prefetch::None, Prefetch::Readahead],
        operations: vec![Operation::Read, Operation::Write],
        pattern: Pattern::Sequential,
        rounds: TURNS,
    };
    let results = seq::run(&settings, &mut |what, share| bar.show(what, share))?;
    let row = |op: Operation, word: &str| {
        let with = results.iter().find(|one| one.op == op && one.prefetch == "readahead")?;
        let what = format!(
            "one thread that {word} pages in order, {LOCAL_PERCENT_IN_ORDER} % local, {LINK}: pages a second, with \
             readahead / without"
        );
        let ratio = Ratio::new(with.ratio_to_none?, with.ratio_to_none_spread?);
        Some(Row { what, ratio: Ok(ratio), is_less_better: false })
    };
    Ok([row(Operation::Read, "reads"), row(Operation::Write, "writes")].into_iter().flatten().collect())
}

/// Programs that know nothing of far memory beside the kernel's swap, over the emulated link and over tcp to a node on
/// this machine.
fn unmodified(scale: &Scale) -> anyhow::Result<Vec<Row>> {
    let bar = Bar::new("readme: unmodified programs");
    let (launcher, stop) = (Launcher::new()?, stop_on_ctrl_c()?);
    let node = Node::start(NodeConfig::new(vec![Listen::Tcp("127.0.0.1:0".to_owned())], NODE_BYTES))?;
    let mut rows = Vec::new();
    for (number, (far, link)) in
        [(FAR.to_owned(), LINK), (node.addresses()[0].to_string(), "tcp to a node on the same CPUs")]
            .into_iter()
            .enumerate()
    {
        let settings = programs::Settings {
            far,
            local: vec![LocalSize::Percent(LOCAL_PERCENT_OF_PROGRAMS)],
            programs: Vec::new(),
            legs: vec![programs::Variant::Yonder, programs::Variant::Zram],
            scale: scale.programs,
            runs: TURNS,
            prefix: run_prefix(&launcher)?,
            stop: Arc::clone(&stop),
        };
        let bench = programs::Bench::prepare(&settings, &launcher)?;
        for program in 0..bench.count() {
            let share = (number * bench.count() + program) as f64 / (2 * bench.count()) as f64;
            rows.extend(beside_zram(&bench.run(program, &mut |what| bar.show(what, share))?, link));
        }
    }
    Ok(rows)
}

/// The row of one program.
fn beside_zram(results: &[ProgramResult], link: &str) -> Option<Row> {
    let yonder = results.iter().find(|result| result.figures.leg == programs::Variant::Yonder)?;
    // Whoever has failed is named: a run that ends badly is lost, and must not look like one that was not made.
    let why = || results.iter().filter_map(no_ratio).collect::<Vec<_>>().join("; ");
    let what = format!(
        "{}, unmodified, {LOCAL_PERCENT_OF_PROGRAMS} % local, {link}: time under `yonder run` / with the \
         kernel's swap on zram, less is better",
        yonder.program
    );
    let figures = &yonder.figures;
    let ratio = figures.ratio_to_zram.zip(figures.ratio_to_zram_spread);
    let ratio = ratio.map(|(median, ends)| Ratio::new(median, ends)).ok_or_else(why);
    Some(Row { what, ratio, is_less_better: true })
}

/// Why a way to run a program is no comparison, if it is none: on one line of a table.
fn no_ratio(result: &ProgramResult) -> Option<String> {
    let figures = &result.figures;
    let name = if figures.leg == programs::Variant::Yonder { "`yonder run`" } else { "zram" };
    let why = match (&figures.failed, &figures.skipped) {
        (Some(how), _) => format!("{name} FAILED: {how}"),
        (None, Some(missing)) => format!("{name} not measured: {missing}"),
        (None, None) if figures.errors > 0 => format!("{name} WRONG: {} answers", figures.errors),
        (None, None) => return None,
    };
    Some(why.replace('\n', " ").replace('|', "\\|"))
}

/// The ratio of a figure of a system and of the best of others, turn by turn: of two figures, `best` is the better one.
/// `None` if no turn has all.
fn ratio<T>(
    own: &Series<System, T>,
    others: &[&Series<System, T>],
    figure: impl Fn(&T) -> f64,
    best: fn(f64, f64) -> f64,
) -> Option<Ratio> {
    let turn = |(turn, own): (usize, &T)| {
        let others: Option<Vec<f64>> = others.iter().map(|other| other.trials.get(turn).map(&figure)).collect();
        Some(figure(own) / others?.into_iter().reduce(best)?)
    };
    let mut ratios: Vec<f64> = own.trials.iter().enumerate().filter_map(turn).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    Some(Ratio::new(*ratios.get(ratios.len() / 2)?, [*ratios.first()?, *ratios.last()?]))
}

impl Ratio {
    /// That of one run.
    fn new(median: f64, ends: [f64; 2]) -> Self {
        Self { medians: [median; 2], ends }
    }

    /// Whether two runs have given figures that are too far apart to be one.
    fn has_moved_from(&self, before: &Self) -> bool {
        before.medians.iter().any(|median| (self.medians[0] / median - 1.0).abs() > MOVE_MAX)
    }

    /// The range of both runs.
    fn together_with(self, before: &Self) -> Self {
        let both = |ours: [f64; 2], theirs: [f64; 2]| [ours[0].min(theirs[0]), ours[1].max(theirs[1])];
        Self { medians: both(self.medians, before.medians), ends: both(self.ends, before.ends) }
    }

    fn text(&self) -> String {
        let (Self { medians: [lesser, greater], ends: [least, greatest] }, one) = (self, self.medians[0]);
        if lesser == greater {
            format!("**{one:.2}x** ({least:.2} to {greatest:.2})")
        } else {
            format!("**{lesser:.2}x to {greater:.2}x** ({least:.2} to {greatest:.2})")
        }
    }

    /// What [`Ratio::text`] has said.
    fn read(text: &str) -> Option<Self> {
        let (medians, ends) = text.strip_prefix("**")?.strip_suffix(')')?.split_once("** (")?;
        let range = |text: &str| {
            let (first, last) = text.split_once(" to ").unwrap_or((text, text));
            let number = |text: &str| text.trim_end_matches('x').parse().ok();
            Some([number(first)?, number(last)?])
        };
        Some(Self { medians: range(medians)?, ends: range(ends)? })
    }
}

/// What a line of the table says of what.
fn figure_of(line: &str) -> Option<(&str, Ratio)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    Some((cells.next()?, Ratio::read(cells.next()?)?))
}

fn nothing_to_compare(readme: &Path) -> String {
    format!("{} has no figures to be compared with: leave --again out once", readme.display())
}

/// Makes ranges of the figures that have moved too far since the `old` table, and tells which.
fn compare(rows: &mut [Row], old: &str) {
    for Row { what, ratio, .. } in rows {
        let before = old.lines().filter_map(figure_of).find(|(named, _)| named == what);
        let (Ok(ratio), Some((_, before))) = (ratio, before) else { continue };
        if ratio.has_moved_from(&before) {
            eprintln!("report: moved by more than {:.0} %: {what}", 100.0 * MOVE_MAX);
            *ratio = ratio.together_with(&before);
        }
    }
}

/// Where and when the figures were measured, and how to measure them again.
fn origin(command: &str) -> String {
    let machine = machine();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!(
        "Medians of {TURNS} turns, in brackets the least and the greatest turn; two medians are those of two runs that \
         are more than {moved:.0} % apart; far memory emulated within the \
         process, but where a row names a node. Under `yonder run` the local share limits pages of far memory, with \
         zram all that the program's control group is charged for; what zram has compressed is charged to neither. \
         Measured on {} by `{command}` at commit {}, on {} with {} CPUs, {}.",
        date(since.as_secs() / 86_400),
        env!("YONDER_COMMIT"),
        machine.text,
        machine.cpus,
        machine.kernel,
        moved = 100.0 * MOVE_MAX,
    )
}

/// The date of a day since 1970, as 2026-11-25.
fn date(mut day: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, day + 1)
}

fn table(rows: &[Row], origin: &str) -> String {
    let mut text = "| what | ratio | |\n|---|---|---|\n".to_owned();
    for Row { what, ratio, is_less_better } in rows {
        let line = match ratio {
            Ok(ratio) => {
                let [least, greatest] = ratio.ends;
                let verdict = match (greatest < 1.0, least > 1.0) {
                    (false, false) => "even: turns are on both sides",
                    (is_less, _) if is_less == *is_less_better => "won",
                    _ => "lost",
                };
                format!("| {what} | {} | {verdict} |\n", ratio.text())
            }
            Err(why) => format!("| {what} | none | {why} |\n"),
        };
        text.push_str(&line);
    }
    text.push_str(&format!("\n{}\n", yonder_report::filled("", origin)));
    text
}

/// `old` with `figures` between the marks.
fn replaced(old: &str, figures: &str) -> anyhow::Result<String> {
    let place = old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        place.with_context(|| format!("there is no line `{BEGIN}` with `{END}` behind it: write both"))?;
    Ok(format!("{before}{BEGIN}\n{figures}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_the_place_of_the_old_ones() {
        let old = format!("# A\n{BEGIN}\nold\n{END}\nrest\n");
        assert_eq!(replaced(&old, "new\n").unwrap(), format!("# A\n{BEGIN}\nnew\n{END}\nrest\n"));
        for wrong in ["# A\n", &format!("{END}\n{BEGIN}\n")] {
            assert!(replaced(wrong, "").unwrap_err().to_string().contains("write both"), "{wrong}");
        }
    }

    #[test]
    fn days_have_dates() {
        let dates = [0, 58, 59, 364, 365, 789, 20_782].map(date);
        let expected =
            ["1970-01-01", "1970-02-28", "1970-03-01", "1970-12-31", "1971-01-01", "1972-02-29", "2026-11-25"];
        assert_eq!(dates, expected);
    }

    #[test]
    fn ratios_are_of_turns_and_what_is_lost_says_so() {
        let series = |trials: &[f64]| {
            let mut series = Series::new(SYSTEMS[0]);
            series.trials = trials.to_vec();
            series
        };
        let (own, other) = (series(&[2.0, 9.0, 4.4]), series(&[1.0, 3.0, 4.0]));
        let better = ratio(&own, &[&other, &series(&[2.0, 1.0, 1.0])], |figure| *figure, f64::max).unwrap();
        assert_eq!(better, Ratio::new(1.1, [1.0, 3.0]), "to the best of each turn");
        let ratio = ratio(&own, &[&other], |figure| *figure, f64::max).unwrap();
        assert_eq!(ratio, Ratio::new(2.0, [1.1, 3.0]));
        let row = |ratio, is_less_better| Row { what: "x".to_owned(), ratio, is_less_better };
        let rows = [row(Ok(ratio), false), row(Ok(ratio), true), row(Err("no zram".to_owned()), true)];
        let text = table(&rows, "There.");
        for line in ["**2.00x** (1.10 to 3.00) | won |", "**2.00x** (1.10 to 3.00) | lost |", "none | no zram |"] {
            assert!(text.contains(&format!("| x | {line}\n")), "{text}");
        }
        assert!(text.ends_with("\nThere.\n"), "{text}");
        for (ends, is_less_better, verdict) in [
            ([0.4, 0.9], true, "won"),
            ([0.4, 0.9], false, "lost"),
            ([0.9, 1.4], true, "even: turns are on both sides"),
            ([0.9, 1.4], false, "even: turns are on both sides"),
            ([1.0, 1.0], false, "even: turns are on both sides"),
        ] {
            let text = table(&[row(Ok(Ratio::new(ends[0], ends)), is_less_better)], "There.");
            assert!(text.contains(&format!(" | {verdict} |\n")), "{ends:?}: {text}");
        }
    }
    #[test]
    fn figures_that_have_moved_too_far_become_ranges() {
        let row = |what: &str, median: f64| Row {
            what: what.to_owned(),
            ratio: Ok(Ratio::new(median, [median / 2.0, median * 2.0])),
            is_less_better: true,
        };
        let not_measured = Row { what: "e".to_owned(), ratio: Err("no zram".to_owned()), is_less_better: true };
        let before = [row("a", 1.0), row("b", 1.0), row("c", 1.0), row("e", 1.0)];
        let mut now = [row("a", 1.19), row("b", 1.25), row("c", 0.5), row("d", 9.0), not_measured];
        compare(&mut now, &table(&before, "There."));
        let text = table(&now, "There.");
        for line in [
            "| a | **1.19x** (0.59 to 2.38) |",
            "| b | **1.00x to 1.25x** (0.50 to 2.50) |",
            "| c | **0.50x to 1.00x** (0.25 to 2.00) |",
            "| d | **9.00x** (4.50 to 18.00) |",
            "| e | none | no zram |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        // A range is compared by both of its ends.
        let mut third = [row("b", 1.1), row("c", 1.0)];
        compare(&mut third, &text);
        assert_eq!(third[0].ratio, Ok(Ratio::new(1.1, [0.55, 2.2])));
        assert_eq!(third[1].ratio, Ok(Ratio { medians: [0.5, 1.0], ends: [0.25, 2.0] }));
        assert!(!table(&[], "There.").lines().any(|line| figure_of(line).is_some()));
    }
}
