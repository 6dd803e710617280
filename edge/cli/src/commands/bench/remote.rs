//! The benchmarks of the memory node: flags in, tables or JSON out.

use std::path::Path;

use yonder::units::format_bytes;
use yonder_bench::peers_get::{self, Comparison, PeerResult};
use yonder_bench::ralloc::{self, AllocResult};
use yonder_bench::rread::{self, Direction, PointResult};
use yonder_bench::scale_clients::{self, ClientsResult, Spaces};
use yonder_bench::scale_pages::{self, PagesResult};
use yonder_bench::tenants::{self, TenantsResult};

use super::launch::Launcher;
use super::pictures;
use crate::args::{Json, Pictured, RreadArgs};
use crate::commands::drawn;
use crate::output::Bar;
use crate::table::{Column, Printer, bytes, number, with_spread};

const POINTS: &[Column<PointResult>] = &[
    Column("size", 8, |result| format_bytes(result.size_bytes as u64)),
    Column("clients", 7, |result| result.clients.to_string()),
    Column("depth", 6, |result| if result.calls == "sync" { "sync".to_owned() } else { result.depth.to_string() }),
    Column("ops/s", 10, |result| number(result.ops_per_s, 0)),
    Column("p50 us", 9, |result| number(result.p50_us, 1)),
    Column("p99 us", 9, |result| number(result.p99_us, 1)),
    Column("p99.9 us", 9, |result| number(result.p999_us, 1)),
    Column("Gbit/s", 9, |result| number(gbit(result, result.counts.fetched_bytes + result.counts.written_bytes), 2)),
    Column("on the wire", 11, |result| number(gbit(result, result.wire_sent_bytes + result.wire_received_bytes), 2)),
    Column("CPU us/op", 9, |result| number(result.client_cpu_us_per_op, 1)),
    Column("node", 6, |result| number(result.server_cpu_us_per_op, 1)),
];

const PEERS: &[Column<PeerResult>] = &[
    Column("size", 8, |result| format_bytes(result.size_bytes as u64)),
    Column("system", 10, |result| result.system.to_owned()),
    Column("p50 us", 22, |result| with_spread(result.p50_us, result.p50_spread_us, 1, "")),
    Column("p99 us", 22, |result| with_spread(result.p99_us, result.p99_spread_us, 1, "")),
    Column("ops/s", 8, |result| number(result.ops_per_s, 0)),
    Column("CPU us", 7, |result| number(result.cpu_us_per_op, 1)),
    Column("depth", 6, |result| result.best_depth.to_string()),
    Column("best op/s", 9, |result| number(result.best_ops_per_s, 0)),
    Column("CPU us", 7, |result| number(result.best_cpu_us_per_op, 2)),
    Column("op/CPU s", 10, |result| number(result.best_ops_per_cpu_s, 0)),
];

const ALLOCATIONS: &[Column<AllocResult>] = &[
    Column("op", 8, |result| result.op.to_owned()),
    Column("of", 10, |result| match (result.size_bytes, result.utilisation_percent) {
        (Some(bytes), _) => format_bytes(bytes),
        (None, percent) => format!("to {} %", percent.unwrap_or(0)),
    }),
    Column("p50 us", 8, |result| number(result.p50_us, 2)),
    Column("p99 us", 8, |result| number(result.p99_us, 2)),
    Column("p99.9 us", 8, |result| number(result.p999_us, 2)),
    Column("retries", 8, |result| number((result.op == "ralloc").then_some(result.retries_mean), 3)),
    Column("at most", 8, |result| number((result.op == "ralloc").then_some(result.retries_max as f64), 0)),
];

const CLIENTS: &[Column<ClientsResult>] = &[
    Column("spaces", 7, |result| format!("{:?}", result.spaces).to_lowercase()),
    Column("clients", 8, |result| result.clients.to_string()),
    Column("ops/s", 8, |result| number(result.ops_per_s, 0)),
    Column("p50 us", 8, |result| number(result.p50_us, 1)),
    Column("p99 us", 8, |result| number(result.p99_us, 1)),
    Column("p99.9 us", 8, |result| number(result.p999_us, 1)),
    Column("/ echo", 6, |result| number(result.p50_ratio_to_echo, 2)),
    Column("/ echo", 6, |result| number(result.p99_ratio_to_echo, 2)),
    Column("/ echo", 6, |result| number(result.p999_ratio_to_echo, 2)),
    Column("node CPU us", 11, |result| number(result.node_cpu_us_per_op, 1)),
    Column("node memory", 11, |result| bytes(result.node_private_bytes)),
    Column("its tables", 10, |result| bytes(result.node_own_bytes)),
    Column("bytes/client", 12, |result| number(result.node_private_bytes_per_client, 0)),
    Column("of tables", 9, |result| number(result.node_own_bytes_per_client, 0)),
    Column("errors", 6, |result| result.counts.errors.to_string()),
];

const PAGES: &[Column<PagesResult>] = &[
    Column("entries", 9, |result| result.entries.to_string()),
    Column("mapped", 8, |result| result.mapped.to_string()),
    Column("ops/s", 10, |result| number(result.ops_per_s, 0)),
    Column("p50 us", 9, |result| number(result.p50_us, 1)),
    Column("p99 us", 9, |result| number(result.p99_us, 1)),
    Column("p99.9 us", 9, |result| number(result.p999_us, 1)),
    Column("p50 / first", 12, |result| number(result.p50_ratio, 2)),
];

const TENANTS: &[Column<TenantsResult>] = &[
    Column("beside", 12, |result| result.beside.clone()),
    Column("ops/s", 9, |result| number(result.ops_per_s, 0)),
    Column("least", 9, |result| number(result.ops_per_s_min, 0)),
    Column("of fair share", 13, |result| number(result.of_fair_share, 2)),
    Column("p50 us", 9, |result| number(result.p50_us, 1)),
    Column("p99 us", 9, |result| number(result.p99_us, 1)),
    Column("most", 9, |result| number(result.p99_us_max, 1)),
    Column("of alone", 8, |result| number(result.p99_of_alone, 2)),
    Column("of twin", 8, |result| number(result.p99_of_twin, 2)),
    Column("attacks/s", 10, |result| number(result.attacks_per_s, 0)),
];

fn gbit(result: &PointResult, bytes: u64) -> f64 {
    bytes as f64 * 8e-9 / result.seconds
}

pub(super) fn run_rread(args: &Pictured<RreadArgs>) -> anyhow::Result<()> {
    let (args, json, out) = args.parts();
    if args.peers { compare(args, json, out) } else { run_access((&args.access, json, out), Direction::Read) }
}

/// Reads or writes, with pictures in a folder if there is one.
pub(super) fn run_access(
    (settings, json, out): (&rread::Settings, bool, Option<&Path>),
    direction: Direction,
) -> anyhow::Result<()> {
    let settings = rread::Settings { direction, ..settings.clone() };
    let bench = rread::Bench::prepare(&settings, &Launcher::new()?)?;
    let bar = Bar::new(if direction == Direction::Read { "bench rread" } else { "bench rwrite" });
    let (points, mut printer) = (bench.points(), Printer::new(json, POINTS));
    printer.say(&format!("{}, {} of memory", bench.node(), format_bytes(settings.memory)))?;
    let (mut sweep, mut results) = ("", Vec::new());
    for (number, point) in points.iter().enumerate() {
        bar.show(point.sweep, number as f64 / points.len() as f64);
        if std::mem::replace(&mut sweep, point.sweep) != point.sweep {
            printer.new_head();
        }
        results.push(bench.run(*point)?);
        printer.print(&results[number])?;
    }
    drop(bar);
    drawn::write(pictures::access(&results), out)
}

pub(super) fn run_tenants(args: &Json<tenants::Settings>) -> anyhow::Result<()> {
    struct Shown(Bar);

    impl tenants::Progress for Shown {
        fn done(&self, part: f64, beside: &str) {
            self.0.show(beside, part);
        }
    }

    let bar = Shown(Bar::new("bench tenants"));
    let results = tenants::run(&args.bench, &bar)?;
    drop(bar);
    let mut printer = Printer::new(args.json, TENANTS);
    printer.new_head();
    results.iter().try_for_each(|result| printer.print(result))
}

fn compare(args: &RreadArgs, json: bool, out: Option<&Path>) -> anyhow::Result<()> {
    let rread::Settings { node, memory, sizes, depths, spin, duration, .. } = args.access.clone();
    let settings =
        peers_get::Settings { node, memory, sizes: sizes.0, depths: depths.0, rounds: args.rounds, spin, duration };
    let mut comparison = Comparison::prepare(&settings, &Launcher::new()?)?;
    comparison.missing().iter().for_each(|missing| eprintln!("SKIP: {missing}"));
    let (bar, mut printer) = (Bar::new("bench rread --peers"), Printer::new(json, PEERS));
    let (sizes, mut all) = (comparison.sizes().to_vec(), Vec::new());
    printer.say(&format!(
        "medians of {} rounds (least to most); one client, then each system's best depth",
        args.rounds
    ))?;
    for (number, bytes) in sizes.iter().enumerate() {
        bar.show(&format_bytes(*bytes as u64), number as f64 / sizes.len() as f64);
        let results = comparison.run(*bytes)?;
        printer.all(&results)?;
        all.extend(results);
    }
    drop(bar);
    drawn::write(pictures::peers(&all), out)
}

pub(super) fn run_ralloc(args: &Pictured<ralloc::Settings>) -> anyhow::Result<()> {
    let (settings, json, out) = args.parts();
    let (launcher, bar) = (Launcher::new()?, Bar::new("bench ralloc"));
    bar.show("latency", 0.0);
    let mut results = ralloc::latency(settings, &launcher)?;
    bar.show("filling a node", 1.0 / 3.0);
    results.extend(ralloc::fill_node(settings, &launcher)?);
    bar.show("filling a page table", 2.0 / 3.0);
    results.extend(ralloc::fill_table(settings)?);
    drop(bar);
    let mut printer = Printer::new(json, ALLOCATIONS);
    for part in results.chunk_by(|one, next| one.part == next.part) {
        printer.say(match part[0].part {
            "latency" => "an empty node, by size",
            "node" => "a node of small pages, by how full it is",
            _ => "a page table in this process, by how full it is",
        })?;
        printer.new_head();
        printer.all(part)?;
    }
    drawn::write(pictures::ralloc(&results), out)
}

pub(super) fn run_scale_clients(args: &Pictured<scale_clients::Settings>) -> anyhow::Result<()> {
    let (settings, json, out) = args.parts();
    let launcher = Launcher::new()?;
    let mut bench = scale_clients::Bench::prepare(settings, &launcher)?;
    let (bar, mut results) = (Bar::new("bench scale-clients"), Vec::new());
    let mut printer = Printer::new(json, CLIENTS);
    // What is compared is measured one after the other.
    let spaces = [Spaces::Echo, Spaces::Own, Spaces::Shared];
    let runs: Vec<_> = settings.clients.iter().flat_map(|clients| spaces.map(|spaces| (spaces, *clients))).collect();
    for (number, (spaces, clients)) in runs.iter().enumerate() {
        bar.show(&format!("{clients} clients"), number as f64 / runs.len() as f64);
        results.push(bench.run(*clients, *spaces)?);
        printer.print(&results[number])?;
    }
    drop(bar);
    drawn::write(pictures::scale_clients(&results), out)
}

pub(super) fn run_scale_pages(args: &Pictured<scale_pages::Settings>) -> anyhow::Result<()> {
    let (settings, json, out) = args.parts();
    let mut bench = scale_pages::Bench::prepare(settings, &Launcher::new()?)?;
    let (bar, mut results) = (Bar::new("bench scale-pages"), Vec::new());
    let mut printer = Printer::new(json, PAGES);
    for (number, entries) in settings.entries.iter().enumerate() {
        bar.show(&format!("{entries} entries"), number as f64 / settings.entries.len() as f64);
        results.push(bench.run(*entries)?);
        printer.print(&results[number])?;
    }
    drop(bar);
    drawn::write(pictures::scale_pages(&results), out)
}
