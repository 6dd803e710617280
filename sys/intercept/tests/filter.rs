//! A filter that sends one system call back, in a process of its own: filters cannot be taken away again.
//!
//! UNSAFETY: forks, and makes raw system calls.

use yonder_intercept::{Call, Handler, STUB, call, handle, install_filter, install_stub};
use yonder_syscalls::{Instruction, RET_TRAP};

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;

/// Sends every `getppid` back that is not made from the stub.
fn program() -> Vec<Instruction> {
    let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![
        instruction(LOAD, 0, 0, 12),
        instruction(JUMP_IF_EQUAL, 3, 0, (STUB.start >> 32) as u32),
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_getppid as u32),
        instruction(RETURN, 0, 0, RET_TRAP),
        instruction(RETURN, 0, 0, ALLOW),
    ]
}

#[test]
fn a_call_that_comes_back_is_answered_by_the_handler_which_can_make_it() {
    // SAFETY: the child runs system calls and this crate's functions only, and exits at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        install_stub().unwrap();
        let answer: Handler = |sent_back, _| {
            // SAFETY: getppid takes no pointers.
            let parent = unsafe { call(sent_back) };
            parent + 1_000_000_000
        };
        handle(answer, 0).unwrap();
        install_filter(&program()).unwrap();
        let sent_back = Call { number: libc::SYS_getppid, arguments: [0; 6] };
        // SAFETY: getppid takes no pointers.
        let (direct, filtered) = unsafe { (call(&sent_back), libc::syscall(libc::SYS_getppid)) };
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(if filtered == direct + 1_000_000_000 { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's status");
}

fn is_held_back(signal: libc::c_int) -> bool {
    // SAFETY: the set is a local.
    unsafe {
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
        libc::sigismember(&raw const now, signal) == 1
    }
}

/// What is held back while it answers is so no longer when it has.
#[test]
fn the_handler_can_change_the_signal_mask_for_good() {
    const USR1: u64 = 1 << (libc::SIGUSR1 - 1);
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        install_stub().unwrap();
        let answer: Handler = |_, interrupted| {
            let before = *interrupted.signal_mask();
            *interrupted.signal_mask() = before | USR1;
            if is_held_back(libc::SIGUSR2) { i64::from(before & USR1 != 0) } else { 99 }
        };
        handle(answer, 1 << (libc::SIGUSR2 - 1)).unwrap();
        install_filter(&program()).unwrap();
        // SAFETY: getppid takes no pointers.
        let answers = unsafe { [libc::syscall(libc::SYS_getppid), libc::syscall(libc::SYS_getppid)] };
        let is_held = is_held_back(libc::SIGUSR1) && !is_held_back(libc::SIGUSR2);
        // SAFETY: as above.
        unsafe { libc::_exit(if answers == [0, 1] && is_held { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's status");
}
