//! The process that `yonder run` was is the program: its number, its signals, its end; and its figures are there when
//! it has ended.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use yonder_e2e::{Program, Yonder};

use super::refusals::text;

/// A user who owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn it_ends_as_the_program_does() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    // A shell says of a signal what the system says of it.
    for (script, code) in [("exit 0", 0), ("exit 37", 37), ("exit 255", 255), ("kill -9 $$", 137), ("kill -11 $$", 139)]
    {
        let script = format!("{} run -- sh -c '{script}'; echo $?", yonder.path());
        let output = Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{code}\n"), "{script}");
    }
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        // A shell cannot catch what was ignored when it began, as in the background of another shell.
        if is_ignored(signal) {
            println!("SKIP: SIG{name} is ignored here: run this in the foreground");
            continue;
        }
        let script = format!("trap 'echo caught; exit 5' {name}; echo ready; while :; do read -t 60 line; done");
        let mut process = yonder.spawn(&["run", "--", "bash", "-c", &script]);
        process.wait_for("ready");
        process.signal(signal);
        let ended = process.end();
        assert_eq!((ended.code, ended.stdout.contains("caught")), (Some(5), true), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("yonder run: "), "{name}: {}", ended.stderr);
    }
}

/// Whether this process ignores a signal, and so what it starts.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the kernel says so");
    u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (signal.as_raw() - 1) & 1 == 1
}

/// What the program says of itself.
#[test]
fn it_is_the_process_and_has_no_children_that_it_does_not_know() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("itself") else { return };
    let mut process = yonder.spawn(&["run", "--local", "4MiB", "--memory", "128MiB", "--", program.path()]);
    let said = process.wait_for("process ");
    assert_eq!(said, format!("process {} of {}", process.pid(), std::process::id()));
    let ended = process.end();
    assert_eq!((ended.code, ended.stdout.contains("WRONG")), (Some(0), false), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.ends_with("done\n"), "{}", ended.stdout);
}

#[test]
fn it_keeps_what_it_was_given_and_its_helper_does_not() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let run =
        format!("exec {} run -- bash -c 'read -u 6 word; echo $word; exec >&-; read line; exit 3'", yonder.path());
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec 6<<<given; {run}")]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
    let mut said = String::new();
    // It is at its end when the program has closed it, and nobody else has it.
    running.stdout.take().expect("it is piped").read_to_string(&mut said).expect("it is a pipe");
    assert_eq!(said, "given\n");
    assert!(running.try_wait().expect("it is a child").is_none(), "it waits for a line");
    drop(running.stdin.take());
    assert_eq!(running.wait().expect("it is a child").code(), Some(3));
}

/// Runs the program of these tests to the end of its process, and waits for nothing else. Its code, what was printed to
/// both streams, and the summary, as they were then.
fn end_of(yonder: Yonder, how: &str, flags: &[&str]) -> Option<(Option<i32>, String, Value)> {
    let program = Program::compiled("itself")?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (summary, said) = (folder.path().join("summary"), folder.path().join("said"));
    let streams = File::create(&said).expect("the folder is writable");
    let both = streams.try_clone().expect("it is a file");
    let sizes = ["run", "--local", "4MiB", "--memory", "128MiB", "--summary", text(&summary)];
    let mut command = Command::new(yonder.path());
    command.args(sizes).args(flags).args(["--", program.path(), how]).stdout(streams).stderr(both);
    let status = command.status().expect("it can be started");
    let said = std::fs::read_to_string(said).expect("it was made");
    let told = std::fs::read_to_string(summary).expect("it was written");
    Some((status.code(), said, serde_json::from_str(&told).unwrap_or_default()))
}

#[test]
fn its_figures_are_there_when_it_has_ended() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    for how in ["return", "exit", "_exit", "_Exit", "thread", "forked", "quick"] {
        let Some((code, said, told)) = end_of(yonder, how, &[]) else { return };
        assert_eq!(code, Some(7), "{how}: {said}");
        assert!(said.starts_with("yonder run: ") && said.contains(" far and "), "{how}: {said}");
        assert!(told["peak_far_bytes"].as_u64() >= Some(16 << 20), "{how}: {told}");
    }
    let Some((code, said, _)) = end_of(yonder, "last", &[]) else { return };
    assert_eq!(code, Some(0), "{said}");
    // What it has not written yet comes before what is told of it.
    assert!(said.starts_with("the last thread ends\nyonder run: "), "{said}");
    // Its child that shares nothing is ended as well.
    let Some((code, said, _)) = end_of(yonder, "return", &["--strict=0"]) else { return };
    assert!(code != Some(7) && said.contains("more than --strict=0"), "{code:?}: {said}");
}

/// The C library waits for no stream that another thread has.
#[test]
fn it_ends_while_another_thread_of_it_waits_for_input() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("itself") else { return };
    let flags = ["run", "--local", "4MiB", "--memory", "128MiB", "--", program.path(), "reader"];
    let ended = yonder.together().spawn(&flags).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "reads\n"), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("yonder run: "), "{}", ended.stderr);
}

/// What is called for the figures would be its end.
#[test]
fn a_program_with_a_filter_of_its_own_ends_as_it_wants_to() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("itself") else { return };
    for how in ["sandboxed", "_sandboxed"] {
        let ended = yonder.run(&["run", "--", program.path(), how]);
        assert_eq!(ended.code, Some(7), "{how}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("yonder run: "), "{how}: {}", ended.stderr);
    }
}

#[test]
fn the_summary_goes_where_the_program_was_told_to_print() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let ended = yonder.run(&["run", "--summary", "/dev/stdout", "--", "echo", "printed"]);
    let (printed, summary) = ended.stdout.split_once('\n').expect("two lines");
    let summary: Value = serde_json::from_str(summary).expect("the summary is a JSON object");
    assert_eq!((printed, summary["program"].as_str()), ("printed", Some("echo")));
    // A file behind it keeps what the program has printed.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let both = folder.path().join("both");
    let mut command = Command::new(yonder.path());
    command.args(["run", "--summary", "/dev/stdout", "--", "echo", "printed"]).stderr(Stdio::null());
    let status = command.stdout(File::create(&both).expect("the folder is writable")).status();
    assert!(status.is_ok_and(|status| status.success()));
    let both = std::fs::read_to_string(both).expect("it was made");
    assert!(both.starts_with("printed\n{") && both.ends_with("}\n"), "{both}");
    let refused = yonder.run(&["run", "--summary", "/no/such/folder/file", "--", "echo", "ran"]);
    assert!(refused.complaint(2).contains("--summary cannot be written to /no/such/folder/file"), "{}", refused.stderr);
    assert!(refused.stdout.is_empty(), "{}", refused.stdout);
    // What is refused leaves no file.
    let summary = folder.path().join("summary");
    let refused = yonder.run(&["run", "--summary", text(&summary), "--", "no-such-program-anywhere"]);
    assert!(refused.code == Some(2) && !summary.exists(), "{}", refused.stderr);
}

#[test]
fn it_ends_soon_if_its_helper_was_killed() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let together = yonder.together();
    let mut process = together.spawn(&["run", "--", "bash", "-c", "echo ready; read line; exit 3"]);
    process.wait_for("ready");
    let of = |process: u32, what: &str| std::fs::read(format!("/proc/{process}/{what}")).unwrap_or_default();
    let environment = String::from_utf8(of(process.pid(), "environ")).expect("its words can be printed");
    let board = environment.split('\0').find_map(|word| word.strip_prefix("YONDER_RUN_BOARD=")).expect("it has one");
    // The one that has the file with the figures open in its memory, but is not the program.
    let names = std::fs::read_dir("/proc").expect("it is mounted").filter_map(Result::ok);
    let numbers = names.filter_map(|name| name.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |other: &u32| *other != process.pid() && String::from_utf8_lossy(&of(*other, "maps")).contains(board);
    let helpers: Vec<u32> = numbers.filter(has_it).collect();
    let [helper] = helpers[..] else { panic!("there is one helper: {helpers:?}") };
    let helper = Pid::from_raw(helper.cast_signed()).expect("a process has a number");
    for signal in [Signal::TERM, Signal::USR1, Signal::KILL] {
        kill_process(helper, signal).expect("it is there");
    }
    process.say("end");
    let ended = process.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), ""), "nobody is there to tell anything");
    let left = Path::new(board).parent().expect("it is in a folder");
    std::fs::remove_dir_all(left).expect("nobody was there to remove it");
}

/// Whatever the user's mask of new files lets others do: what programs touch, and what opens their far memory, is
/// there.
#[test]
fn its_files_are_its_users_alone() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (report, trace) = (folder.path().join("report.html"), folder.path().join("trace"));
    let program = r#"b = bytearray(64 << 20); print("ready", flush=True); input()"#;
    let flags = format!("--memory 256MiB --report {} --trace {}", report.display(), trace.display());
    let script = format!("umask 0; exec {} run {flags} -- python3 -c '{program}'", yonder.path());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().expect("there is a shell");
    let mut said = [0; 6];
    running.stdout.as_mut().expect("it is piped").read_exact(&mut said).expect("it says that it is ready");
    assert_eq!(said, *b"ready\n");
    let environment = std::fs::read(format!("/proc/{}/environ", running.id())).expect("it runs");
    let environment = String::from_utf8(environment).expect("its words can be printed");
    let board = environment.split('\0').find_map(|word| word.strip_prefix("YONDER_RUN_BOARD=")).expect("it has one");
    let shared = Path::new(board).parent().expect("it is in a folder");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(shared), 0o700);
    let files = |folder: &Path| std::fs::read_dir(folder).expect("it is a folder").map(|entry| entry.unwrap().path());
    let kept: Vec<_> = files(shared).filter(|path| !path.to_str().unwrap().contains("modules-")).collect();
    assert!(kept.len() >= 2, "a board and a record: {kept:?}");
    let written: Vec<_> = files(folder.path()).filter(|path| *path != report).collect();
    assert!(!written.is_empty(), "there is no trace");
    for path in kept.iter().chain(&written) {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    if rustix::process::geteuid().is_root() {
        for path in kept.iter().chain([&PathBuf::from(format!("/proc/{}/environ", running.id()))]) {
            let read = Command::new("cat").arg(path).uid(NOBODY).gid(NOBODY).output().expect("there is a cat");
            assert!(!read.status.success() && read.stdout.is_empty(), "another user has read {}", path.display());
        }
    } else {
        println!("SKIP: only root can look as another user");
    }
    drop(running.stdin.take());
    running.wait().expect("it is a child");
}
