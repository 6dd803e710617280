//! The universal stack at work: a fault handler that runs on a unithread's stack suspends it in the middle of the
//! access, and the access succeeds when the unithread is resumed. This file has a process of its own for its handlers.
//!
//! UNSAFETY: installs a signal handler and maps pages without access, to suspend inside a fault.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT, is_on_unithread, stack_bytes_min, suspend};

const PAGE_BYTES: usize = 4096;
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn suspend_on_fault(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if is_on_unithread() {
        suspend();
    } else {
        // SAFETY: ends the process without running anything else.
        unsafe { libc::abort() };
    }
}

fn install_handler() {
    // SAFETY: the handler has the signature of SA_SIGINFO; the faults of this file are synchronous. No SA_ONSTACK: it
    // runs on the unithread's own stack.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = suspend_on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn map_inaccessible(pages: usize) -> *mut u8 {
    // SAFETY: a fresh mapping touches no existing memory.
    let memory = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), pages * PAGE_BYTES, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.cast()
}

fn make_accessible(page: usize) {
    // SAFETY: the page was mapped by `map_inaccessible`.
    let result = unsafe { libc::mprotect(page as *mut _, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(result, 0);
}

/// Reads a word of each of `PAGES` far pages, which faults every time, and sums them beside a running product.
fn touch(payload: &mut (usize, u64)) {
    let (start, mut product) = (payload.0, 1.5f64);
    for page in 0..PAGES {
        let word = (start + page * PAGE_BYTES) as *mut u64;
        product *= 1.25;
        // SAFETY: the page is mapped; the handler suspends until it is accessible.
        payload.1 += unsafe { word.read_volatile() } + page as u64;
        product /= 1.25;
    }
    assert!((product - 1.5).abs() < 1e-9, "the fault handler lost the vector registers");
}

const PAGES: usize = 5;

fn check(stack_bytes: usize) {
    const UNITHREADS: usize = 20;
    let pool = Pool::new(UNITHREADS, stack_bytes).unwrap();
    let mut running: Vec<(usize, Running<_>)> = (0..UNITHREADS)
        .map(|_| map_inaccessible(PAGES).addr())
        .map(|start| (start, pool.take((start, 0u64)).unwrap().start(touch)))
        .collect();
    let handled_before = HANDLED.load(Ordering::Relaxed);
    let mut finished = 0;
    for page in 0..=PAGES {
        let mut next = Vec::new();
        for (start, each) in running {
            match each.resume() {
                Resumed::Suspended(again) => next.push((start, again)),
                Resumed::Finished(idle) => {
                    assert_eq!(idle.into_payload().1, (0..PAGES as u64).sum::<u64>());
                    finished += 1;
                }
                Resumed::Panicked(_, why) => std::panic::resume_unwind(why),
            }
        }
        next.iter().for_each(|(start, _)| make_accessible(start + page * PAGE_BYTES));
        running = next;
    }
    assert_eq!(finished, UNITHREADS);
    assert_eq!(HANDLED.load(Ordering::Relaxed) - handled_before, UNITHREADS * PAGES);
}

#[test]
fn faults_suspend_and_accesses_are_retried() {
    install_handler();
    check(STACK_BYTES_DEFAULT);
    // The smallest stack that a pool accepts is large enough for the signal frame and the handler.
    check(stack_bytes_min());
}

static REFUSED: AtomicBool = AtomicBool::new(false);

extern "C" fn suspend_on_another_stack(_: libc::c_int) {
    REFUSED.store(is_on_unithread() && catch_unwind(suspend).is_err(), Ordering::Relaxed);
}

fn raise_user_signal(_: &mut ()) {
    // SAFETY: the test has installed a handler for the signal.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
}

#[test]
fn a_handler_on_another_stack_cannot_suspend() {
    let mut memory = vec![0u8; 1 << 20];
    let signal_stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: all zeros is a valid value for both.
    let (mut old_stack, mut action): (libc::stack_t, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = suspend_on_another_stack as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the alternate stack outlives its use, and the handler catches its panic.
    unsafe {
        assert_eq!(libc::sigaltstack(&raw const signal_stack, &raw mut old_stack), 0);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
    let resumed = pool.take(()).unwrap().start(raise_user_signal).resume();
    // SAFETY: puts the thread's own alternate stack back.
    unsafe { assert_eq!(libc::sigaltstack(&raw const old_stack, std::ptr::null_mut()), 0) };
    assert!(matches!(resumed, Resumed::Finished(_)) && REFUSED.load(Ordering::Relaxed));
}
