//! What the results of the memory node's benchmarks look like: [`Picture`]s, which `--out` writes as SVG files.
//!
//! Neighbours: `drawn` of the commands writes them; `remote` and `apps` measure; `fault_breakdown` and `poster` have
//! bars of their own; `tools/report` draws.

use yonder_bench::migrate::MigrateResult;
use yonder_bench::peers_get::PeerResult;
use yonder_bench::ralloc::AllocResult;
use yonder_bench::rread::PointResult;
use yonder_bench::scale_clients::{ClientsResult, Spaces};
use yonder_bench::scale_pages::PagesResult;
use yonder_report::{Line, Picture, Quantity};

/// A picture whose file is `bench-about.svg`.
fn picture(
    (bench, about): (&str, &str),
    title: String,
    caption: &str,
    (horizontal, vertical): (Quantity, Quantity),
    lines: Vec<Line>,
) -> Picture {
    Picture::new(&format!("{bench}-{about}"), [&title, caption], [horizontal, vertical], lines)
}

/// A curve of those of `results` that have a point.
fn curve<'a, R: 'a>(
    name: impl Into<String>,
    results: impl IntoIterator<Item = &'a R>,
    point: impl Fn(&R) -> Option<(f64, f64)>,
) -> Line {
    Line { name: name.into(), points: results.into_iter().filter_map(point).collect() }
}

/// Latency by size, throughput by operations under way.
pub(super) fn access(results: &[PointResult]) -> Vec<Picture> {
    let Some(first) = results.first() else { return Vec::new() };
    let what = if first.bench == "rread" { "read" } else { "write" };
    let by_size = |name: &str, latency: fn(&PointResult) -> f64| {
        curve(name, results, |result| (result.sweep == "size").then(|| (result.size_bytes as f64, latency(result))))
    };
    let throughput = |name: &str, sweep: &str| {
        curve(name, results, |result| {
            (result.sweep == sweep).then(|| ((result.clients * result.depth) as f64, result.ops_per_s))
        })
    };
    let sizes = Quantity::Sizes(if what == "read" { "bytes of a read" } else { "bytes of a write" });
    vec![
        picture(
            (first.bench, "latency-by-size"),
            format!("{}: latency by size", first.bench),
            "One thread that waits for each operation.",
            (sizes, Quantity::Latency),
            vec![
                by_size("P50", |result| result.p50_us),
                by_size("P99", |result| result.p99_us),
                by_size("P99.9", |result| result.p999_us),
            ],
        ),
        picture(
            (first.bench, "throughput-by-depth"),
            format!("{}: operations per second by depth", first.bench),
            "How many a second, while so many are under way.",
            (Quantity::Counts("operations under way"), Quantity::Rate),
            vec![
                throughput("one thread, asynchronous", "depth"),
                throughput("as many threads, each waits for one", "clients"),
            ],
        ),
    ]
}

/// Latency by size, of all systems.
pub(super) fn peers(results: &[PeerResult]) -> Vec<Picture> {
    let mut systems: Vec<&str> = results.iter().map(|result| result.system).collect();
    systems.sort_unstable();
    systems.dedup();
    let by_size = |value: fn(&PeerResult) -> f64| {
        let of = |system: &&str| {
            curve(*system, results, |result| {
                (result.system == *system).then(|| (result.size_bytes as f64, value(result)))
            })
        };
        systems.iter().map(of).collect::<Vec<_>>()
    };
    let sizes = Quantity::Sizes("bytes of a value");
    let one = "One client that waits for each; medians of the rounds.";
    vec![
        picture(
            ("rread-peers", "p50"),
            "A read beside GET: median latency".to_owned(),
            one,
            (sizes, Quantity::Latency),
            by_size(|result| result.p50_us),
        ),
        picture(
            ("rread-peers", "p99"),
            "A read beside GET: P99 latency".to_owned(),
            one,
            (sizes, Quantity::Latency),
            by_size(|result| result.p99_us),
        ),
        picture(
            ("rread-peers", "throughput"),
            "A read beside GET: operations per second".to_owned(),
            "Each system with its best number of requests under way; medians of the rounds.",
            (sizes, Quantity::Rate),
            by_size(|result| result.best_ops_per_s),
        ),
    ]
}

/// Latency by size, retries by utilisation.
pub(super) fn ralloc(results: &[AllocResult]) -> Vec<Picture> {
    let by_size = |name: &str, op: &str, latency: fn(&AllocResult) -> f64| {
        curve(name, results, |result| {
            let bytes = result.size_bytes.filter(|_| result.part == "latency" && result.op == op)?;
            Some((bytes as f64, latency(result)))
        })
    };
    let retries = |name: &str, part: &str, value: fn(&AllocResult) -> f64| {
        curve(name, results, |result| {
            let percent = result.utilisation_percent.filter(|_| result.part == part)?;
            Some((f64::from(percent), value(result)))
        })
    };
    vec![
        picture(
            ("ralloc", "latency-by-size"),
            "ralloc and rfree: latency by size".to_owned(),
            "Pairs of both, on a node that is empty.",
            (Quantity::Sizes("bytes of an allocation"), Quantity::Latency),
            vec![
                by_size("ralloc P50", "ralloc", |result| result.p50_us),
                by_size("ralloc P99", "ralloc", |result| result.p99_us),
                by_size("rfree P50", "rfree", |result| result.p50_us),
                by_size("rfree P99", "rfree", |result| result.p99_us),
            ],
        ),
        picture(
            ("ralloc", "retries-by-utilisation"),
            "ralloc: ranges tried in vain, by how full the node is".to_owned(),
            "The most for one allocation, and the mean.",
            (Quantity::Number("percent of pages in use, at most"), Quantity::Number("")),
            vec![
                retries("a node, most", "node", |result| f64::from(result.retries_max)),
                retries("a page table, most", "table", |result| f64::from(result.retries_max)),
                retries("a node, mean", "node", |result| result.retries_mean),
                retries("a page table, mean", "table", |result| result.retries_mean),
            ],
        ),
    ]
}

/// Latency, the node's memory and its time, by client processes.
pub(super) fn scale_clients(results: &[ClientsResult]) -> Vec<Picture> {
    const ALL: [(Spaces, &str); 3] =
        [(Spaces::Own, "a space each"), (Spaces::Shared, "one space for all"), (Spaces::Echo, "plain echo, no node")];
    let by_clients = |name: String, spaces: Spaces, value: &dyn Fn(&ClientsResult) -> Option<f64>| {
        curve(name, results, |result| Some((result.clients as f64, value(result).filter(|_| result.spaces == spaces)?)))
    };
    let of_all = |value: fn(&ClientsResult) -> Option<f64>| -> Vec<Line> {
        ALL.iter().map(|(spaces, name)| by_clients((*name).to_owned(), *spaces, &value)).collect()
    };
    let clients = Quantity::Counts("client processes");
    let latency = |about: &str, percentile: &str, value: fn(&ClientsResult) -> Option<f64>| {
        picture(
            ("scale-clients", about),
            format!("scale-clients: {percentile} latency by client processes"),
            "All processes together make the same number of reads a second.",
            (clients, Quantity::Latency),
            of_all(value),
        )
    };
    let memory = [Spaces::Own, Spaces::Shared].into_iter().zip(["a space each", "one space for all"]);
    let memory = memory.flat_map(|(spaces, name)| {
        [
            by_clients(format!("{name}: private"), spaces, &|result| Some(result.node_private_bytes? as f64)),
            by_clients(format!("{name}: its tables"), spaces, &|result| Some(result.node_own_bytes? as f64)),
        ]
    });
    vec![
        latency("p50", "median", |result| Some(result.p50_us)),
        latency("p99", "P99", |result| Some(result.p99_us)),
        latency("p999", "P99.9", |result| Some(result.p999_us)),
        picture(
            ("scale-clients", "node-memory"),
            "scale-clients: the node's own memory".to_owned(),
            "Without what it lends; its tables are a part of what is private.",
            (clients, Quantity::Memory),
            memory.collect(),
        ),
        picture(
            ("scale-clients", "node-cpu"),
            "scale-clients: CPU time of the node for each read".to_owned(),
            "Beside it that of the thread that sends plain datagrams back.",
            (clients, Quantity::CpuTime),
            of_all(|result| result.node_cpu_us_per_op),
        ),
    ]
}

/// Latency by page table entries.
pub(super) fn scale_pages(results: &[PagesResult]) -> Vec<Picture> {
    let by_entries = |name: &str, latency: fn(&PagesResult) -> f64| {
        curve(name, results, |result| Some((result.entries as f64, latency(result))))
    };
    vec![picture(
        ("scale-pages", "latency-by-entries"),
        "scale-pages: latency by entries of the page table".to_owned(),
        "Reads at random among all entries, by one thread that waits for each.",
        (Quantity::Counts("page table entries"), Quantity::Latency),
        vec![
            by_entries("P50", |result| result.p50_us),
            by_entries("P99", |result| result.p99_us),
            by_entries("P99.9", |result| result.p999_us),
        ],
    )]
}

/// Operations per second over time, with the pauses of regions.
pub(super) fn migrate(result: &MigrateResult) -> Vec<Picture> {
    let middle = |part: usize| (part as f64 + 0.5) * result.part_seconds;
    let points = result.ops_per_s_over_time.iter().enumerate().map(|(part, ops)| (middle(part), *ops));
    let line = Line { name: format!("clients of {} regions", result.regions), points: points.collect() };
    let pauses = result.pauses.iter().map(|pause| (pause.began_s, pause.ended_s));
    let drawn = picture(
        ("migrate", "operations-over-time"),
        "migrate: operations per second while a node is drained".to_owned(),
        &format!("The drain was ordered at {:.2} s and done at {:.2} s.", result.drain_began_s, result.drain_ended_s),
        (Quantity::Number("seconds"), Quantity::Rate),
        vec![line],
    );
    vec![Picture { shades: pauses.collect(), shade_name: "longest operation of each region".to_owned(), ..drawn }]
}

#[cfg(test)]
mod tests {
    use yonder_bench::migrate::Pause;

    use yonder_bench::Counts;

    use super::*;
    use crate::commands::drawn::{without_empty_lines, write};

    fn pages(entries: u64, p50_us: f64) -> PagesResult {
        PagesResult {
            bench: "scale-pages",
            node: String::new(),
            entries,
            mapped: 1,
            page_bytes: 4096,
            size_bytes: 16,
            seconds: 1.0,
            ops_per_s: 1.0,
            p50_us,
            p99_us: 2.0 * p50_us,
            p999_us: 3.0 * p50_us,
            p50_ratio: 1.0,
            node_private_bytes: None,
            node_own_bytes: None,
            counts: Counts::default(),
        }
    }

    fn clients(spaces: Spaces, clients: usize, private: Option<u64>) -> ClientsResult {
        ClientsResult {
            bench: "scale-clients",
            node: String::new(),
            spaces,
            clients,
            offered_per_s: 2000.0,
            size_bytes: 16,
            seconds: 1.0,
            ops_per_s: 2000.0,
            p50_us: 10.0,
            p99_us: 20.0,
            p999_us: 30.0,
            p50_ratio_to_echo: None,
            p99_ratio_to_echo: None,
            p999_ratio_to_echo: None,
            node_cpu_us_per_op: Some(5.0),
            node_private_bytes: private,
            node_lent_bytes: private,
            node_own_bytes: private,
            node_private_bytes_per_client: None,
            node_own_bytes_per_client: None,
            counts: Counts::default(),
        }
    }

    fn names(pictures: &[Picture]) -> Vec<&str> {
        pictures.iter().map(|picture| picture.name.as_str()).collect()
    }

    #[test]
    fn every_percentile_is_a_curve() {
        let pictures = scale_pages(&[pages(1, 10.0), pages(1024, 11.0)]);
        assert_eq!(names(&pictures), ["scale-pages-latency-by-entries"]);
        let lines: Vec<_> = pictures[0].lines.iter().map(|line| line.points.clone()).collect();
        assert_eq!(
            lines,
            [[(1.0, 10.0), (1024.0, 11.0)], [(1.0, 20.0), (1024.0, 22.0)], [(1.0, 30.0), (1024.0, 33.0)]]
        );
    }

    #[test]
    fn the_echo_is_beside_the_node_wherever_it_has_something_to_show() {
        let results =
            [clients(Spaces::Echo, 1, None), clients(Spaces::Own, 1, Some(7)), clients(Spaces::Own, 9, Some(8))];
        let pictures: Vec<_> = scale_clients(&results).into_iter().filter_map(without_empty_lines).collect();
        let lines: Vec<_> = pictures.iter().map(|picture| picture.lines.len()).collect();
        assert_eq!(lines, [2, 2, 2, 2, 2], "{:?}", names(&pictures));
        assert_eq!(pictures[3].lines[0].points, [(1.0, 7.0), (9.0, 8.0)]);
        assert_eq!(pictures[4].lines[1].name, "plain echo, no node");
        // A node that was there before tells nothing of its memory.
        let results = [clients(Spaces::Own, 1, None)];
        let pictures: Vec<_> = scale_clients(&results).into_iter().filter_map(without_empty_lines).collect();
        assert!(!names(&pictures).contains(&"scale-clients-node-memory"), "{:?}", names(&pictures));
    }

    #[test]
    fn pauses_are_shaded() {
        let pause = Pause { region: 0, began_s: 1.0, ended_s: 1.5 };
        let result = MigrateResult {
            bench: "migrate",
            regions: 1,
            region_bytes: 1 << 20,
            moved_bytes: 1 << 20,
            drain_seconds: 1.0,
            pause_min_us: 0.5e6,
            pause_median_us: 0.5e6,
            pause_max_us: 0.5e6,
            held_up_max_us: 0.0,
            ops_per_s: 10.0,
            ops_per_s_beside_pauses: 10.0,
            ops_per_s_of_one: 10.0,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            drain_began_s: 1.0,
            drain_ended_s: 2.0,
            pauses: vec![pause],
            part_seconds: 0.5,
            ops_per_s_over_time: vec![10.0, 20.0],
            pages_checked: 256,
            counts: Counts::default(),
        };
        let pictures = migrate(&result);
        assert_eq!(
            (&pictures[0].shades, &pictures[0].lines[0].points),
            (&vec![(1.0, 1.5)], &vec![(0.25, 10.0), (0.75, 20.0)])
        );
    }

    #[test]
    fn files_are_written_where_they_are_wanted() {
        write(scale_pages(&[pages(1, 10.0)]), None).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut pictures = scale_pages(&[pages(1, 10.0)]);
        pictures.extend(scale_pages(&[]));
        write(pictures, Some(directory.path())).unwrap();
        let svg = std::fs::read_to_string(directory.path().join("scale-pages-latency-by-entries.svg")).unwrap();
        assert!(svg.contains("page table entries") && svg.contains("P99.9"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
