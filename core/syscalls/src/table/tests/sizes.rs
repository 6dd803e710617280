//! The sizes in the table against the structures of the C library's bindings, where those are the kernel's own.

use super::*;
use crate::plan::{Buffer, Length, Plan, plan};

const FAR: u64 = 0x3000_0000_1000;

/// The buffer of an argument of a call whose other arguments have these values.
fn buffer(number: libc::c_long, index: usize, mut args: [u64; ARGS]) -> Buffer {
    args[index] = FAR;
    let Plan::Issue(buffers) = plan(number as u32, &args) else { panic!("number {number} is not issued") };
    *buffers.iter().find(|buffer| buffer.address == FAR).expect("the argument is an address")
}

macro_rules! assert_sizes {
    ($($number:ident[$index:literal] is $structure:ty $(, with $args:expr)?;)*) => {$({
        let args = [$($args,)? [0; ARGS]][0];
        let size = size_of::<$structure>() as u64;
        let length = buffer(libc::$number, $index, args).length;
        assert_eq!(length, Length::Bytes(size), concat!(stringify!($number), " ", $index));
    })*};
}

#[test]
fn structures_have_the_size_that_the_c_library_knows() {
    const ONE: [u64; ARGS] = [1; ARGS];
    assert_sizes! {
        SYS_stat[1] is libc::stat;
        SYS_fstat[1] is libc::stat;
        SYS_lstat[1] is libc::stat;
        SYS_newfstatat[2] is libc::stat;
        SYS_statfs[1] is libc::statfs;
        SYS_fstatfs[1] is libc::statfs;
        SYS_statx[4] is libc::statx;
        SYS_utime[1] is libc::utimbuf;
        SYS_utimes[1] is [libc::timeval; 2];
        SYS_utimensat[2] is [libc::timespec; 2];
        SYS_fcntl[2] is libc::flock, with [0, libc::F_SETLK as u64, 0, 0, 0, 0];
        SYS_fcntl[2] is libc::flock, with [0, libc::F_OFD_GETLK as u64, 0, 0, 0, 0];
        SYS_pipe2[0] is [libc::c_int; 2];
        SYS_poll[0] is libc::pollfd, with ONE;
        SYS_ppoll[0] is libc::pollfd, with ONE;
        SYS_ppoll[2] is libc::timespec;
        SYS_epoll_wait[1] is libc::epoll_event, with ONE;
        SYS_epoll_ctl[3] is libc::epoll_event, with ONE;
        SYS_select[1] is libc::fd_set, with [libc::FD_SETSIZE as u64; ARGS];
        SYS_select[4] is libc::timeval;
        SYS_futex[3] is libc::timespec;
        SYS_nanosleep[0] is libc::timespec;
        SYS_clock_nanosleep[3] is libc::timespec;
        SYS_clock_gettime[1] is libc::timespec;
        SYS_gettimeofday[0] is libc::timeval;
        SYS_gettimeofday[1] is [libc::c_int; 2];
        SYS_getitimer[1] is libc::itimerval;
        SYS_timer_settime[2] is libc::itimerspec;
        SYS_timerfd_gettime[1] is libc::itimerspec;
        SYS_timer_create[1] is libc::sigevent;
        SYS_mq_notify[1] is libc::sigevent;
        SYS_mq_getsetattr[1] is libc::mq_attr;
        SYS_adjtimex[0] is libc::timex;
        SYS_clock_adjtime[1] is libc::timex;
        SYS_times[0] is libc::tms;
        SYS_rt_sigtimedwait[1] is libc::siginfo_t;
        SYS_rt_sigqueueinfo[2] is libc::siginfo_t;
        SYS_pidfd_send_signal[2] is libc::siginfo_t;
        SYS_waitid[2] is libc::siginfo_t;
        SYS_sigaltstack[0] is libc::stack_t;
        SYS_wait4[3] is libc::rusage;
        SYS_getrusage[1] is libc::rusage;
        SYS_getrlimit[1] is libc::rlimit;
        SYS_prlimit64[3] is libc::rlimit64;
        SYS_sysinfo[0] is libc::sysinfo;
        SYS_uname[0] is libc::utsname;
        SYS_sched_setparam[1] is libc::sched_param;
        SYS_getgroups[1] is libc::gid_t, with ONE;
        SYS_semop[1] is libc::sembuf, with ONE;
        SYS_shmctl[2] is libc::shmid_ds, with [0, libc::IPC_STAT as u64, 0, 0, 0, 0];
        SYS_semctl[3] is libc::semid_ds, with [0, 0, libc::IPC_STAT as u64, 0, 0, 0];
        SYS_semctl[3] is libc::seminfo, with [0, 0, libc::IPC_INFO as u64, 0, 0, 0];
        SYS_msgctl[2] is libc::msqid_ds, with [0, libc::IPC_STAT as u64, 0, 0, 0, 0];
        SYS_msgctl[2] is libc::msginfo, with [0, libc::IPC_INFO as u64, 0, 0, 0, 0];
        SYS_ioctl[2] is libc::winsize, with [0, libc::TIOCGWINSZ, 0, 0, 0, 0];
        SYS_ioctl[2] is libc::c_int, with [0, libc::FIONREAD, 0, 0, 0, 0];
        SYS_ioctl[2] is libc::ifreq, with [0, libc::SIOCGIFADDR, 0, 0, 0, 0];
        SYS_ioctl[2] is libc::rtentry, with [0, libc::SIOCADDRT, 0, 0, 0, 0];
        SYS_ptrace[3] is libc::user_regs_struct, with [libc::PTRACE_GETREGS as u64, 0, 0, 0, 0, 0];
        SYS_ptrace[3] is libc::user_fpregs_struct, with [libc::PTRACE_GETFPREGS as u64, 0, 0, 0, 0, 0];
        SYS_prctl[1] is [u8; 16], with [libc::PR_GET_NAME as u64, 0, 0, 0, 0, 0];
        SYS_prctl[2] is libc::sock_fprog, with [libc::PR_SET_SECCOMP as u64, 0, 0, 0, 0, 0];
        SYS_process_vm_readv[3] is libc::iovec, with ONE;
        SYS_futex[3] is libc::timespec, with [0, libc::FUTEX_LOCK_PI as u64, 0, 0, 0, 0];
    }
}

#[test]
fn flags_change_what_is_an_address() {
    assert_eq!(buffer(libc::SYS_mq_open, 3, [0, libc::O_CREAT as u64, 0, 0, 0, 0]).length, Length::Bytes(64));
    assert_eq!(buffer(libc::SYS_name_to_handle_at, 3, [0; ARGS]).length, Length::Bytes(4));
    assert_eq!(buffer(libc::SYS_name_to_handle_at, 3, [0, 0, 0, 0, 1, 0]).length, Length::Bytes(8));
    assert_eq!(buffer(libc::SYS_quotactl, 3, [0x8000_0200, 0, 0, 0, 0, 0]).length, Length::Text);
    assert_eq!(buffer(libc::SYS_futex, 4, [0, libc::FUTEX_REQUEUE as u64, 0, 0, 0, 0]).length, Length::Futex);
}
