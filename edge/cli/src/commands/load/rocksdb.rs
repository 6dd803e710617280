//! `yonder load rocksdb`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use yonder_load::Rate;
use yonder_rocksdb::{Datagrams, GetsAndScans, Rows};
use yonder_serve::{LoadReport, LoadSettings, hello, load};

use crate::args::{LoadAppArgs, LoadRocksdbArgs};
use crate::output::{Bar, json_line, line};

const APP: &str = "rocksdb";
/// How long a server may take to say who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(1);
/// Requests on their way at a time, if nothing else is said: in a closed loop, and in an open one.
const CLOSED_WINDOW: usize = 64;
const OPEN_WINDOW: usize = 4096;

pub(super) fn run(args: &LoadRocksdbArgs) -> anyhow::Result<ExitCode> {
    let settings = settings(&args.load);
    let (server, about) = hello(&settings.target, APP, HELLO_PATIENCE)?;
    let rows = Rows { count: rows_of(&about).ok_or_else(|| other_server(&settings.target, &about))? };
    let mix = (args.scans, args.scan_rows);
    let report = {
        let bar = Bar::new("load rocksdb");
        let questions = |thread| GetsAndScans::new(rows, mix, 0x10AD + thread as u64);
        load::<Datagrams, _>(APP, &settings, server, questions, &mut |share| bar.show("asking", share))?
    };
    if args.load.json {
        json_line(&report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &LoadAppArgs) -> LoadSettings {
    let window = if args.rate == Rate::Max { CLOSED_WINDOW } else { OPEN_WINDOW };
    LoadSettings {
        target: args.target.clone(),
        rate: args.rate,
        duration: args.duration,
        threads: args.threads,
        window: args.window.unwrap_or(window),
        patience: args.patience,
    }
}

/// How many rows a server has, if it is one of RocksDB.
fn rows_of(about: &str) -> Option<u64> {
    let about: serde_json::Value = serde_json::from_str(about).ok()?;
    if about["app"] == APP { about["rows"].as_u64().filter(|rows| *rows > 0) } else { None }
}

fn other_server(target: &str, about: &str) -> anyhow::Error {
    anyhow!(
        "the server at udp {target} is none of RocksDB but {about}: type --target with that of `yonder serve rocksdb`"
    )
}

fn print(report: &LoadReport) -> anyhow::Result<()> {
    let offered = report.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0} /s"));
    line(&format!("offered {offered:>12}   answered {:>10.0} /s", report.ops_per_s))?;
    for (kind, latency) in &report.kinds {
        line(&format!(
            "{kind:>8} {:>9}   p50 {:.1} us   p99 {:.1} us   p99.9 {:.1} us   max {:.1} us",
            latency.count, latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
        ))?;
    }
    line(&format!("dropped {}   lost {}   failed {}", report.dropped, report.lost, report.failed))?;
    if let Some(first) = &report.first_failure {
        line(&format!("first failure: {first}"))?;
    }
    Ok(())
}
