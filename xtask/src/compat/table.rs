//! What became of all programs: a line for each while they run, a table, and the page of the guide.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use super::catalogue::{Expected, Program};
use super::trial::{FAR, Trial, Verdict};

/// A program and what became of it.
pub(super) struct Row<'a> {
    pub(super) program: &'a Program,
    pub(super) trial: Trial,
}

/// What the columns are called.
const COLUMNS: [&str; 9] =
    ["program", "version", "peak alone", "local", "far", "not covered", "alone", "with far memory", "verdict"];

/// One line, as soon as the program has ended.
pub(super) fn line(row: &Row<'_>) -> String {
    match &row.trial.verdict {
        Verdict::Skipped(why) => format!("SKIP: {}: {why}", row.program.name),
        _ => format!("{}: {}", row.program.name, said(row)),
    }
}

/// The table, with columns as wide as what is in them.
pub(super) fn text(rows: &[Row<'_>]) -> String {
    let lines: Vec<[String; 9]> = [COLUMNS.map(str::to_owned)].into_iter().chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let padded = |line: &[String; 9]| {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(padded).collect::<Vec<_>>().join("\n")
}

/// The page.
pub(super) fn page(rows: &[Row<'_>]) -> String {
    let mut page = String::from(INTRODUCTION);
    let row = |cells: &[String; 9]| format!("| {} |\n", cells.join(" | "));
    page += &row(&COLUMNS.map(str::to_owned));
    page += "|---|---|--:|--:|--:|--:|--:|--:|---|\n";
    for cells in rows.iter().filter(|row| !is_skipped(row)).map(cells) {
        page += &row(&cells.map(|cell| cell.replace('|', "\\|")));
    }
    let skipped: Vec<&Row<'_>> = rows.iter().filter(|row| is_skipped(row)).collect();
    if !skipped.is_empty() {
        page += "\nThe catalogue has these as well, which were not run for this table:\n\n";
        for row in skipped {
            let _ = writeln!(page, "- {}: {}", row.program.title, said(row));
        }
    }
    let _ = write!(page, "\nFar memory was `{FAR}`. The machine: {}.\n", machine());
    page
}

/// What stands before the table.
const INTRODUCTION: &str = "\
# Programs that were tried

<!-- Written by `cargo xtask compat --markdown`. -->

Each of these programs is run by `cargo xtask compat`, and so each night: a workload of some seconds, alone, and then
under `yonder run` with a quarter of the memory that it took alone, and 16 MiB at least. Servers are filled and asked by
clients of their own, which are local. A program is *right* if it answers the same, byte for byte, ends well, and some
of its memory was far.

- *peak alone*: the most memory of one process that is no file's, without `yonder run`; *local*: what `--local` allowed.
- *far*: the most far memory that all its processes had at a time.
- *not covered*: the most that one process had of what
  [the limit does not cover](https://github.com/yonder-memory/yonder/blob/main/docs/design/run.md): shared memory, what
  was there before memory became far, and in forked children all that they touch.
- The times are of one run each, with the start of the program and its clients: they say that a program can be used, and
  not how fast it is.

";

fn is_skipped(row: &Row<'_>) -> bool {
    matches!(row.trial.verdict, Verdict::Skipped(_))
}

fn cells(row: &Row<'_>) -> [String; 9] {
    let trial = &row.trial;
    let (alone, far) = (trial.alone.as_ref(), trial.far.as_ref());
    [
        row.program.title.to_owned(),
        trial.version.clone().unwrap_or_default(),
        alone.map(|ran| mib(ran.peak_bytes)).unwrap_or_default(),
        far.map(|ran| mib(ran.local_bytes)).unwrap_or_default(),
        far.map(|ran| mib(ran.peak_far_bytes)).unwrap_or_default(),
        far.map(|ran| mib(ran.peak_uncovered_bytes)).unwrap_or_default(),
        alone.map(|ran| seconds(ran.time)).unwrap_or_default(),
        far.map(|ran| seconds(ran.time)).unwrap_or_default(),
        said(row),
    ]
}

fn said(row: &Row<'_>) -> String {
    match (&row.trial.verdict, &row.program.expected) {
        (Verdict::Right | Verdict::Local(_), Expected::MostlyLocal(why)) => {
            format!("right, and most of it local: {why}")
        }
        (Verdict::Right, _) => "right".to_owned(),
        (Verdict::Local(why), _) => format!("right, and all of it local: {why}"),
        (Verdict::Refused(why), _) => format!("refused: {why}"),
        (Verdict::Wrong(why), _) => format!("wrong: {why}"),
        (Verdict::Skipped(why), _) => why.clone(),
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// What this machine is: its processors, its memory, its kernel.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let models = || cpus.lines().filter_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = models().next().map_or("an unknown processor", |(_, model)| model);
    let memory = read("/proc/meminfo");
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let gib = total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 20;
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{} CPUs ({model}), {gib} GiB of memory, Linux {}", models().count(), kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::catalogue::PROGRAMS;

    #[test]
    fn a_table_has_what_ran_and_a_list_what_was_skipped() {
        let row = |index: usize, verdict| Row {
            program: &PROGRAMS[index],
            trial: Trial { version: Some("1.2".to_owned()), alone: None, far: None, verdict },
        };
        let rows = [row(0, Verdict::Right), row(1, Verdict::Skipped("not installed: x".to_owned()))];
        let page = page(&rows);
        assert!(page.contains("| PostgreSQL | 1.2 |  |  |  |  |  |  | right |\n"), "{page}");
        assert!(page.contains("- MariaDB: not installed: x\n"), "{page}");
        assert!(text(&rows).lines().nth(1).unwrap().starts_with("PostgreSQL  1.2"));
        assert_eq!(line(&rows[1]), "SKIP: mariadb: not installed: x");
    }
}
