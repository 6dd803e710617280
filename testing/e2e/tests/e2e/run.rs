//! `yonder run`: programs in C that check everything they do with their memory, over several fabrics.
//!
//! A program prints the same as without far memory, or it is wrong. `run/disks` is far memory in files, `run/refusals`
//! what `yonder run` refuses and tells, `run/itself` that the program is its process, `run/guides` what they are with a
//! guide, `run/interpreters` interpreters of the machine, `run/reports` what it draws, `run/threads` how many threads
//! wait for pages at one time.

mod advised;
mod auto;
mod containers;
mod disks;
mod guides;
mod interpreters;
mod itself;
mod refusals;
mod reports;
mod sizes;
mod threads;
mod trying;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use yonder_e2e::{Ended, Program, Yonder, busy};

/// How long a program may run. It only decides when a hang is called one.
const PROGRAM_TIME: Duration = Duration::from_secs(120);
/// Local memory: a fraction of what every program sweeps.
const LOCAL: &str = "4MiB";
/// Less is not far of every program: stacks, what the C library has, what was there before.
const UNCOVERED: u64 = 64 << 20;
/// The emulated link is fast, so that tests are.
const EMULATED: &str = "emu://?latency=2us&gbps=100";

/// How a program is run.
#[derive(Clone, Copy)]
struct Run<'a> {
    far: &'a str,
    local: &'a str,
    memory: &'a str,
    flags: &'a [&'a str],
    program: &'a Program,
    args: &'a [&'a str],
}

impl Run<'_> {
    /// Runs it to its end; also what the summary says.
    fn end(&self, yonder: Yonder, folder: &Path) -> (Ended, Value) {
        let summary = folder.join("summary.json");
        let summary = summary.to_str().expect("temporary folders have names that can be printed");
        let flags = ["run", "--far", self.far, "--local", self.local, "--memory", self.memory, "--summary", summary];
        let ended = yonder
            .spawn(&[&flags[..], self.flags, &["--", self.program.path()], self.args].concat())
            .end_within(PROGRAM_TIME);
        let text = std::fs::read_to_string(summary).unwrap_or_else(|_| panic!("there is no summary: {}", ended.stderr));
        (ended, serde_json::from_str(&text).expect("the summary is a JSON object"))
    }
}

/// Far memory of a kind, for as long as `test` runs.
fn over(yonder: Yonder, fabric: &str, test: impl FnOnce(&str)) {
    if fabric == "emu" {
        return test(EMULATED);
    }
    if let Some(layer) = fabric.strip_suffix("file") {
        return disks::over_a_folder(yonder, |far| test(&format!("{layer}{far}")));
    }
    if let Some(layer) = fabric.strip_suffix("tiers") {
        // The node is soon full, so pages are in both.
        return disks::over_a_folder(yonder, |file| {
            let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB"]);
            test(&format!("{layer}tier+near=8MiB+{}+{file}", node.url("tcp")));
            assert_eq!(node.stop().code, Some(0));
        });
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("node.sock");
    let listen = format!("tcp://127.0.0.1:0,udp://127.0.0.1:0,shm://{}", socket.display());
    let node = yonder.serve(&["node", "--listen", &listen, "--memory", "3GiB"]);
    test(&node.url(fabric));
    assert_eq!(node.stop().code, Some(0));
}

/// Runs a program with and without far memory, and compares. `FOLDER` stands for an empty folder.
fn is_the_same(name: &str, args: &[&str], fabric: &str, local: &str) {
    let Some(program) = Program::compiled(name) else { return };
    is_the_same_of(&program, args, fabric, local);
}

fn is_the_same_of(program: &Program, args: &[&str], fabric: &str, local: &str) {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let in_folder = |run: &dyn Fn(&Path, &[&str])| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let work = folder.path().join("work");
        std::fs::create_dir(&work).expect("a temporary folder is writable");
        let work = work.to_str().expect("temporary folders have names that can be printed");
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "FOLDER" { work } else { *arg }).collect();
        run(folder.path(), &args);
    };
    // Each uses both CPUs of a small machine.
    let _turn = busy();
    over(yonder, fabric, |far| {
        in_folder(&|folder, args| {
            let run = Run { far, local, memory: "512MiB", flags: &[], program, args };
            let (ended, summary) = run.end(yonder, folder);
            let wrong: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("WRONG")).collect();
            assert!(wrong.is_empty() && ended.code == Some(0), "{wrong:#?}\n{:?}: {}", ended.code, ended.stderr);
            in_folder(&|_, args| assert_eq!(ended.stdout, program.run(args).stdout));
            let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
            assert!(
                number("processes") >= 1 && number("fetched_bytes") > 4 * number("local_bytes"),
                "little was far: {summary}"
            );
            assert!(number("peak_local_bytes") <= number("local_bytes"), "{summary}");
            assert!(number("peak_uncovered_bytes") < UNCOVERED, "not far as well: {summary}");
        });
    });
}

macro_rules! programs {
    ($($test:ident: $name:literal $args:tt over $fabric:literal with $local:expr;)*) => {$(
        #[test]
        fn $test() {
            is_the_same($name, &$args, $fabric, $local);
        }
    )*};
}

programs! {
    files_over_emu: "files" ["FOLDER", "32"] over "emu" with LOCAL;
    files_over_tcp: "files" ["FOLDER", "6"] over "tcp" with LOCAL;
    sockets_over_emu: "sockets" ["24"] over "emu" with LOCAL;
    sockets_over_tcp: "sockets" ["10"] over "tcp" with LOCAL;
    waiting_over_emu: "waiting" [] over "emu" with LOCAL;
    waiting_over_tcp: "waiting" [] over "tcp" with LOCAL;
    locks_over_emu: "sync" [] over "emu" with LOCAL;
    locks_over_tcp: "sync" [] over "tcp" with LOCAL;
    mappings_over_emu: "maps" [] over "emu" with LOCAL;
    mappings_over_tcp: "maps" [] over "tcp" with LOCAL;
    the_heap_over_emu: "heap" ["1", "3"] over "emu" with "8MiB";
    the_heap_over_tcp: "heap" ["2", "3"] over "tcp" with "8MiB";
    processes_over_emu: "processes" ["FOLDER"] over "emu" with LOCAL;
    processes_over_tcp: "processes" ["FOLDER", "REMOTE"] over "tcp" with LOCAL;
    signals_over_emu: "signals" ["FOLDER"] over "emu" with LOCAL;
    signals_over_tcp: "signals" ["FOLDER"] over "tcp" with LOCAL;
    stacks_over_emu: "stacks" [] over "emu" with "12MiB";
    lent_memory_over_emu: "lent" [] over "emu" with "12MiB";
    lent_memory_over_tcp: "lent" [] over "tcp" with "12MiB";
    changes_of_user_over_emu: "identity" [] over "emu" with LOCAL;
    changes_of_user_over_tcp: "identity" [] over "tcp" with LOCAL;
    changes_of_user_over_a_disk: "identity" [] over "lz4+file" with LOCAL;
    stacks_over_tcp: "stacks" [] over "tcp" with "12MiB";
    the_heap_over_sealed_tiers: "heap" ["4", "2"] over "seal+tiers" with "8MiB";
    the_heap_over_compressed_tiers: "heap" ["5", "2"] over "lz4+tiers" with "8MiB";
    mappings_over_tiers: "maps" [] over "tiers" with LOCAL;
    processes_over_tiers: "processes" ["FOLDER", "REMOTE"] over "tiers" with LOCAL;
    descriptors_over_tiers: "descriptors" [] over "tiers" with LOCAL;
    locked_memory_over_emu: "locked" [] over "emu" with "16MiB";
    locked_memory_over_tcp: "locked" [] over "tcp" with "16MiB";
    descriptors_over_emu: "descriptors" [] over "emu" with LOCAL;
    descriptors_over_tcp: "descriptors" [] over "tcp" with LOCAL;
    descriptors_over_udp: "descriptors" [] over "udp" with LOCAL;
    descriptors_over_shm: "descriptors" [] over "shm" with LOCAL;
    ends_over_emu: "ends" [] over "emu" with LOCAL;
    ends_over_tcp: "ends" [] over "tcp" with LOCAL;
    ends_over_a_disk: "ends" [] over "file" with LOCAL;
    dispositions_over_emu: "dispositions" ["FOLDER"] over "emu" with LOCAL;
    dispositions_over_tcp: "dispositions" ["FOLDER"] over "tcp" with LOCAL;
    dispositions_over_a_disk: "dispositions" ["FOLDER"] over "lz4+file" with LOCAL;
    descriptors_over_a_disk: "descriptors" [] over "file" with LOCAL;
    descriptors_over_a_compressed_disk: "descriptors" [] over "lz4+file" with LOCAL;
    files_over_a_disk: "files" ["FOLDER", "6"] over "file" with LOCAL;
    sockets_over_a_disk: "sockets" ["10"] over "lz4+file" with LOCAL;
    waiting_over_a_disk: "waiting" [] over "file" with LOCAL;
    locks_over_a_sealed_disk: "sync" [] over "lz4+seal+file" with LOCAL;
    mappings_over_a_disk: "maps" [] over "lz4+file" with LOCAL;
    reserved_memory_over_emu: "reserved" ["FOLDER"] over "emu" with LOCAL;
    reserved_memory_over_tcp: "reserved" ["FOLDER"] over "tcp" with LOCAL;
    the_heap_over_a_disk: "heap" ["2", "3"] over "file" with "8MiB";
    processes_over_a_disk: "processes" ["FOLDER", "REMOTE"] over "file" with LOCAL;
    processes_over_a_compressed_disk: "processes" ["FOLDER", "REMOTE"] over "lz4+file" with LOCAL;
    signals_over_a_sealed_disk: "signals" ["FOLDER"] over "seal+file" with LOCAL;
    stacks_over_a_disk: "stacks" [] over "lz4+file" with "12MiB";
}

/// The dynamic linker is found behind all parts of the C library, and allocates locally.
#[test]
fn a_program_that_was_linked_long_ago() {
    if let Some(program) = Program::compiled_with_old_parts("ends") {
        is_the_same_of(&program, &[], "emu", LOCAL);
    }
}

#[test]
fn a_forked_process_that_needs_a_node_says_so() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("forked") else { return };
    for fabric in ["tcp", "file", "lz4+file", "seal+file"] {
        a_forked_process_needs_what_its_parent_has(yonder, &program, fabric);
    }
}

fn a_forked_process_needs_what_its_parent_has(yonder: Yonder, program: &Program, fabric: &str) {
    over(yonder, fabric, |far| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Run { far, local: LOCAL, memory: "64MiB", flags: &[], program, args: &[] };
        let (ended, _) = run.end(yonder, folder.path());
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "ok the child was ended by signal 6\ndone\n"),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stderr.matches("a forked process").count(), 1, "{}", ended.stderr);
    });
}

/// A node that has room for one program at a time has room for the next one at once, however the one before has ended.
#[test]
fn the_memory_of_a_program_that_has_ended_is_the_nodes_again() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("faults") else { return };
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "384MiB"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = &node.url("tcp");
    for (args, code) in [(&[][..], Some(0)), (&["KILL"][..], None), (&[][..], Some(0))] {
        let run = Run { far, local: "8MiB", memory: "256MiB", flags: &[], program: &program, args };
        let (ended, _) = run.end(yonder, folder.path());
        assert_eq!(ended.code, code, "{}", ended.stderr);
    }
    assert_eq!(node.stop().code, Some(0));
}
