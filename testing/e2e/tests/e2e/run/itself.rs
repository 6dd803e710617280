//! The process that `yonder run` was is the program: its number, its signals, its end; and its figures are there when
//! it has ended.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use yonder_e2e::{Program, Yonder};

use super::refusals::{text, told};

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
        let script = format!("trap 'echo caught; exit 5' {name}; echo ready; while :; do read -t 60 line; done");
        let mut process = yonder.spawn(&["run", "--", "bash", "-c", &script]);
        process.wait_for("ready");
        process.signal(signal);
        let ended = process.end();
        assert_eq!((ended.code, ended.stdout.contains("caught")), (Some(5), true), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("yonder run: "), "{name}: {}", ended.stderr);
    }
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

#[test]
fn its_figures_are_there_when_it_has_ended() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("itself") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    for how in ["return", "exit", "_exit", "_Exit", "thread", "forked"] {
        let summary = folder.path().join(how);
        let said = folder.path().join("said");
        let errors = File::create(&said).expect("the folder is writable");
        let flags = ["run", "--local", "4MiB", "--memory", "128MiB", "--summary", text(&summary), "--"];
        let mut command = Command::new(yonder.path());
        command.args(flags).args([program.path(), how]).stdout(Stdio::null()).stderr(errors);
        let status = command.status().expect("it can be started");
        // Nobody has waited for its streams, or for anything but the process.
        let said = std::fs::read_to_string(said).expect("it was made");
        assert_eq!(status.code(), Some(7), "{how}: {said}");
        assert!(said.starts_with("yonder run: ") && said.contains(" far and "), "{how}: {said}");
        let told = told(&summary);
        assert!(told["peak_far_bytes"].as_u64() >= Some(16 << 20), "{how}: {told}");
    }
}

#[test]
fn it_ends_soon_if_its_helper_was_killed() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let together = yonder.together();
    let mut process = together.spawn(&["run", "--", "bash", "-c", "echo ready; read line; exit 3"]);
    process.wait_for("ready");
    let of_process = |what: &str| std::fs::read(format!("/proc/{}/{what}", process.pid())).expect("it is there");
    let environment = String::from_utf8(of_process("environ")).expect("its words can be printed");
    let board = environment.split('\0').find_map(|word| word.strip_prefix("YONDER_RUN_BOARD=")).expect("it has one");
    let children = of_process(&format!("task/{}/children", process.pid()));
    let helper = std::str::from_utf8(&children).ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
    kill_process(helper.expect("it has one child"), Signal::KILL).expect("it is there");
    process.say("end");
    let ended = process.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(3), ""), "nobody is there to tell anything");
    let left = Path::new(board).parent().expect("it is in a folder");
    std::fs::remove_dir_all(left).expect("nobody was there to remove it");
}
