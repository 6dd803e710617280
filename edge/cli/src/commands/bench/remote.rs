//! The benchmarks of the memory node: flags in, tables or JSON out.

use std::fmt::Write as _;
use std::path::Path;

use yonder::units::format_bytes;
use yonder_bench::peers_get::{self, Comparison, PeerResult};
use yonder_bench::ralloc::{self, AllocResult};
use yonder_bench::rread::{self, Direction, PointResult};
use yonder_bench::scale_clients::{self, ClientsResult, Spaces};
use yonder_bench::scale_pages::{self, PagesResult};

use super::launch::Launcher;
use super::pictures;
use crate::args::{AccessArgs, Pictured, RallocArgs, RreadArgs, ScaleClientsArgs, ScalePagesArgs};
use crate::commands::drawn;
use crate::output::{Bar, json_line, line};

pub(super) fn run_rread(args: &Pictured<RreadArgs>) -> anyhow::Result<()> {
    let (args, out) = args.parts();
    if args.peers { compare(args, out) } else { run_access((&args.access, out), Direction::Read) }
}

/// Reads or writes, with pictures in a folder if there is one.
pub(super) fn run_access((args, out): (&AccessArgs, Option<&Path>), direction: Direction) -> anyhow::Result<()> {
    let settings = rread::Settings {
        direction,
        node: (&args.target).into(),
        memory: args.memory,
        sizes: args.sizes.0.clone(),
        throughput_bytes: usize::try_from(args.size)?,
        clients: args.clients.0.clone(),
        depths: args.depths.0.clone(),
        spin: args.spin,
        duration: args.duration,
    };
    let bench = rread::Bench::prepare(&settings, &Launcher::new()?)?;
    let bar = Bar::new(if direction == Direction::Read { "bench rread" } else { "bench rwrite" });
    let points = bench.points();
    if !args.json {
        line(&format!("{}, {} of memory", bench.node(), format_bytes(args.memory)))?;
    }
    let (mut sweep, mut results) = ("", Vec::new());
    for (number, point) in points.iter().enumerate() {
        bar.show(point.sweep, number as f64 / points.len() as f64);
        let result = bench.run(*point)?;
        if args.json {
            json_line(&result)?;
        } else {
            print_point(&result, sweep != point.sweep)?;
        }
        sweep = point.sweep;
        results.push(result);
    }
    drop(bar);
    drawn::write(pictures::access(&results), out)
}

fn print_point(result: &PointResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(&format!(
            "{:>8} {:>7} {:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>15}",
            "size", "clients", "depth", "ops/s", "p50 us", "p99 us", "p99.9 us", "Gbit/s", "CPU us/op (node)"
        ))?;
    }
    let node = result.server_cpu_us_per_op.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
    let bytes = (result.fetched_bytes + result.written_bytes) as f64;
    line(&format!(
        "{:>8} {:>7} {:>6} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.2} {:>9.1} ({node})",
        format_bytes(result.size_bytes as u64),
        result.clients,
        if result.calls == "sync" { "sync".to_owned() } else { result.depth.to_string() },
        result.ops_per_s,
        result.p50_us,
        result.p99_us,
        result.p999_us,
        bytes * 8e-9 / result.seconds,
        result.client_cpu_us_per_op,
    ))
}

fn compare(args: &RreadArgs, out: Option<&Path>) -> anyhow::Result<()> {
    let access = &args.access;
    let settings = peers_get::Settings {
        node: (&access.target).into(),
        memory: access.memory,
        sizes: access.sizes.0.clone(),
        depths: access.depths.0.clone(),
        rounds: args.rounds,
        spin: access.spin,
        duration: access.duration,
    };
    let mut comparison = Comparison::prepare(&settings, &Launcher::new()?)?;
    for missing in comparison.missing() {
        eprintln!("SKIP: {missing}");
    }
    let bar = Bar::new("bench rread --peers");
    let sizes = comparison.sizes().to_vec();
    let mut all = Vec::new();
    for (number, bytes) in sizes.iter().enumerate() {
        bar.show(&format_bytes(*bytes as u64), number as f64 / sizes.len() as f64);
        let results = comparison.run(*bytes)?;
        if number == 0 && !access.json {
            line(&format!(
                "medians of {} rounds (least to most); one client, then each system's best depth",
                args.rounds
            ))?;
            line(&format!(
                "{:>8} {:>10} {:>22} {:>22} {:>8} {:>7} {:>6} {:>9} {:>7} {:>10}",
                "size", "system", "p50 us", "p99 us", "ops/s", "CPU us", "depth", "best op/s", "CPU us", "op/CPU s"
            ))?;
        }
        for result in &results {
            if access.json {
                json_line(result)?;
            } else {
                print_peer(result)?;
            }
        }
        all.extend(results);
    }
    drop(bar);
    drawn::write(pictures::peers(&all), out)
}

fn print_peer(result: &PeerResult) -> anyhow::Result<()> {
    let or_dash =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
    let range = |median: f64, [least, most]: [f64; 2]| format!("{median:.1} ({least:.1}-{most:.1})");
    line(&format!(
        "{:>8} {:>10} {:>22} {:>22} {:>8.0} {:>7} {:>6} {:>9.0} {:>7} {:>10}",
        format_bytes(result.size_bytes as u64),
        result.system,
        range(result.p50_us, result.p50_spread_us),
        range(result.p99_us, result.p99_spread_us),
        result.ops_per_s,
        or_dash(result.cpu_us_per_op, 1),
        result.best_depth,
        result.best_ops_per_s,
        or_dash(result.best_cpu_us_per_op, 2),
        or_dash(result.best_ops_per_cpu_s, 0),
    ))
}

pub(super) fn run_ralloc(args: &Pictured<RallocArgs>) -> anyhow::Result<()> {
    let (args, out) = args.parts();
    let settings = ralloc::Settings {
        node: (&args.target).into(),
        sizes: args.sizes.0.clone(),
        node_pages: args.node_pages,
        table_pages: args.table_pages,
        longest_pages: args.longest,
        duration: args.duration,
    };
    let launcher = Launcher::new()?;
    let bar = Bar::new("bench ralloc");
    bar.show("latency", 0.0);
    let mut results = ralloc::latency(&settings, &launcher)?;
    bar.show("filling a node", 1.0 / 3.0);
    results.extend(ralloc::fill_node(&settings, &launcher)?);
    bar.show("filling a page table", 2.0 / 3.0);
    results.extend(ralloc::fill_table(&settings)?);
    drop(bar);
    let mut part = "";
    for result in &results {
        if args.json {
            json_line(result)?;
        } else {
            print_alloc(result, part != result.part)?;
        }
        part = result.part;
    }
    drawn::write(pictures::ralloc(&results), out)
}

fn print_alloc(result: &AllocResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(match result.part {
            "latency" => "an empty node, by size",
            "node" => "a node of small pages, by how full it is",
            _ => "a page table in this process, by how full it is",
        })?;
    }
    let what = match (result.size_bytes, result.utilisation_percent) {
        (Some(bytes), _) => format_bytes(bytes),
        (None, percent) => format!("to {} %", percent.unwrap_or(0)),
    };
    let mut text = format!(
        "{:>8} {:>10}  p50 {:>8.2} us  p99 {:>8.2} us  p99.9 {:>8.2} us",
        result.op, what, result.p50_us, result.p99_us, result.p999_us
    );
    if result.op == "ralloc" {
        write!(text, "  retries {:.3} on average, at most {}", result.retries_mean, result.retries_max)?;
    }
    line(&text)
}

pub(super) fn run_scale_clients(args: &Pictured<ScaleClientsArgs>) -> anyhow::Result<()> {
    let (args, out) = args.parts();
    let settings = scale_clients::Settings {
        node: (&args.target).into(),
        clients: args.clients.0.clone(),
        rate: f64::from(args.rate),
        read_bytes: usize::try_from(args.size)?,
        duration: args.duration,
    };
    let launcher = Launcher::new()?;
    let mut bench = scale_clients::Bench::prepare(&settings, &launcher)?;
    let (bar, mut results) = (Bar::new("bench scale-clients"), Vec::new());
    // What is compared is measured one after the other.
    let spaces = [Spaces::Echo, Spaces::Own, Spaces::Shared];
    let runs: Vec<_> = settings.clients.iter().flat_map(|clients| spaces.map(|spaces| (spaces, *clients))).collect();
    for (number, (spaces, clients)) in runs.iter().enumerate() {
        bar.show(&format!("{clients} clients"), number as f64 / runs.len() as f64);
        let result = bench.run(*clients, *spaces)?;
        if args.json {
            json_line(&result)?;
        } else {
            print_clients(&result, number == 0)?;
        }
        results.push(result);
    }
    drop(bar);
    drawn::write(pictures::scale_clients(&results), out)
}

fn print_clients(result: &ClientsResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(&format!(
            "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>11} {:>10} {:>21} {:>6}",
            "spaces",
            "clients",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "p50",
            "p99",
            "p99.9",
            "CPU us",
            "node memory",
            "its tables",
            "bytes/client (tables)",
            "errors"
        ))?;
        line(&format!("{:>51} {:>20} {:>8}", "", "as multiples of echo", "of node"))?;
    }
    let or_dash = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
    let bytes = |bytes: Option<u64>| or_dash(bytes.map(format_bytes));
    let number = |value: Option<f64>, digits: usize| or_dash(value.map(|value| format!("{value:.digits$}")));
    let each = result.node_private_bytes_per_client.zip(result.node_own_bytes_per_client);
    line(&format!(
        "{:>7} {:>8} {:>8.0} {:>8.1} {:>8.1} {:>8.1} {:>6} {:>6} {:>6} {:>8} {:>11} {:>10} {:>21} {:>6}",
        match result.spaces {
            Spaces::Own => "own",
            Spaces::Shared => "shared",
            Spaces::Echo => "echo",
        },
        result.clients,
        result.ops_per_s,
        result.p50_us,
        result.p99_us,
        result.p999_us,
        number(result.p50_ratio_to_echo, 2),
        number(result.p99_ratio_to_echo, 2),
        number(result.p999_ratio_to_echo, 2),
        number(result.node_cpu_us_per_op, 1),
        bytes(result.node_private_bytes),
        bytes(result.node_own_bytes),
        or_dash(each.map(|(private, own)| format!("{private:.0} ({own:.0})"))),
        result.errors,
    ))
}

pub(super) fn run_scale_pages(args: &Pictured<ScalePagesArgs>) -> anyhow::Result<()> {
    let (args, out) = args.parts();
    let settings = scale_pages::Settings {
        node: (&args.target).into(),
        page_bytes: args.page_size,
        entries: args.entries.0.iter().map(|count| *count as u64).collect(),
        read_bytes: usize::try_from(args.size)?,
        duration: args.duration,
    };
    let mut bench = scale_pages::Bench::prepare(&settings, &Launcher::new()?)?;
    let (bar, mut results) = (Bar::new("bench scale-pages"), Vec::new());
    for (number, entries) in settings.entries.iter().enumerate() {
        bar.show(&format!("{entries} entries"), number as f64 / settings.entries.len() as f64);
        let result = bench.run(*entries)?;
        if args.json {
            json_line(&result)?;
        } else {
            print_pages(&result, number == 0)?;
        }
        results.push(result);
    }
    drop(bar);
    drawn::write(pictures::scale_pages(&results), out)
}

fn print_pages(result: &PagesResult, first: bool) -> anyhow::Result<()> {
    if first {
        line(&format!(
            "{:>9} {:>8} {:>10} {:>9} {:>9} {:>9} {:>12}",
            "entries", "mapped", "ops/s", "p50 us", "p99 us", "p99.9 us", "p50 / first"
        ))?;
    }
    line(&format!(
        "{:>9} {:>8} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>12.2}",
        result.entries, result.mapped, result.ops_per_s, result.p50_us, result.p99_us, result.p999_us, result.p50_ratio
    ))
}
