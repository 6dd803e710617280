//! `yonder load rocksdb`, `tpcc` and `vector`: applications that are asked by datagrams.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use yonder_faiss::{Collection, Searches};
use yonder_load::{Rate, RequestSource};
use yonder_oltp::tpcc::{self, Scale, Terminals};
use yonder_rocksdb::{GetsAndScans, Rows};
use yonder_serve::{LoadReport, LoadSettings, Protocol, hello, load};

use crate::args::{LoadAppArgs, LoadRocksdbArgs, LoadVectorArgs};
use crate::output::{Bar, json_line, line};

/// How long a server may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests on their way at a time, if nothing else is said: in a closed loop, and in an open one.
const CLOSED_WINDOW: usize = 64;
const OPEN_WINDOW: usize = 4096;
/// What each thread draws its requests from, beside its number.
const SEED: u64 = 0x10AD;
/// Queries that are asked again and again.
const QUERIES_ASKED: usize = 1024;

pub(super) fn rocksdb(args: &LoadRocksdbArgs) -> anyhow::Result<ExitCode> {
    let (server, count) = server_of::<u64>(&args.load, "rocksdb", "rows")?;
    let (rows, mix) = (Rows { count: count.max(1) }, (args.scans, args.scan_rows));
    ask::<yonder_rocksdb::Datagrams, _>(&args.load, "rocksdb", server, |seed| GetsAndScans::new(rows, mix, seed))
}

pub(super) fn tpcc(args: &LoadAppArgs) -> anyhow::Result<ExitCode> {
    let (server, scale) = server_of::<Scale>(args, "tpcc", "scale")?;
    ask::<tpcc::Datagrams, _>(args, "tpcc", server, |seed| Terminals::new(scale, seed))
}

pub(super) fn vector(args: &LoadVectorArgs) -> anyhow::Result<ExitCode> {
    let (server, collection) = server_of::<Collection>(&args.load, "vector", "collection")?;
    let searches = {
        let bar = Bar::new("load vector");
        bar.show("making vectors", 0.0);
        let index = collection.index(&collection.vectors(), &mut |share| bar.show("making the same index", share))?;
        bar.show("searching it", 0.0);
        Searches::of(&index, &collection.queries(QUERIES_ASKED), args.neighbours, args.probes)?
    };
    ask::<yonder_faiss::Datagrams, _>(&args.load, "vector", server, |seed| searches.shuffled(seed))
}

/// Where the server of an application listens, and what it says of its data under `of`.
fn server_of<T: DeserializeOwned>(args: &LoadAppArgs, app: &'static str, of: &str) -> anyhow::Result<(SocketAddr, T)> {
    let (server, about) = hello(&args.target, app, HELLO_TIMEOUT)?;
    let said: Option<serde_json::Value> =
        serde_json::from_str(&about).ok().filter(|said: &serde_json::Value| said["app"] == app);
    let data = said.and_then(|mut said| serde_json::from_value(said[of].take()).ok());
    let other = || {
        anyhow!(
            "the server at udp {} is no {app} but {about}: type --target with that of `yonder serve {app}`",
            args.target
        )
    };
    Ok((server, data.ok_or_else(other)?))
}

/// Loads a server with the requests of a source for each seed, and prints what has come of it.
fn ask<P, Q>(
    args: &LoadAppArgs,
    app: &'static str,
    server: SocketAddr,
    source: impl Fn(u64) -> Q,
) -> anyhow::Result<ExitCode>
where
    P: Protocol,
    Q: RequestSource<Request = P::Request, Answer = P::Answer> + Send,
{
    let window = if args.rate == Rate::Max { CLOSED_WINDOW } else { OPEN_WINDOW };
    let settings = LoadSettings {
        target: args.target.clone(),
        rate: args.rate,
        duration: args.duration,
        threads: args.threads,
        window: args.window.unwrap_or(window),
        patience: args.patience,
    };
    let report = {
        let bar = Bar::new(&format!("load {app}"));
        let source = |thread| source(SEED + thread as u64);
        load::<P, _>(app, &settings, server, source, &mut |share| bar.show("asking", share))?
    };
    if args.json {
        json_line(&report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(report: &LoadReport) -> anyhow::Result<()> {
    let offered = report.offered_per_s.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0} /s"));
    line(&format!("offered {offered:>12}   answered {:>10.0} /s", report.ops_per_s))?;
    for (kind, latency) in &report.kinds {
        line(&format!(
            "{kind:>12} {:>9}   p50 {:.1} us   p99 {:.1} us   p99.9 {:.1} us   max {:.1} us",
            latency.count, latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
        ))?;
    }
    line(&format!("dropped {}   lost {}   failed {}", report.dropped, report.lost, report.failed))?;
    if let Some(first) = &report.first_failure {
        line(&format!("first failure: {first}"))?;
    }
    Ok(())
}
