//! `yonder run --guide`: guides in C and in Rust beside programs, and what is refused.

use std::process::Command;

use yonder_e2e::{Ended, Guide, Program, RUNTIME_DIR, Yonder, busy};

use super::refusals::assert_refused;
use super::{LOCAL, Run, over};

/// What the guide of `next_pages.c` says at the end of a process that it was told of everything in.
const TOLD: &str = "guide: 1 states, misses yes, hits yes, arrivals yes, 0 wrong, 0 far";

/// Runs a program with a guide and without far memory, and compares; what was said, and the misses.
fn guided(yonder: Yonder, program: &Program, args: &[&str], far: &str, flags: &[&str]) -> (Ended, u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = Run { far, local: LOCAL, memory: "512MiB", flags, program, args };
    let (ended, summary) = run.end(yonder, folder.path());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout, program.run(args).stdout);
    (ended, summary["major_faults"].as_u64().expect("a summary has the faults"))
}

/// How often a guide has said in standard error what it was told.
fn said(ended: &Ended) -> usize {
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("guide: ")).collect();
    assert!(lines.iter().all(|line| *line == TOLD), "{lines:#?}");
    lines.len()
}

fn guide_in_c_over(fabric: &str) {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let (Some(program), Some(guide)) = (Program::compiled("list"), Guide::compiled("next_pages", &[])) else { return };
    let _turn = busy();
    over(yonder, fabric, |far| {
        let (ended, _) = guided(yonder, &program, &["1"], far, &["--guide", guide.path()]);
        assert_eq!(said(&ended), 1, "{}", ended.stderr);
    });
}

#[test]
fn a_guide_in_c_is_told_of_a_programs_misses_over_emu() {
    guide_in_c_over("emu");
}

#[test]
fn a_guide_in_c_is_told_of_a_programs_misses_over_tcp() {
    guide_in_c_over("tcp");
}

#[test]
fn programs_with_threads_and_children_are_right_with_a_guide() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(guide) = Guide::compiled("next_pages", &[]) else { return };
    let _turn = busy();
    for (name, args) in [("sync", &[][..]), ("maps", &[])] {
        let Some(program) = Program::compiled(name) else { return };
        over(yonder, "emu", |far| {
            let (ended, _) = guided(yonder, &program, args, far, &["--guide", guide.path()]);
            let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("guide: ")).collect();
            assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with("0 wrong, 0 far")), "{lines:#?}");
        });
    }
}

#[test]
fn programs_that_a_program_starts_have_its_guide_and_others_have_none() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let (Some(program), Some(guide)) = (Program::compiled("list"), Guide::compiled("next_pages", &[])) else { return };
    let _turn = busy();
    let flags = ["run", "--local", LOCAL, "--memory", "512MiB", "--guide", guide.path(), "--", "sh", "-c"];
    let script = format!("cd / && {0} 1 && exec {0} 1", program.path());
    let ended = yonder.run(&[&flags[..], &[&script]].concat());
    assert_eq!((ended.code, said(&ended)), (Some(0), 2), "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("done\n").count(), 2, "{}", ended.stdout);
}

#[test]
fn a_run_without_a_guide_has_none_of_who_starts_it() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(guide) = Guide::compiled("next_pages", &[]) else { return };
    for (flags, seen) in [(&[][..], "[]\n"), (&["--guide", guide.path()], &format!("[{}]\n", guide.path()))] {
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(yonder.path());
        command.env(RUNTIME_DIR, runtime.path());
        command.env("YONDER_RUN_GUIDE", "/of/another.so").arg("run").args(flags);
        let output =
            command.args(["--", "sh", "-c", "echo \"[$YONDER_RUN_GUIDE]\""]).output().expect("it can be started");
        assert_eq!(String::from_utf8_lossy(&output.stdout), seen);
    }
}

#[test]
fn the_guide_of_lists_is_found_by_its_name_and_saves_misses() {
    let Some(yonder) = Yonder::ready_to_run().map(Yonder::with_guides) else { return };
    let Some(program) = Program::compiled("list") else { return };
    let _turn = busy();
    over(yonder, "emu", |far| {
        let misses = |flags: &[&str]| guided(yonder, &program, &["4"], far, flags).1;
        let (without, with) = (misses(&[]), misses(&["--guide", "linked-list"]));
        assert!(without > 4 * 10_000, "little was far: {without} misses");
        assert!(with < without / 2, "{with} misses with the guide, {without} without");
    });
}

#[test]
fn what_is_no_guide_is_refused_before_anything_runs() {
    let Some(yonder) = Yonder::ready_to_run().map(Yonder::with_guides) else { return };
    let refused = |guide: &str, why: &[&str]| {
        for part in why {
            assert_refused(yonder, &["--guide", guide, "--", "echo", "ran"], part);
        }
    };
    refused("no-such-guide", &["there is no guide 'no-such-guide': type one of ", "linked-list"]);
    refused("linked_list", &["is no name of a guide", "linked-list"]);
    refused("", &["is no name of a guide"]);
    refused("/no/such/guide.so", &["there is no guide at /no/such/guide.so: type the path"]);
    refused("/", &["there is no guide at /"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("text.so");
    std::fs::write(&file, "no library\n").expect("the folder is writable");
    refused(file.to_str().expect("temporary folders have names that can be printed"), &["text.so cannot be loaded"]);
    refused("/bin/true", &["cannot be loaded"]);
    let Some(other) = Guide::compiled("next_pages", &["-DSYMBOL=other"]) else { return };
    refused(other.path(), &["is no guide: it has no symbol yonder_guide"]);
    let Some(newer) = Guide::compiled("next_pages", &["-DVERSION=2"]) else { return };
    refused(newer.path(), &["version 2 of the interface", "build it again"]);
}
