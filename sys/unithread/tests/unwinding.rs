//! Unwinding from a unithread: its stack goes on on that of its resumer, for a backtrace within the process, from the
//! handler of a fault and in gdb alike, wherever the two stacks lie; a panic ends at its base.
//! This file has a process of its own for its handler, and starts itself again under gdb.
//!
//! UNSAFETY: installs a handler of a signal and raises it.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Once;

use yonder_unithread::{Pool, Resumed, Running, panic_message, suspend};

/// Symbolising a backtrace needs far more stack than a request does.
const STACK_BYTES: usize = 4 << 20;
/// More frames than any stack of this file has.
const FRAMES_MAX: usize = 100;

/// Resumes a unithread to its end, as a worker does.
#[inline(never)]
fn worker_loop<P: Send + 'static>(mut running: Running<P>) -> P {
    loop {
        match black_box(running.resume()) {
            Resumed::Suspended(again) => running = again,
            Resumed::Finished(idle) => return idle.into_payload(),
            Resumed::Panicked(_, why) => panic!("{}", panic_message(&*why)),
        }
    }
}

/// Runs `entry` on two stacks, the one above and the other below that of their worker, and returns both payloads.
fn on_a_worker_between<P: Send + Default + 'static>(entry: fn(&mut P)) -> [P; 2] {
    let above = Pool::new(1, STACK_BYTES).unwrap();
    std::thread::spawn(move || worker_thread(above, entry)).join().unwrap()
}

/// The worker's first function. If its stack does not lie between, the next try goes further down, because the stacks
/// of this one are still there.
#[inline(never)]
fn worker_thread<P: Send + Default + 'static>(above: Pool<P>, entry: fn(&mut P)) -> [P; 2] {
    let below = Pool::new(1, STACK_BYTES).unwrap();
    let idle = [above, below].map(|pool| pool.take(P::default()).ok().unwrap());
    let [high, low] = idle.each_ref().map(|unithread| std::ptr::from_ref(unithread.payload()).addr());
    let own = std::ptr::from_ref(&idle).addr();
    if high > own && own > low {
        idle.map(|unithread| worker_loop(unithread.start(entry)))
    } else {
        on_a_worker_between(entry)
    }
}

/// The plain name in a line of a backtrace, such as `3: module::name<type>` or `#3 0x42 in name<type> ()`.
fn function(line: &str) -> Option<&str> {
    let (number, rest) = line.trim_start().split_once(' ')?;
    number.trim_matches(['#', ':']).parse::<usize>().ok()?;
    let rest = rest.trim_start();
    let named = if rest.starts_with("0x") { rest.split_once(" in ")?.1 } else { rest };
    let path = &named[..named.find(['<', '(', ' ']).unwrap_or(named.len())];
    path.trim_end_matches("::").rsplit("::").next()
}

/// Checks that a backtrace shows these functions, in this order, each once.
fn check_frames(backtrace: &str, expected: &[&str]) {
    let mut frames: Vec<&str> = backtrace.lines().filter_map(function).collect();
    assert!(frames.len() < FRAMES_MAX, "the stack has no end:\n{backtrace}");
    frames.retain(|function| expected.contains(function));
    assert_eq!(frames, expected, "{backtrace}");
}

#[inline(never)]
fn capture_on_a_unithread(text: &mut String) {
    *text = black_box(Backtrace::force_capture().to_string());
}

#[test]
fn a_backtrace_goes_on_in_the_worker() {
    for text in on_a_worker_between(capture_on_a_unithread) {
        check_frames(&text, &["capture_on_a_unithread", "worker_loop", "worker_thread"]);
    }
}

#[test]
fn a_backtrace_after_a_suspension_shows_who_resumed_last() {
    #[inline(never)]
    fn first_resumer(running: Running<String>) -> Running<String> {
        match black_box(running.resume()) {
            Resumed::Suspended(again) => again,
            other => panic!("{other:?} instead of a suspension"),
        }
    }
    let pool = Pool::new(1, STACK_BYTES).unwrap();
    let text = worker_loop(first_resumer(pool.take(String::new()).unwrap().start(|text| {
        suspend();
        capture_on_a_unithread(text);
    })));
    check_frames(&text, &["capture_on_a_unithread", "worker_loop"]);
    assert!(!text.contains("first_resumer"), "{text}");
}

thread_local! {
    /// What the handler of a signal has seen.
    static SEEN: RefCell<String> = const { RefCell::new(String::new()) };
}

extern "C" fn capture_in_a_handler(_: libc::c_int) {
    SEEN.set(Backtrace::force_capture().to_string());
}

#[inline(never)]
fn fault_on_a_unithread(text: &mut String) {
    static INSTALLED: Once = Once::new();
    // SAFETY: the handler has the signature of an action without flags. The signal is raised here alone, so the handler
    // interrupts nothing but this call. Without SA_ONSTACK it runs on the unithread's own stack.
    unsafe {
        INSTALLED.call_once(|| {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = capture_in_a_handler as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        });
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
    }
    *text = SEEN.take();
}

#[test]
fn a_backtrace_from_a_signal_handler_goes_on_in_the_worker() {
    for text in on_a_worker_between(fault_on_a_unithread) {
        check_frames(&text, &["capture_in_a_handler", "fault_on_a_unithread", "worker_loop"]);
    }
}

#[test]
fn a_panic_does_not_unwind_the_worker() {
    struct OnTheWorker<'a>(&'a RefCell<Vec<&'static str>>);
    impl Drop for OnTheWorker<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().push(if std::thread::panicking() { "unwound" } else { "returned" });
        }
    }
    let log = RefCell::new(Vec::new());
    let pool = Pool::new(1, STACK_BYTES).unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _on_the_worker = OnTheWorker(&log);
        let running = pool.take(()).unwrap().start(|()| panic!("a request fails"));
        matches!(black_box(running.resume()), Resumed::Panicked(..))
    }));
    assert!(caught.is_ok_and(|panicked| panicked));
    assert_eq!(*log.borrow(), ["returned"]);
}

/// Where gdb stops.
#[inline(never)]
fn stop_on_a_unithread(stops: &mut u64) {
    *stops += black_box(1);
}

const UNDER_GDB: &str = "YONDER_TEST_UNDER_GDB";

#[test]
fn gdb_walks_from_a_unithread_to_its_worker() {
    if std::env::var_os(UNDER_GDB).is_some() {
        assert_eq!(on_a_worker_between(stop_on_a_unithread), [1, 1]);
        return;
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "break stop_on_a_unithread"]);
    gdb.args(["-ex", "run", "-ex", "bt", "-ex", "continue", "-ex", "bt", "-ex", "kill", "--args"]);
    gdb.arg(std::env::current_exe().unwrap());
    gdb.args(["--exact", "gdb_walks_from_a_unithread_to_its_worker", "--nocapture", "--test-threads=1"]);
    let output = match gdb.env(UNDER_GDB, "1").output() {
        Ok(output) => output,
        Err(error) => return println!("SKIP: gdb: {error}: type apt-get install gdb"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    if said.contains("Could not trace the inferior process") || said.contains("ptrace: Operation not permitted") {
        return println!("SKIP: gdb may not trace here: allow ptrace, such as by --cap-add=SYS_PTRACE of a container");
    }
    let backtraces: Vec<&str> = text.split(" hit Breakpoint 1, ").skip(1).collect();
    assert_eq!(backtraces.len(), 2, "gdb did not stop twice:\n{said}");
    for backtrace in backtraces {
        check_frames(backtrace, &["stop_on_a_unithread", "worker_loop", "worker_thread"]);
        assert!(!said.contains("Backtrace stopped"), "{said}");
    }
}
