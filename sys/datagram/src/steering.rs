//! [`steer`]: which socket of a group that shares a port gets a datagram, by what is in it.
//!
//! UNSAFETY: a system call that reads a program for the kernel, which looks it over before it takes it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use yonder_units::Narrow;

use crate::address::length_of;

/// Where datagrams say which socket they are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    /// The first bytes of those that say it; for others the kernel goes by their sender's port.
    pub leads: [u8; 2],
    /// The byte that says it.
    pub at: usize,
    /// By how much its bits are to be moved to the right.
    pub shift: u32,
    /// What stands for the first socket of the group, and by what the numbers go round.
    pub first: u32,
    /// A power of two.
    pub modulus: u32,
}

/// Lets the kernel give datagrams to the sockets of the group of `socket` as `steering` says, whichever port they come
/// from. Sockets count in the order in which they were bound. What is for a socket that the group does not have goes by
/// its sender's port.
pub fn steer(socket: BorrowedFd<'_>, steering: Steering) -> io::Result<()> {
    let Steering { leads: [lead, other], at, shift, first, modulus } = steering;
    assert!(modulus.is_power_of_two(), "numbers that go round at {modulus}");
    let at = u32::try_from(at).expect("a place in a datagram");
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code.narrow_u16(), jt, jf, k };
    let load = |at| step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, at);
    let is_equal = |to: u8, jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, to.into());
    let compute = |operation, by| step(libc::BPF_ALU | operation | libc::BPF_K, 0, 0, by);
    let mut program = [
        // What is too short to say it, because the program ends with 0 if it looks beyond the end.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 3, at + 1),
        load(0),
        is_equal(lead, 2, 0),
        is_equal(other, 1, 0),
        // No group has so many, so the kernel chooses.
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        load(at),
        compute(libc::BPF_RSH, shift),
        compute(libc::BPF_SUB, first),
        compute(libc::BPF_AND, modulus - 1),
        step(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len().narrow_u16(), filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads `program` and as many steps as it says, which both live until the call returns.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            length_of::<libc::sock_fprog>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
