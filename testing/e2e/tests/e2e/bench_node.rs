//! `yonder bench` of the memory node: what it prints, and that the processes it starts end with it.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use yonder_e2e::{Ended, TIMEOUT, Yonder, alone};

/// What every object of a result has, by the design's section 9.
pub(crate) const KEYS: [&str; 10] = [
    "bench",
    "ops_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "major_faults",
    "minor_faults",
    "fetched_bytes",
    "written_bytes",
    "errors",
];

/// Most time of a benchmark, on a machine that is busy.
const BENCH_TIME: Duration = Duration::from_secs(300);

/// Runs a benchmark that succeeds, and returns its objects, which keep the contract.
pub(crate) fn bench(yonder: Yonder, arguments: &str) -> Vec<Value> {
    let words: Vec<&str> = std::iter::once("bench").chain(arguments.split(' ')).chain(["--json"]).collect();
    let ended: Ended = yonder.spawn(&words).end_within(BENCH_TIME);
    assert_eq!(ended.code, Some(0), "'{}' said: {}", ended.command, ended.stderr);
    let objects = ended.objects();
    for object in &objects {
        assert!(has(object, &KEYS), "a key is missing in {object}");
        assert_eq!(object["errors"], 0, "{object}");
    }
    objects
}

/// As [`bench`], for longer and longer in the place of `DURATION`, until there is enough in every object. On a busy
/// machine a short run may not get its turn.
pub(crate) fn bench_until(yonder: Yonder, arguments: &str, is_enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut objects = Vec::new();
    for duration in ["500ms", "3s", "20s"] {
        objects = bench(yonder, &arguments.replace("DURATION", duration));
        if objects.iter().all(&is_enough) {
            return objects;
        }
    }
    let too_few: Vec<&Value> = objects.iter().filter(|object| !is_enough(object)).collect();
    panic!("20 s were not enough for {too_few:?}");
}

/// How many requests of an application's first kind were answered: what was dropped counts as of that kind.
pub(crate) fn answered(object: &Value, first: &str) -> u64 {
    let count = |value: &Value| value.as_u64().expect("a count");
    count(&object[first]["count"]).saturating_sub(count(&object["dropped"]))
}

/// Whether an object has all these keys.
pub(crate) fn has(object: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| object.get(*key).is_some())
}

pub(crate) fn column<'a>(objects: &'a [Value], key: &str) -> Vec<&'a Value> {
    objects.iter().map(|object| &object[key]).collect()
}

#[test]
fn reads_and_writes_are_measured_over_every_transport() {
    let yonder = Yonder::found();
    let _alone = alone();
    for transport in ["udp", "tcp", "shm"] {
        for name in ["rread", "rwrite"] {
            let objects = bench(
                yonder,
                &format!(
                    "{name} --transport {transport} --memory 2MiB --sizes 4,64KiB --clients 2 --depths 8 --duration 30ms"
                ),
            );
            assert_eq!(column(&objects, "bench"), [name; 4]);
            assert_eq!(column(&objects, "sweep"), ["size", "size", "clients", "depth"]);
            assert_eq!(column(&objects, "size_bytes"), [4, 65536, 4096, 4096]);
            for object in &objects {
                assert!(object["node"].as_str().is_some_and(|node| node.starts_with(transport)), "{object}");
                assert!(
                    object["p50_us"].as_f64() > Some(0.0) && object["server_cpu_us_per_op"].is_number(),
                    "{object}"
                );
            }
        }
    }
}

#[test]
fn a_node_that_is_there_is_measured_and_left_as_it_was() {
    let yonder = Yonder::found();
    let _alone = alone();
    let node = yonder.serve(&["node", "--listen", "udp://127.0.0.1:0", "--memory", "64MiB", "--page-size", "4KiB"]);
    let url = node.url("udp");
    let objects =
        bench(yonder, &format!("rread --node {url} --memory 1MiB --sizes 64 --clients 1 --depths 4 --duration 20ms"));
    assert_eq!(column(&objects, "node"), [url.as_str(); 3]);
    assert!(objects.iter().all(|object| object["server_cpu_us_per_op"].is_null()), "not ours to count");
    let objects = bench(yonder, &format!("scale-pages --node {url} --entries 1,512 --duration 20ms"));
    assert_eq!(column(&objects, "entries"), [1, 512]);
    let status = node.stop();
    assert_eq!(status.code, Some(0), "{}", status.stderr);
}

#[test]
fn clients_cost_the_node_nothing_that_it_counts() {
    let yonder = Yonder::found();
    let _alone = alone();
    let objects = bench_until(yonder, "scale-clients --clients 1,12 --rate 500 --duration DURATION", |object| {
        object["fetched_bytes"].as_u64() > Some(0)
    });
    assert_eq!(column(&objects, "spaces"), ["echo", "own", "shared", "echo", "own", "shared"]);
    assert_eq!(column(&objects, "clients"), [1, 1, 1, 12, 12, 12]);
    for object in &objects {
        assert!(object["fetched_bytes"].as_u64() > Some(0), "{object}");
        let of_node = ["node_own_bytes_per_client", "p50_ratio_to_echo", "p999_ratio_to_echo"];
        if object["spaces"] == "echo" {
            assert!(of_node.iter().all(|key| object[key].is_null()), "{object}");
            assert!(object["node"].as_str().is_some_and(|node| node.starts_with("echo://127.0.0.1:")), "{object}");
        } else {
            assert_eq!(object["node_own_bytes_per_client"], 0.0, "{object}");
            assert!(of_node[1..].iter().all(|key| object[key].as_f64() > Some(0.0)), "{object}");
        }
    }
}

#[test]
fn pictures_are_drawn_of_what_was_measured() {
    let yonder = Yonder::found();
    let _alone = alone();
    let folder = tempfile::tempdir().expect("there is room for files");
    let out = folder.path().join("pictures").display().to_string();
    for (arguments, wanted) in [
        ("rread --memory 1MiB --sizes 4,4096 --clients 1 --depths 1,4 --duration 10ms", 2),
        ("ralloc --sizes page --node-pages 1024 --table-pages 16384 --duration 10ms", 2),
        ("scale-clients --clients 1,3 --rate 500 --duration 50ms", 5),
        ("scale-pages --entries 1,256 --duration 10ms", 1),
        ("migrate --regions 2 --region-size 1MiB --duration 50ms", 1),
    ] {
        let before = files(&out);
        bench(yonder, &format!("{arguments} --out {out}"));
        assert_eq!(files(&out) - before, wanted, "{arguments}");
    }
}

#[test]
fn applications_run_on_a_node_that_computes() {
    let yonder = Yonder::found();
    let _alone = alone();
    for (arguments, name, wanted) in [
        ("image --clients 1 --photos 4 --side 32", "image", 1),
        ("tree --keys 500 --searches 50", "tree", 4),
        ("objects --operations 50", "objects", 5),
        ("frame --rows 2000 --rounds 1", "frame", 14),
    ] {
        let objects = bench(yonder, arguments);
        assert_eq!(column(&objects, "bench"), vec![name; wanted], "{arguments}");
    }
}

/// How many pictures there are.
fn files(folder: &str) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let texts = entries.map(|entry| std::fs::read_to_string(entry.expect("it is listed").path()).expect("it is text"));
    texts.filter(|text| text.starts_with("<svg ") && text.trim_end().ends_with("</svg>")).count()
}

#[test]
fn allocations_near_a_full_node_need_few_retries() {
    let yonder = Yonder::found();
    let _alone = alone();
    let objects = bench(yonder, "ralloc --sizes page,1MiB --node-pages 2048 --table-pages 32768 --duration 20ms");
    let full = objects.iter().filter(|object| object["utilisation_percent"] == 98);
    let retries: Vec<_> = full.map(|object| object["retries_max"].as_u64().expect("a count")).collect();
    assert_eq!(retries.len(), 2, "a node and a page table");
    assert!(retries.iter().all(|most| *most <= 60), "{retries:?}");
}

#[test]
fn a_peer_that_is_missing_is_named_with_its_package() {
    let yonder = Yonder::found();
    let _alone = alone();
    let words = "bench rread --peers --memory 1MiB --sizes 64 --depths 4 --rounds 1 --duration 20ms --json";
    let ended = yonder.run(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let skipped: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("SKIP: ")).collect();
    assert!(skipped.iter().all(|line| line.contains("apt-get install ")), "{skipped:?}");
    let objects = ended.objects();
    assert_eq!(objects.len() + skipped.len(), 3, "each system is measured or named: {}", ended.stderr);
    assert_eq!(objects[0]["system"], "yonder");
    assert!(objects.iter().all(|object| has(object, &KEYS)), "{}", ended.stdout);
}

#[test]
fn settings_that_cannot_work_are_one_line_that_says_what_to_type() {
    let yonder = Yonder::found();
    for (arguments, wanted) in [
        ("rread --memory 4KiB --sizes 64KiB", "type a larger --memory"),
        ("rread --node udp://127.0.0.1:1 --sizes 64", "yonder node --listen"),
        ("scale-pages --entries 5,1", "type --entries"),
        ("scale-clients --size 64KiB", "--size 16"),
    ] {
        let words: Vec<&str> = std::iter::once("bench").chain(arguments.split(' ')).collect();
        let ended = yonder.run(&words);
        assert!(ended.complaint(1).contains(wanted), "{arguments}: {}", ended.stderr);
    }
}

#[test]
fn a_node_that_was_started_ends_with_its_benchmark_even_if_that_is_killed() {
    // No other node has this much memory: twice what the benchmark uses.
    const MEMORY: u64 = 7_654_320;
    let yonder = Yonder::found();
    let memory = MEMORY.to_string();
    let bench = yonder.spawn(&["bench", "rread", "--memory", &memory, "--sizes", "64", "--duration", "600s"]);
    let give_up = std::time::Instant::now() + TIMEOUT;
    let node = loop {
        if let Some(node) = find_node(&(2 * MEMORY).to_string()) {
            break node;
        }
        assert!(std::time::Instant::now() < give_up, "the benchmark starts no node");
        std::thread::yield_now();
    };
    let handle = pidfd_open(node, PidfdFlags::empty()).expect("the node runs");
    bench.kill();
    let timeout = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let ended = rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout));
    assert_eq!(ended, Ok(1), "the node has outlived its benchmark");
}

/// The process that runs `yonder node --memory MEMORY`.
fn find_node(memory: &str) -> Option<Pid> {
    std::fs::read_dir("/proc").expect("there is a /proc").filter_map(Result::ok).find_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        (words.get(1) == Some(&&b"node"[..]) && words.contains(&memory.as_bytes())).then(|| Pid::from_raw(number))?
    })
}
