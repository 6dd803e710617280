//! What overflows a stack, what does not, and how the process ends then. It ends in a child process: this test binary,
//! started again with the name of the one test and a variable that says which part to play.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use yonder_unithread::{Pool, Resumed, STACK_BYTES_DEFAULT, report_overflows};

const ROLE: &str = "YONDER_TEST_OVERFLOW";

/// Runs `test` of this binary in a child process that plays `role`.
fn play(test: &str, role: &str) -> Output {
    let binary = std::env::current_exe().unwrap();
    Command::new(binary)
        .args(["--exact", &format!("overflow::{test}"), "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("RUST_BACKTRACE", "full")
        .output()
        .unwrap()
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + frame[depth as usize % 64] }
}

fn overflow() {
    let pool = Pool::new(3, STACK_BYTES_DEFAULT).unwrap();
    let _below = pool.take(0u64).unwrap();
    drop(pool.take(0).unwrap().start(|sum| *sum = recurse(0)).resume());
}

#[test]
fn an_overflow_ends_the_process() {
    if role().is_some() {
        return overflow();
    }
    let output = play("an_overflow_ends_the_process", "silent");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

#[test]
fn an_overflow_is_reported() {
    if role().is_some() {
        report_overflows().unwrap();
        report_overflows().unwrap();
        return overflow();
    }
    let output = play("an_overflow_is_reported", "reported");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("unithread ")).unwrap_or_else(|| panic!("no report: {text}"));
    assert!(line.starts_with("unithread 1 overflowed its stack of "), "{line}");
    assert!(line.ends_with(": give its pool a larger stack, such as 64 KiB"), "{line}");
}

#[test]
fn other_faults_go_to_the_handler_before() {
    if role().is_some() {
        report_overflows().unwrap();
        // The standard library's handler reports the overflow of an ordinary thread and aborts.
        black_box(recurse(0));
        return;
    }
    let output = play("other_faults_go_to_the_handler_before", "ordinary");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(text.contains("has overflowed its stack") && !text.contains("unithread"), "{text}");
}

#[test]
fn a_panic_with_its_backtrace_fits_the_default_stack() {
    if role().is_some() {
        let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
        let running = pool.take(Vec::<u8>::new()).unwrap().start(|empty| empty[black_box(3)] = 1);
        assert!(matches!(running.resume(), Resumed::Panicked(..)));
        return;
    }
    let output = play("a_panic_with_its_backtrace_fits_the_default_stack", "panicking");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("index out of bounds") && text.contains("stack backtrace"), "{text}");
}
