//! Interpreters that are installed here, in what was wrong with them once.

use std::process::Command;

use yonder_e2e::Yonder;

use super::{EMULATED, PROGRAM_TIME};

const PYTHON: &str = "/usr/bin/python3";

/// Prints the same with far memory, if the interpreter is here and can run `needs`.
fn prints_the_same(interpreter: &str, needs: &str, flag: &str, script: &str) {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let run = |script: &str| Command::new(interpreter).args([flag, script]).output();
    if !run(needs).is_ok_and(|output| output.status.success()) {
        println!("SKIP: {interpreter} is not installed, or cannot run: {needs}");
        return;
    }
    let expected = run(script).expect("it is installed");
    assert!(expected.status.success(), "{expected:?}");
    let flags = ["run", "--far", EMULATED, "--local", "8MiB", "--memory", "128MiB", "--"];
    let ended = yonder.spawn(&[&flags[..], &[interpreter, flag, script]].concat()).end_within(PROGRAM_TIME);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), &*String::from_utf8_lossy(&expected.stdout)),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("too little memory"), "{}", ended.stderr);
}

/// Its handlers of fatal errors have a stack in far memory, and memory beside that is cleared.
#[test]
fn python_with_a_fault_handler() {
    let script = "import test.libregrtest, faulthandler, signal\n\
        faulthandler.enable()\n\
        faulthandler.register(signal.SIGALRM, chain=True)\n\
        print(sum(bytearray(30 << 20)), [len(bytearray(n << 10)) for n in range(200)][-1])\n";
    prints_the_same(PYTHON, "import test.libregrtest", "-c", script);
}

#[test]
fn python_gives_up_its_rights() {
    let script = "import os\n\
        x = bytearray(30 << 20)\n\
        os.setgroups([0]) if os.getuid() == 0 else os.setgid(os.getgid())\n\
        print(len(x), sum(x))\n";
    prints_the_same(PYTHON, "import os", "-c", script);
}

#[test]
fn ruby_has_threads_with_stacks_for_handlers() {
    let script = "puts (1..8).map { |n| Thread.new { ('x' * 1_000_000 * n).size } }.map(&:value).sum\n\
        puts `echo from a child`";
    prints_the_same("ruby", "1", "-e", script);
}
