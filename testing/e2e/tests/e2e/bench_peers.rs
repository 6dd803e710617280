//! `yonder bench peers`: what it prints, what it leaves out, and that nothing of it stays, however it ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use yonder_e2e::{Ended, Process, TIMEOUT, Yonder, alone};

/// How long a quick run may take. It only decides when a hang is called one.
const TIME: Duration = Duration::from_secs(300);
/// Pause between two looks at what processes there are.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// What every object has.
const KEYS: [&str; 20] = [
    "bench",
    "workload",
    "peer",
    "far",
    "swap",
    "memory_bytes",
    "local_bytes",
    "threads",
    "offered_per_s",
    "runs",
    "ops_per_s",
    "ratio_to_yonder",
    "p50_us",
    "p99_us",
    "p999_us",
    "major_faults",
    "minor_faults",
    "fetched_bytes",
    "written_bytes",
    "errors",
];

fn words(flags: &str) -> Vec<&str> {
    ["bench", "peers"].into_iter().chain(flags.split(' ')).collect()
}

fn peers(yonder: Yonder, flags: &str) -> Ended {
    let ended = yonder.spawn(&words(flags)).end_within(TIME);
    ended.stderr.lines().filter(|line| line.starts_with("SKIP:")).for_each(|line| println!("{line}"));
    ended
}

fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

/// Whether the kernel has killed a peer that it swaps, which it may do although swap has room.
fn was_killed(object: &Value) -> bool {
    let was_killed = object["far"].is_null() && text(object, "failed").starts_with("out of memory");
    if was_killed {
        println!("SKIP: {}, {}: {}", text(object, "workload"), text(object, "peer"), text(object, "failed"));
    }
    was_killed
}

/// Runs `bench peers` for longer and longer, until everybody who was measured has done something. On a busy machine a
/// short run may not get its turn.
fn peers_until_enough(yonder: Yonder, flags: &str) -> (Vec<Value>, Ended) {
    let mut runs = ["200ms", "2s", "10s"].into_iter().map(|duration| {
        let ended = peers(yonder, &format!("{flags} --duration {duration}"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        (ended.objects(), ended)
    });
    let is_too_little = |object: &Value| object["ops_per_s"] == 0.0 || object["major_faults"] == 0.0;
    runs.find(|(objects, _)| !objects.iter().any(is_too_little)).expect("10 s are enough")
}

#[test]
fn every_peer_of_the_array_is_measured_and_compared() {
    let Some(yonder) = Yonder::ready() else { return };
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let flags =
        format!("--workloads array --memory 16MiB --local 50% --threads 2 --rate 500 --runs 1 --json --out {folder}");
    let (objects, ended) = peers_until_enough(yonder, &flags);
    let in_closed_loop: Vec<_> = objects.iter().filter(|object| object["offered_per_s"].is_null()).collect();
    let names: Vec<String> = in_closed_loop.iter().map(|object| text(object, "peer")).collect();
    assert_eq!(names, ["yield", "probe", "busy", "swap-zram", "swap-file", "mmap"]);
    for object in &objects {
        assert!(KEYS.iter().all(|key| object.get(*key).is_some()), "{object}");
        assert_eq!((&object["bench"], &object["errors"]), (&"peers".into(), &0.into()), "{object}");
        if let Some(missing) = object["skipped"].as_str() {
            assert!(ended.stderr.contains(&format!("SKIP: array, {}", text(object, "peer"))), "{}", ended.stderr);
            assert!(!missing.contains('\n') && object["ops_per_s"].is_null(), "{object}");
            continue;
        }
        if was_killed(object) {
            continue;
        }
        assert_eq!((&object["failed"], &object["runs"]), (&Value::Null, &1.into()), "{object}");
        let number = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("no {name} in {object}"));
        assert!(number("ops_per_s") > 0.0 && number("p50_us") <= number("p999_us"), "{object}");
        // Half of the pages are local: there are faults that fetch, whoever pages.
        assert!(number("major_faults") > 0.0 && number("fetched_bytes") > 0.0, "{object}");
        if object["far"].is_null() {
            assert!(number("group_bytes") > number("local_bytes") && number("ratio_to_yonder") > 0.0, "{object}");
        }
    }
    let zram_was_measured = !in_closed_loop[3]["ops_per_s"].is_null();
    assert_eq!(in_closed_loop[0]["bars"].as_array().map(Vec::len), Some(usize::from(zram_was_measured)));
    assert!(out.path().join("peers-array-throughput.svg").exists() && out.path().join("peers-array-p999.svg").exists());
}

#[test]
fn stock_servers_are_measured_under_run_and_under_swap() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _alone = alone();
    let flags = "--workloads memcached,redis --memory 16MiB --local 50% --rate none --runs 1 --connections 8 --json";
    let (objects, _) = peers_until_enough(yonder, flags);
    let names: Vec<_> = objects.iter().map(|object| (text(object, "workload"), text(object, "peer"))).collect();
    let memcached =
        ["run", "kv", "kv-busy", "swap-zram", "swap-file"].map(|peer| ("memcached".to_owned(), peer.to_owned()));
    let redis = ["run", "swap-zram", "swap-file"].map(|peer| ("redis".to_owned(), peer.to_owned()));
    assert_eq!(names, [&memcached[..], &redis].concat());
    for object in objects.iter().filter(|object| object["skipped"].is_null() && !was_killed(object)) {
        let number = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("no {name} in {object}"));
        assert_eq!((number("errors"), &object["failed"]), (0.0, &Value::Null), "{object}");
        assert!(number("ops_per_s") > 0.0 && number("major_faults") > 0.0, "{object}");
    }
}

#[test]
fn a_program_that_is_missing_is_skipped_and_the_table_says_so() {
    let yonder = Yonder::found();
    let mut command = Command::new(yonder.path());
    command.args(words("--workloads memcached,redis --memory 16MiB --duration 100ms --runs 1")).env("PATH", "/nowhere");
    let output = command.output().unwrap();
    let (said, table) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    for program in ["memcached", "redis-server"] {
        let reason = format!("{program} is not installed: type `apt-get install {program}` as root");
        let lines = said.lines().filter(|line| line.starts_with("SKIP: ") && line.ends_with(&reason)).count();
        assert_eq!(lines, 3, "{said}");
    }
    assert_eq!(table.lines().filter(|line| line.ends_with("SKIP")).count(), 6, "{table}");
}

#[test]
fn bad_flags_are_one_line_that_says_what_to_type() {
    let yonder = Yonder::found();
    for (flags, code, complaint) in [
        ("--swap disk", 2, "type zram, file, or file:PATH"),
        ("--rate fast", 2, "type auto, none, or requests per second"),
        ("--peers windows", 2, "possible values"),
        ("--workloads array --peers run", 1, "type --workloads array,memcached,redis"),
    ] {
        let ended = yonder.run(&words(flags));
        assert!(ended.complaint(code).contains(complaint), "{flags}: {}", ended.stderr);
    }
}

/// The processes that descend from one.
fn descendants(of: u32) -> Vec<u32> {
    let parent = |process: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, parent(process)?)))
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

/// Waits until a descendant runs whose command line has all of `words`; none if the benchmark ends first.
fn wait_for_descendant(process: &mut Process, words: &[&str]) -> Option<u32> {
    let give_up = Instant::now() + TIMEOUT;
    let line_of = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let pid = process.pid();
    let says = |child: &u32| {
        let line = line_of(*child);
        // A child has its parent's line until it becomes a program, and may become `mkswap`.
        if line == line_of(pid) {
            return false;
        }
        let line: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        // A shell that becomes the program, and what guards it, have its words behind their own.
        let is_it = !line.iter().any(|word| word == "guarded" || word == "-c" || word == "run");
        is_it && words.iter().all(|word| line.iter().any(|of_line| of_line.contains(word)))
    };
    loop {
        if let Some(found) = descendants(pid).into_iter().find(says) {
            return Some(found);
        }
        if process.ends_within(LOOK_PAUSE) {
            return None;
        }
        assert!(Instant::now() < give_up, "nothing with {words:?} has started");
    }
}

/// Those that were killed may take a moment; nobody may have asked yet how they ended.
fn wait_until_they_have_ended(processes: &[u32]) {
    let give_up = Instant::now() + TIMEOUT;
    let runs = |process: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, behind)| !behind.starts_with(['Z', 'X']))
    };
    while let Some(left) = processes.iter().find(runs) {
        assert!(Instant::now() < give_up, "process {left} runs on");
        std::thread::sleep(LOOK_PAUSE); // tidy: sleep: the kernel tells nobody of a process that is not its child
    }
}

/// Control groups of this process that are there.
fn groups_of(process: u32) -> Vec<PathBuf> {
    fn search(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_str() == Some(name) {
                found.push(entry.path());
            }
            search(&entry.path(), name, found);
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), &format!("yonder-bench-{process}"), &mut found);
    found
}

fn swaps() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// Temporary files that are named after one of these processes.
fn temporary_files_of(processes: &[u32]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let is_theirs = |path: &PathBuf| {
        let words: Vec<_> = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().split('-').collect();
        let is_named = |process: &u32| words.contains(&process.to_string().as_str());
        words[0] == "yonder" && processes.iter().any(is_named)
    };
    entries.filter(is_theirs).collect()
}

#[test]
fn ctrl_c_leaves_no_group_no_swap_no_file_and_no_process() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}", folder.path().join("swap").display());
    for (flags, child) in [
        ("--workloads array --peers yield".to_owned(), &["bench", "array"][..]),
        (format!("--workloads array --peers swap --threads 2 --swap {file}"), &["bench", "resident"]),
        ("--workloads array --peers swap --threads 1 --swap zram".to_owned(), &["bench", "resident"]),
        (format!("--workloads array --peers mmap --swap {file}"), &["bench", "resident"]),
        ("--workloads memcached --peers run".to_owned(), &["memcached"]),
        (format!("--workloads memcached --peers swap --swap {file}"), &["memcached"]),
        ("--workloads redis --peers swap --swap zram".to_owned(), &["redis-server"]),
    ] {
        let before = swaps();
        let mut process = yonder.spawn(&words(&format!("{flags} --memory 32MiB --duration 60s --runs 1")));
        let Some(descendant) = wait_for_descendant(&mut process, child) else {
            let ended = process.end();
            println!("SKIP: {}", ended.stderr.lines().next().unwrap_or("it ended"));
            assert!(ended.stderr.contains("SKIP: "), "{flags}: {}", ended.stderr);
            continue;
        };
        let pid = process.pid();
        let own_swaps: Vec<_> = swaps().into_iter().filter(|swap| !before.contains(swap)).collect();
        let all = descendants(pid);
        assert!(all.contains(&descendant), "{flags}");
        assert!(!temporary_files_of(&[pid]).is_empty(), "{flags}");
        if flags.contains("swap ") || flags.contains("mmap") {
            assert_eq!(groups_of(pid).len(), 1, "{flags}");
        }
        let ended = process.stop();
        assert_eq!(ended.complaint(1), "yonder: interrupted", "{flags}");
        wait_until_they_have_ended(&all);
        assert!(groups_of(pid).is_empty(), "{flags}");
        assert!(swaps().iter().all(|swap| !own_swaps.contains(swap)), "{flags}: {:?}", swaps());
        let files = temporary_files_of(&[&all[..], &[pid]].concat());
        assert!(files.is_empty(), "{flags}: {files:?}");
        let files: Vec<_> = folder.path().read_dir().unwrap().collect();
        assert!(files.is_empty(), "{flags}: {files:?}");
    }
}
