//! `yonder bench redis`: a line for each way as it is measured, and a table of all; or JSON.

use std::process::Command;

use anyhow::ensure;
use tempfile::TempDir;
use yonder::units::format_bytes;
use yonder_bench::redis::{Ahead, Bench, RedisResult, Settings, Variant, missing};

use super::launch::Launcher;
use super::verdict::{Verdict, judge};
use crate::args::Json;
use crate::commands::run::find_guide;
use crate::output::{Bar, line};
use crate::table::{Column, Printer, bytes, number};

/// The guide that knows Redis.
const GUIDE: &str = "redis";

const COLUMNS: &[Column<RedisResult>] = &[
    Column("query", 9, |result| result.query.name().to_owned()),
    Column("data", 9, |result| format_bytes(result.used_bytes)),
    Column("local", 9, |result| format_bytes(result.local_bytes)),
    Column("ahead", 9, |result| result.ahead.name().to_owned()),
    Column("req/s", 8, |result| number(result.ops_per_s, 0)),
    Column("least", 8, |result| number(result.ops_per_s_spread.map(|[least, _]| least), 0)),
    Column("most", 8, |result| number(result.ops_per_s_spread.map(|[_, most]| most), 0)),
    Column("p50 ms", 7, |result| number(result.p50_ms, 2)),
    Column("p99 ms", 7, |result| number(result.p99_ms, 2)),
    Column("major/req", 9, |result| number(result.major_faults_per_request, 2)),
    Column("minor/req", 9, |result| number(result.minor_faults_per_request, 2)),
    Column("fetched/req", 11, |result| bytes(result.fetched_bytes_per_request.map(|bytes| bytes as u64))),
    Column("errors", 6, Verdict::errors),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    if let Some(missing) = missing() {
        eprintln!("SKIP: {missing}");
        return Ok(());
    }
    let (folder, launcher) = (TempDir::with_prefix("yonder-redis-")?, Launcher::new()?);
    let mut settings = Settings { folder: folder.path().to_owned(), ..args.bench.clone() };
    leave_out_what_is_missing(&mut settings.ahead);
    ensure!(!settings.ahead.is_empty(), "there is no way left to fetch ahead: name another with --ahead");
    let prefix = |way: &Variant<'_>| {
        let mut command = Command::new(launcher.program());
        command.args(["run", "--far", &settings.far, "--local", &way.local_bytes.to_string()]);
        command.args(["--memory", &settings.memory.to_string(), "--board"]).arg(way.board);
        command.args(words(way.ahead)).arg("--");
        command
    };
    let (bar, mut bench, mut rows) = (Bar::new("bench redis"), Bench::new(&settings, &prefix), Vec::new());
    let mut printer = Printer::new(args.json, COLUMNS);
    printer.begin(&format!(
        "redis-server with {} of values, far memory {}; {} requests of {} clients, medians of {} runs",
        format_bytes(settings.data),
        settings.far,
        settings.requests,
        settings.clients,
        settings.runs
    ))?;
    for query in &settings.queries {
        let filled = bench.filled(*query, &mut |what, share| bar.show(what, share))?;
        for local in &settings.local {
            let row = bench.row(&filled, *local, &mut |what, share| bar.show(what, share))?;
            row.iter().for_each(|result| bar.beside(|| result.tell()));
            printer.all(&row)?;
            rows.push(row);
        }
    }
    drop(bar);
    if !args.json {
        print_table(&rows)?;
    }
    judge(&rows.concat())
}

/// Leaves the ways that this machine has.
fn leave_out_what_is_missing(ways: &mut Vec<Ahead>) {
    if ways.contains(&Ahead::Guide)
        && let Err(missing) = find_guide(GUIDE)
    {
        eprintln!("SKIP: --ahead guide: {missing:#}; build it with `cargo build --release -p yonder-guide-redis`");
        ways.retain(|way| *way != Ahead::Guide);
    }
}

/// What `yonder run` is told of fetching ahead.
fn words(ahead: Ahead) -> &'static [&'static str] {
    match ahead {
        Ahead::None => &["--prefetch", "none"],
        Ahead::Readahead => &["--prefetch", "readahead"],
        Ahead::Trend => &["--prefetch", "trend"],
        Ahead::Guide => &["--prefetch", "readahead", "--guide", GUIDE],
    }
}

impl Verdict for RedisResult {
    fn subject(&self) -> String {
        format!("{}, {}, {}", self.query.name(), format_bytes(self.local_bytes), self.ahead.name())
    }

    fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn wrong(&self) -> u64 {
        self.errors
    }
}

/// Requests a second of all ways beside each other, and what the guide comes to.
fn print_table(rows: &[Vec<RedisResult>]) -> anyhow::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let mut head = format!("\n{:>9} {:>9} {:>6}", "req/s", "local", "share");
    first.iter().for_each(|result| head += &format!(" {:>10}", result.ahead.name()));
    let has_guide = first.iter().any(|result| result.ahead == Ahead::Guide);
    line(&if has_guide { format!("{head} {:>12}", "guide/best") } else { head })?;
    rows.iter().try_for_each(|row| line(&table_row(row)))
}

fn table_row(row: &[RedisResult]) -> String {
    let Some(first) = row.first() else { return String::new() };
    let share = format!("{:.1}%", 100.0 * first.local_bytes as f64 / first.used_bytes as f64);
    let mut text = format!("{:>9} {:>9} {share:>6}", first.query.name(), format_bytes(first.local_bytes));
    row.iter().for_each(|result| text += &format!(" {:>10}", number(result.ops_per_s, 0)));
    match row.iter().find_map(|result| result.ratio_to_general) {
        Some(ratio) => format!("{text} {:>12}", format!("{ratio:.2}x")),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use yonder_bench::redis::Query;

    use super::*;
    use crate::table::row as cells;

    fn result(ahead: Ahead, ops_per_s: Option<f64>) -> RedisResult {
        RedisResult {
            bench: "redis",
            query: Query::Lrange,
            ahead,
            used_bytes: 80 << 20,
            local_bytes: 10 << 20,
            keys: 400,
            requests: 100,
            clients: 4,
            runs: 1,
            ops_per_s,
            ops_per_s_spread: ops_per_s.map(|rate| [rate - 1.0, rate + 1.0]),
            p50_ms: Some(0.5),
            p99_ms: Some(1.25),
            major_faults_per_request: Some(12.0),
            minor_faults_per_request: Some(1.0),
            fetched_bytes_per_request: Some(40960.0),
            written_bytes_per_request: Some(0.0),
            ratio_to_general: (ahead == Ahead::Guide).then_some(1.5),
            errors: 0,
            failed: None,
        }
    }

    #[test]
    fn ways_stand_below_and_beside_each_other() {
        let row = [result(Ahead::Readahead, Some(100.0)), result(Ahead::Guide, Some(150.0))];
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(cells(COLUMNS, &row[1])),
            "lrange 80 MiB 10 MiB guide 150 149 151 0.50 1.25 12.00 1.00 40 KiB 0"
        );
        assert_eq!(words(table_row(&row)), "lrange 10 MiB 12.5% 100 150 1.50x");
        assert_eq!(words(table_row(&row[..1])), "lrange 10 MiB 12.5% 100");
        judge(&row).unwrap();
    }

    #[test]
    fn wrong_values_and_servers_that_fail_fail_the_command() {
        let mut row = [result(Ahead::None, Some(1.0)), result(Ahead::Trend, None)];
        row[1].failed = Some("it hung".to_owned());
        assert!(words(&row).contains("for the reasons above: (lrange, 10 MiB, trend)"));
        assert!(cells(COLUMNS, &row[1]).contains("FAILED"));
        row[0].errors = 1;
        assert!(words(&row).contains("wrong, of (lrange, 10 MiB, none)"));
    }

    fn words(results: &[RedisResult]) -> String {
        judge(results).unwrap_err().to_string()
    }
}
