//! What `yonder run` refuses and tells.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use yonder_e2e::{Ended, Linked, Program, Yonder};

fn run(yonder: Yonder, args: &[&str]) -> Ended {
    yonder.run(&[&["run"], args].concat())
}

pub(super) fn assert_refused(yonder: Yonder, args: &[&str], why: &str) {
    let ended = run(yonder, args);
    let complaint = ended.complaint(2);
    assert!(complaint.starts_with("yonder: ") && complaint.contains(why), "{args:?}: {complaint}");
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have names that can be printed")
}

/// The summary that a run has written.
fn told(summary: &Path) -> Value {
    let text = std::fs::read_to_string(summary).expect("it was written");
    serde_json::from_str(&text).expect("the summary is a JSON object")
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert_refused(yonder, &["--", "no-such-program-anywhere"], "is not installed");
    assert_refused(yonder, &["--", "/no/such/program"], "is not there");
    assert_refused(yonder, &["--", text(folder.path())], "is not there");
    let file = folder.path().join("text");
    std::fs::write(&file, "no program\n").expect("the folder is writable");
    assert_refused(yonder, &["--", text(&file)], "neither a program nor a script");
    let mut true_copy = std::fs::read("/bin/true").expect("there is /bin/true");
    std::fs::write(&file, &true_copy).expect("the folder is writable");
    std::fs::set_permissions(&file, Permissions::from_mode(0o4755)).expect("the file is ours");
    assert_refused(yonder, &["--", text(&file)], "set-uid");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("the file is ours");
    assert_refused(yonder, &["--", text(&file)], "not executable");
    let linker = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = true_copy.windows(linker.len()).position(|bytes| bytes == linker).expect("it is linked dynamically");
    let mut with_musl = true_copy.clone();
    with_musl[at..at + linker.len()].copy_from_slice(b"/lib/ld-musl-x86_64.so.1\0\0\0\0");
    std::fs::write(&file, &with_musl).expect("the folder is writable");
    std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("the file is ours");
    assert_refused(yonder, &["--", text(&file)], "linked with musl");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("the file is ours");
    true_copy[18] = 183;
    std::fs::write(&file, &true_copy).expect("the folder is writable");
    assert_refused(yonder, &["--", text(&file)], "another kind of processor");
    if let Some(program) = Program::idle(folder.path(), Linked::Statically) {
        assert_refused(yonder, &["--", program.path()], "linked statically");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_runs() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let far = format!("tcp://{}", nobody.expect("loopback has free ports"));
    assert_refused(yonder, &["--local", "4KiB", "--", "echo", "ran"], "local memory");
    assert_refused(yonder, &["--far", &far, "--", "echo", "ran"], &far);
    assert_refused(yonder, &["--far", "nonsense://", "--", "echo", "ran"], "nonsense");
    // What clap says has several lines.
    for args in [&[][..], &["--local", "4MiB"], &["--local", "much", "--", "true"], &["--no-such-flag", "--", "true"]] {
        let ended = run(yonder, args);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_program_that_needs_little_is_left_alone() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let summary = folder.path().join("summary.json");
    let ended = run(yonder, &["--summary", text(&summary), "--", "echo", "said"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "said\n"));
    assert!(ended.stderr.lines().count() == 1 && ended.stderr.contains("too little memory"), "{}", ended.stderr);
    let told = told(&summary);
    assert_eq!((told["processes"].as_u64(), told["major_faults"].as_u64()), (Some(0), Some(0)));
}

/// Its stacks would be overrun.
#[test]
fn the_memory_of_a_program_in_go_stays_local_and_a_line_says_so() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("go") else { return };
    let ended = run(yonder, &["--local", "4MiB", "--memory", "128MiB", "--", program.path()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok its memory is local\ndone\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("a program in Go: its memory stays local"), "{}", ended.stderr);
}

/// It would end itself. Other programs with an allocator of their own get a thread that makes their memory far.
#[test]
fn a_zygote_gets_no_thread() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("zygote") else { return };
    let ended = run(yonder, &["--local", "4MiB", "--memory", "128MiB", "--", program.path(), "--type=zygote"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

/// It would go on for ever.
#[test]
fn a_program_with_much_memory_that_cannot_be_far_is_ended_if_that_is_asked_for() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("shared") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let summary = folder.path().join("summary.json");
    let flags = ["--local", "4MiB", "--memory", "128MiB", "--strict=48MiB", "--summary", text(&summary), "--"];
    // Its child has what it prints to open for as long as it is there.
    let ended = run(yonder, &[&flags[..], &[program.path(), "96", "CHILD"]].concat());
    assert_eq!(ended.code, None, "it was not ended: {}", ended.stderr);
    let ended = run(yonder, &[&flags[..], &[program.path(), "96"]].concat());
    assert_eq!(ended.code, None, "it was not ended: {}", ended.stderr);
    assert!(ended.stderr.contains("shared memory, which is more than --strict=48 MiB allows"), "{}", ended.stderr);
    let told = told(&summary);
    let number = |name: &str| told[name].as_u64().unwrap_or_else(|| panic!("no {name} in {told}"));
    let [all, shared] = ["peak_uncovered_bytes", "peak_uncovered_shared_bytes"].map(number);
    // Beside it is what the system does not know to be its own, and no more.
    assert!(shared > 24 << 20 && shared <= 96 << 20 && all > 48 << 20 && all < shared + (32 << 20), "{told}");
}

#[test]
fn the_summary_has_all_numbers_and_they_make_sense() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("heap") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let summary = folder.path().join("summary.json");
    let flags = ["--local", "8MiB", "--memory", "512MiB", "--summary", text(&summary), "--"];
    let ended = run(yonder, &[&flags[..], &[program.path(), "5", "1"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    let told = told(&summary);
    let number = |name: &str| told[name].as_f64().unwrap_or_else(|| panic!("no {name} in {told}"));
    assert_eq!(told["program"].as_str(), Some(program.path()));
    assert!(told["far"].as_str().is_some_and(|far| far.starts_with("emu://")), "{told}");
    assert_eq!((number("memory_bytes"), number("local_bytes")), ((512 << 20) as f64, (8 << 20) as f64));
    assert_eq!(number("processes"), 1.0);
    let (seconds, waited) = (number("seconds"), number("waited_seconds"));
    assert!((1.0..60.0).contains(&seconds), "{told}");
    assert!(waited > 0.0 && waited < seconds * 9.0, "nine threads have waited for longer than they were there: {told}");
    assert!(number("major_faults") > 0.0 && number("minor_faults") > 0.0, "{told}");
    assert!(number("fetched_bytes") >= number("major_faults") * 4096.0, "{told}");
    assert!(number("written_bytes") > 0.0 && number("saved_bytes") >= 0.0, "{told}");
    let (peak, most) = (number("peak_local_bytes"), number("local_bytes"));
    assert!(peak > most / 2.0 && peak <= most, "{told}");
    assert!((16.0..512.0).contains(&(number("peak_far_bytes") / f64::from(1 << 20))), "{told}");
    assert!(number("far_calls") >= number("trapped_calls"), "{told}");
    assert!(number("peak_uncovered_bytes") < f64::from(32 << 20), "{told}");
}

#[test]
fn memory_that_is_used_up_is_refused_to_the_program() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("full") else { return };
    let ended = run(yonder, &["--local", "4MiB", "--memory", "64MiB", "--", program.path()]);
    assert_eq!((ended.code, ended.stdout.ends_with("done\n")), (Some(0), true), "{}{}", ended.stdout, ended.stderr);
}
