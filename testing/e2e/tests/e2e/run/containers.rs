//! Programs in a container as Docker makes it by default: the first process of it, few capabilities, and a filter that
//! refuses userfaultfd and what needs further capabilities. What the container needs is the device.

use std::path::Path;

use yonder_e2e::{Ended, Program, Yonder, busy};

use super::LOCAL;

/// What the container ends with if this user may make no namespaces.
const NO_NAMESPACES: i32 = 77;

/// Runs words in a container, with the device or without; prints `SKIP` if there can be none.
fn in_container(with: &str, words: &[&str]) -> Option<Ended> {
    let container = Program::compiled("container")?;
    let ended = container.run(&[&[with], words].concat());
    if ended.code == Some(NO_NAMESPACES) {
        println!("SKIP: this user may make no namespaces: run it as root");
        return None;
    }
    Some(ended)
}

#[test]
fn programs_run_in_a_container_that_has_the_device() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    if !Path::new("/dev/userfaultfd").exists() {
        println!("SKIP: this machine has no /dev/userfaultfd");
        return;
    }
    let _turn = busy();
    for (name, args) in
        [("itself", &[][..]), ("maps", &[]), ("heap", &["1", "1"]), ("ends", &[]), ("signals", &["FOLDER"])]
    {
        let Some(program) = Program::compiled(name) else { return };
        let run = |before: &[&str]| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let folder = folder.path().to_str().expect("temporary folders have names that can be printed");
            let args: Vec<&str> = args.iter().map(|arg| if *arg == "FOLDER" { folder } else { *arg }).collect();
            in_container("device", &[before, &[program.path()], &args].concat())
        };
        let flags = [yonder.path(), "run", "--local", LOCAL, "--memory", "512MiB", "--"];
        let (Some(far), Some(local)) = (run(&flags), run(&[])) else { return };
        assert_eq!((far.code, local.code), (Some(0), Some(0)), "{name}: {}{}", far.stdout, far.stderr);
        assert_eq!(far.stdout, local.stdout, "{name}");
        // The helper ends with the first process of its container, and had told all before.
        assert!(far.stderr.starts_with("yonder run: ") && far.stderr.contains(" far and "), "{name}: {}", far.stderr);
    }
}

#[test]
fn a_container_without_the_device_is_told_what_it_needs() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(ended) = in_container("plain", &[yonder.path(), "run", "--", "echo", "ran"]) else { return };
    let complaint = ended.complaint(2);
    assert!(complaint.contains("start the container with --device /dev/userfaultfd"), "{complaint}");
    let Some(ended) = in_container("plain", &[yonder.path(), "doctor"]) else { return };
    let missing: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("missing")).collect();
    assert_eq!((ended.code, missing.len()), (Some(1), 1), "{}", ended.stdout);
    assert!(missing[0].contains("--device /dev/userfaultfd"), "{}", ended.stdout);
    assert!(ended.stdout.contains("--cap-add SYS_PTRACE"), "{}", ended.stdout);
}
