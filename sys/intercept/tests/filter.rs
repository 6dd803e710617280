//! A filter that sends one system call back, in a process of its own: filters cannot be taken away again.
//!
//! UNSAFETY: forks, and makes raw system calls.

use yonder_intercept::{Call, STUB, call, handle, install_filter, install_stub};
use yonder_syscalls::Instruction;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;

/// Sends every `getppid` back that is not made from the stub.
fn program() -> Vec<Instruction> {
    let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![
        instruction(LOAD, 0, 0, 12),
        instruction(JUMP_IF_EQUAL, 3, 0, (STUB.start >> 32) as u32),
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, libc::SYS_getppid as u32),
        instruction(RETURN, 0, 0, TRAP),
        instruction(RETURN, 0, 0, ALLOW),
    ]
}

#[test]
fn a_call_that_comes_back_is_answered_by_the_handler_which_can_make_it() {
    // SAFETY: the child runs system calls and this crate's functions only, and exits at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        install_stub().unwrap();
        handle(|sent_back| {
            // SAFETY: getppid takes no pointers.
            let parent = unsafe { call(sent_back) };
            parent + 1_000_000_000
        })
        .unwrap();
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
