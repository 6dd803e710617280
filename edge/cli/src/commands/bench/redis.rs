//! `yonder bench redis`: a line for each way as it is measured, and a table of all; or JSON.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use yonder::units::format_bytes;
use yonder_bench::redis::{Ahead, Bench, Query, RedisResult, Settings, Way, missing};

use crate::args::RedisArgs;
use crate::commands::run::{Scratch, find_guide};
use crate::output::{Bar, json_line, line};

/// The guide that knows Redis.
const GUIDE: &str = "redis";

pub(super) fn run(args: &RedisArgs) -> anyhow::Result<()> {
    if let Some(missing) = missing() {
        eprintln!("SKIP: {missing}");
        return Ok(());
    }
    let ahead = ways(args);
    ensure!(!ahead.is_empty(), "there is no way left to fetch ahead: name another with --ahead");
    let folder = Scratch::new("redis")?;
    let settings = Settings {
        data_bytes: args.data,
        memory_bytes: args.memory,
        requests: args.requests,
        clients: args.clients,
        runs: args.runs,
        folder: folder.path().to_owned(),
        legs: args.queries.len() * (1 + args.local.len() * ahead.len() * args.runs),
        ahead,
    };
    let program = std::env::current_exe().context("cannot find this program's file, to start it again")?;
    let prefix = |way: &Way<'_>| {
        let mut command = Command::new(&program);
        command.args(["run", "--far", &args.far, "--local", &way.local_bytes.to_string()]);
        command.args(["--memory", &args.memory.to_string(), "--board"]).arg(way.board).args(words(way.ahead)).arg("--");
        command
    };
    let (bar, mut bench, mut rows) = (Bar::new("bench redis"), Bench::new(&settings, &prefix), Vec::new());
    if !args.json {
        print_head(args)?;
    }
    for query in &args.queries {
        let filled = bench.filled((*query).into(), &mut |what, share| bar.show(what, share))?;
        for local in &args.local {
            let row = bench.row(&filled, *local, &mut |what, share| bar.show(what, share))?;
            for result in &row {
                if let Some(reason) = &result.failed {
                    bar.beside(|| eprintln!("{}, {}: {reason}", result.query.name(), result.ahead.name()));
                }
                if args.json { json_line(result)? } else { line(&detail(result))? }
            }
            rows.push(row);
        }
    }
    drop(bar);
    if !args.json {
        print_table(&rows)?;
    }
    judge(&rows.concat())
}

/// The ways that this machine has.
fn ways(args: &RedisArgs) -> Vec<Ahead> {
    let mut ways: Vec<Ahead> = args.ahead.iter().map(|ahead| (*ahead).into()).collect();
    if ways.contains(&Ahead::Guide)
        && let Err(missing) = find_guide(GUIDE)
    {
        eprintln!("SKIP: --ahead guide: {missing:#}; build it with `cargo build --release -p yonder-guide-redis`");
        ways.retain(|way| *way != Ahead::Guide);
    }
    ways
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

fn print_head(args: &RedisArgs) -> anyhow::Result<()> {
    line(&format!(
        "redis-server with {} of values, far memory {}; {} requests of {} clients, medians of {} runs",
        format_bytes(args.data),
        args.far,
        args.requests,
        args.clients,
        args.runs
    ))?;
    let head = [
        "query",
        "data",
        "local",
        "ahead",
        "req/s",
        "least",
        "most",
        "p50 ms",
        "p99 ms",
        "major/req",
        "minor/req",
        "fetched/req",
        "errors",
    ];
    line(&columns(&head.map(str::to_owned)))
}

fn detail(result: &RedisResult) -> String {
    let [least, most] = result.ops_per_s_spread.map_or([None; 2], |spread| spread.map(Some));
    let fetched = result.fetched_bytes_per_request.map(|bytes| format_bytes(bytes as u64));
    columns(&[
        result.query.name().to_owned(),
        format_bytes(result.used_bytes),
        format_bytes(result.local_bytes),
        result.ahead.name().to_owned(),
        number(result.ops_per_s, 0),
        number(least, 0),
        number(most, 0),
        number(result.p50_ms, 2),
        number(result.p99_ms, 2),
        number(result.major_faults_per_request, 2),
        number(result.minor_faults_per_request, 2),
        fetched.unwrap_or_else(|| "-".to_owned()),
        if result.failed.is_some() { "FAILED".to_owned() } else { result.errors.to_string() },
    ])
}

fn columns(
    [query, data, local, ahead, rate, least, most, p50, p99, major, minor, fetched, errors]: &[String; 13],
) -> String {
    format!(
        "{query:>9} {data:>9} {local:>9} {ahead:>9} {rate:>8} {least:>8} {most:>8} {p50:>7} {p99:>7} {major:>9} \
         {minor:>9} {fetched:>11} {errors:>6}"
    )
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

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Wrong values are a failure of the command, and so is a server that does not work.
fn judge(results: &[RedisResult]) -> anyhow::Result<()> {
    let named = |is_bad: fn(&RedisResult) -> bool| {
        let name = |result: &RedisResult| {
            let (query, local): (Query, _) = (result.query, format_bytes(result.local_bytes));
            format!("{} ({local}, {})", query.name(), result.ahead.name())
        };
        let names: Vec<_> = results.iter().filter(|result| is_bad(result)).map(name).collect();
        names.join(", ")
    };
    let wrong = named(|result| result.errors > 0);
    if !wrong.is_empty() {
        bail!("wrong values of {wrong}; please report this with the command that was run");
    }
    let failed = named(|result| result.failed.is_some());
    if !failed.is_empty() {
        bail!("these ended badly, for the reasons above: {failed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(words(detail(&row[1])), "lrange 80 MiB 10 MiB guide 150 149 151 0.50 1.25 12.00 1.00 40 KiB 0");
        assert_eq!(words(table_row(&row)), "lrange 10 MiB 12.5% 100 150 1.50x");
        assert_eq!(words(table_row(&row[..1])), "lrange 10 MiB 12.5% 100");
        judge(&row).unwrap();
    }

    #[test]
    fn wrong_values_and_servers_that_fail_fail_the_command() {
        let mut row = [result(Ahead::None, Some(1.0)), result(Ahead::Trend, None)];
        row[1].failed = Some("it hung".to_owned());
        assert!(words(&row).contains("ended badly, for the reasons above: lrange (10 MiB, trend)"));
        assert!(detail(&row[1]).contains("FAILED"));
        row[0].errors = 1;
        assert!(words(&row).contains("wrong values of lrange (10 MiB, none)"));
    }

    fn words(results: &[RedisResult]) -> String {
        judge(results).unwrap_err().to_string()
    }
}
