//! `yonder run --far file://`: programs whose memory is on a disk, one beside another, and what a file cannot do.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::fs::FlockOperation;
use yonder_e2e::{Ended, Program, Yonder, busy};

use super::refusals::assert_refused;
use super::{LOCAL, PROGRAM_TIME};

/// Room on the disk for each process, and the far memory that it is for.
const SIZE: &str = "640MiB";
const MEMORY: &str = "512MiB";

/// Far memory in an empty folder, for as long as `test` runs. Says why, if that is not possible here.
pub(super) fn over_a_folder(yonder: Yonder, test: impl FnOnce(&str)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = format!("file://{}?size={SIZE}", folder.path().display());
    let tried = yonder.run(&["run", "--far", &far, "--memory", MEMORY, "--", "true"]);
    if tried.code != Some(0) && ["io_uring", "direct access"].iter().any(|lack| tried.stderr.contains(lack)) {
        println!("SKIP: {}", tried.stderr.trim());
        return;
    }
    assert_eq!(tried.code, Some(0), "{}", tried.stderr);
    test(&far);
    assert_eq!(files(folder.path()), 0, "something was left in the folder");
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("the folder is there").count()
}

/// A program that is installed here, and says why it is left out if not.
fn is_installed(name: &str) -> bool {
    let is_there = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        println!("SKIP: {name} is not installed");
    }
    is_there
}

fn run(yonder: Yonder, far: &str, command: &[&str]) -> Ended {
    let flags = ["run", "--far", far, "--local", LOCAL, "--memory", MEMORY, "--"];
    yonder.spawn(&[&flags[..], command].concat()).end_within(PROGRAM_TIME)
}

/// What a program of the machine prints is the same on a disk, compressed or not, and much of its memory was there.
fn prints_the_same(command: &[&str]) {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    if !is_installed(command[0]) {
        return;
    }
    let expected = Command::new(command[0]).args(&command[1..]).output().expect("it is installed");
    assert!(expected.status.success(), "{expected:?}");
    let _turn = busy();
    over_a_folder(yonder, |far| {
        for far in [far, &format!("lz4+{far}")] {
            let ended = run(yonder, far, command);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            assert_eq!(ended.stdout, String::from_utf8_lossy(&expected.stdout));
            assert!(!ended.stderr.contains("too little memory"), "{}", ended.stderr);
            assert!(!ended.stderr.contains(" 0 major"), "{}", ended.stderr);
        }
    });
}

#[test]
fn sort_sorts_on_a_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lines");
    let lines: String =
        (0..200_000_u64).map(|line| format!("{:016x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(&path, lines).expect("the folder is writable");
    prints_the_same(&["sort", "--parallel=2", "-S", "64M", path.to_str().expect("a plain name")]);
}

#[test]
fn python_computes_on_a_disk() {
    let script = "import subprocess, sys\n\
        data = {i: str(i * 7919 % 1000003) for i in range(200000)}\n\
        print(sum(int(data[i]) for i in range(0, 200000, 3)))\n\
        print(subprocess.run(['sort', '-n'], input='3\\n1\\n2\\n', capture_output=True, text=True).stdout)\n\
        print(len(bytes(20_000_000)), hash(tuple(range(1000))))\n";
    prints_the_same(&["python3", "-c", script]);
}

#[test]
fn sqlite_queries_on_a_disk() {
    let script = "create table t(id integer primary key, word text);\
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 80000) \
        insert into t select i, hex(i * 7919 % 100003) from n;\
        create index by_word on t(word);\
        select count(*), sum(id), min(word), max(word) from t;\
        select word, count(*) from t group by word order by 2 desc, 1 limit 5;";
    prints_the_same(&["sqlite3", ":memory:", script]);
}

#[test]
fn programs_share_a_folder_and_not_their_files() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("heap") else { return };
    let _turn = busy();
    over_a_folder(yonder, |far| {
        let script = format!("{0} 1 2 & one=$!; {0} 2 2 & wait $one && wait $! && exec {0} 3 1", program.path());
        let ended = run(yonder, far, &["bash", "-c", &script]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stdout.matches("done\n").count(), 3, "{}", ended.stdout);
        assert!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    });
}

#[test]
fn a_named_file_is_for_one_process_at_a_time() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("heap") else { return };
    let _turn = busy();
    over_a_folder(yonder, |_| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("far");
        let far = format!("file://{}?size={SIZE}", path.display());
        // One after the other, the second by `exec`: the file is free again.
        let script = format!("{0} 1 1 && exec {0} 2 1", program.path());
        let ended = run(yonder, &far, &["sh", "-c", &script]);
        assert_eq!((ended.code, ended.stdout.matches("done\n").count()), (Some(0), 2), "{}", ended.stderr);
        let left = std::fs::metadata(&path).expect("the file stays").len();
        assert_eq!(left, 0, "the bytes are the disk's again");
        let file = File::open(&path).expect("the file stays");
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
        for why in ["in use by another process", "type another path, or that of a folder"] {
            assert_refused(yonder, &["--far", &far, "--memory", MEMORY, "--", "echo", "ran"], why);
        }
        // It was free when the program began.
        rustix::fs::flock(&file, FlockOperation::Unlock).expect("it is locked");
        let script = format!("exec 9<{}; flock -x 9; {} 1 1", path.display(), program.path());
        if is_installed("flock") {
            let ended = run(yonder, &far, &["sh", "-c", &script]);
            assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
            assert!(
                ended.stderr.contains("yonder run: ") && ended.stderr.contains("that of a folder"),
                "{}",
                ended.stderr
            );
        }
    });
}

#[test]
fn a_file_that_is_too_small_says_how_large_it_should_be() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    over_a_folder(yonder, |far| {
        let small = far.replace(SIZE, "64MiB");
        let refused = yonder.run(&["run", "--far", &small, "--memory", MEMORY, "--", "echo", "ran"]);
        assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr.lines().count()), (Some(2), "", 1));
        assert!(refused.stderr.contains("has no room for 512 MiB more: type a smaller --memory, or size="));
        let wanted = refused.stderr.split_once("or size=").and_then(|(_, rest)| rest.split_once(" or more in the URL"));
        let (wanted, _) = wanted.unwrap_or_else(|| panic!("{}", refused.stderr));
        // What it says is enough.
        let enough = far.replace(SIZE, wanted);
        let ended = run(yonder, &enough, &["echo", "ran"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ran\n"), "{}", ended.stderr);
    });
}
