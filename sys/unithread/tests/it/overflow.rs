//! What overflows a stack, what does not, and how the process ends then. It ends in a child process: this test binary,
//! started again with the name of the one test and a variable that says which part to play.
//!
//! UNSAFETY: signals, their handlers, and the faults that they are for.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

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
    let line = report(&play("an_overflow_is_reported", "reported"));
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

/// The line of the only overflow in this output.
fn report(output: &Output) -> String {
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("unithread "));
    line.unwrap_or_else(|| panic!("no report: {text}")).to_owned()
}

/// The kernel does not say where it had no room for the frame of a signal.
#[test]
fn a_signal_without_room_is_reported() {
    extern "C" fn on_signal(_signal: libc::c_int) {}
    fn recurse_with_signals(depth: u64) -> u64 {
        let frame = black_box([depth; 16]);
        // SAFETY: a signal that is handled.
        unsafe { libc::raise(libc::SIGUSR1) };
        if depth == u64::MAX { 0 } else { recurse_with_signals(depth + 1) + frame[depth as usize % 16] }
    }
    if role().is_some() {
        report_overflows().unwrap();
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
        let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
        drop(pool.take(0u64).unwrap().start(|sum| *sum = recurse_with_signals(0)).resume());
        return;
    }
    let line = report(&play("a_signal_without_room_is_reported", "signalled"));
    assert!(line.starts_with("unithread 0 overflowed its stack of "), "{line}");
}

#[test]
fn a_handler_that_is_for_one_fault_gets_one() {
    extern "C" fn on_fault(_signal: libc::c_int) {
        const SAID: &[u8] = b"handled\n";
        // SAFETY: writes a constant. If there is a second fault, the process ends in another way than is expected.
        unsafe {
            static BEFORE: AtomicBool = AtomicBool::new(false);
            if BEFORE.swap(true, Ordering::Relaxed) {
                libc::_exit(1);
            }
            libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
        }
    }
    if role().is_some() {
        // SAFETY: the handler has the signature of one without SA_SIGINFO; the fault is what is tried.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
            report_overflows().unwrap();
            std::ptr::with_exposed_provenance_mut::<u8>(black_box(8)).write_volatile(0);
        }
        return;
    }
    let output = play("a_handler_that_is_for_one_fault_gets_one", "once");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("handled").count(), 1, "{output:?}");
}

#[test]
fn a_handler_runs_with_the_mask_that_it_has_asked_for() {
    extern "C" fn on_fault(_signal: libc::c_int) {
        // SAFETY: the mask is read into what is large enough, and the process ends.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask);
            let held = [libc::SIGUSR1, libc::SIGUSR2].map(|signal| libc::sigismember(&raw const mask, signal));
            libc::_exit(if held == [1, 0] { 7 } else { 1 });
        }
    }
    if role().is_some() {
        // SAFETY: the handler has the signature of one without SA_SIGINFO; the fault is what is tried.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR1);
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
            report_overflows().unwrap();
            std::ptr::with_exposed_provenance_mut::<u8>(black_box(8)).write_volatile(0);
        }
        return;
    }
    let output = play("a_handler_runs_with_the_mask_that_it_has_asked_for", "masked");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
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
