//! What a node may do once it serves: [`of_node`], the system calls that it makes, and the files that it opens.
//!
//! The list is of what `strace` shows of a node with every transport, metrics, a controller, moves, a log and a panic,
//! and of what the C library does instead on other kernels and architectures. A call that is missing fails with ENOSYS
//! (see `yonder_process`), so a new one is found by its tests, which run in the sandbox, as `yonder node` does.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use yonder_process::{Call, Ports, Sandbox};

use crate::sessions::NICE;

/// What the C library reads to find the address of a name.
const NAME_FILES: [&str; 6] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", "/etc/services"];

/// Where files are that are made while the machine runs.
const RUN: &str = "/run";

/// How many CPUs there are, by which the C library's allocator decides how many threads share a lock.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// Makes a descriptor one that does not wait, or that does.
#[expect(clippy::cast_possible_truncation, reason = "a number of 32 bits, which the C library keeps in a longer one")]
const FIONBIO: u32 = libc::FIONBIO as u32;

/// Calls with arguments that do not matter: they reach what the process has already.
const CALLS: &[i64] = &[
    // Memory of its own; `mmap` and `mprotect` are below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_munlock,
    // Descriptors that are open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    // Sockets that are open, and connections that come to them.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Times, where the kernel's page of them cannot be used, and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Threads of its own.
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals that it gets.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // What it is.
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcwd,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Names of files, which landlock has a say in where they are opened.
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    // Older names of the above.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// All that a node may do whose sockets in the file system are `sockets`, whose controllers, if it has any, are at
/// `controllers`, and that is to read `readable`.
pub(crate) fn of_node(sockets: &[PathBuf], controllers: Option<&str>, mut readable: Vec<PathBuf>) -> Sandbox {
    let mut calls: Vec<Call> = CALLS.iter().copied().map(Call::any).collect();
    calls.extend(with_arguments());
    if !sockets.is_empty() {
        calls.push(Call::any(libc::SYS_unlinkat));
        #[cfg(target_arch = "x86_64")]
        calls.push(Call::any(libc::SYS_unlink));
    }
    if let Some(controllers) = controllers {
        calls.extend(connecting());
        if has_names(controllers) {
            readable.extend(NAME_FILES.map(|file| readable_at(Path::new(file))));
            // The libraries that look up names are loaded when the first one is looked up, which the sandbox would not
            // let them be. Whether it has an address will be said when it is needed.
            let _ = controllers.split(',').filter_map(|address| address.trim().to_socket_addrs().ok()).count();
        }
    }
    readable.push(CPUS.into());
    // A panic names its lines from there.
    readable.extend(std::env::current_exe());
    let removable = sockets.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
    let ports = if controllers.is_some() { Ports::Connect } else { Ports::None };
    Sandbox { calls, readable, removable, ports }
}

/// Calls that do more with other arguments.
fn with_arguments() -> Vec<Call> {
    let executable = bits(libc::PROT_EXEC);
    let write_modes = bits(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_PATH);
    let thread = bits(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND);
    let new_namespaces = bits(
        libc::CLONE_NEWNS
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP,
    );
    let mut calls = vec![
        // No new code.
        Call::any(libc::SYS_mmap).masked(2, executable, 0),
        Call::any(libc::SYS_mprotect).masked(2, executable, 0),
        // Files are read alone.
        Call::any(libc::SYS_openat).masked(2, write_modes, bits(libc::O_RDONLY)),
        // Threads, and no processes. `clone3` keeps its flags in memory, where no filter sees them: it is not here, and
        // the C library makes this call instead.
        Call::any(libc::SYS_clone).masked(0, thread | new_namespaces, thread),
        // Limits are asked for.
        Call::any(libc::SYS_prlimit64).with(0, 0).masked(2, u64::MAX, 0),
        // A thread makes itself less urgent.
        Call::any(libc::SYS_setpriority).with(0, libc::PRIO_PROCESS).with(1, 0).with(2, NICE.cast_unsigned()),
        // A thread chooses among the CPUs that the node may use.
        Call::any(libc::SYS_sched_setaffinity).with(0, 0),
        Call::any(libc::SYS_ioctl).with(1, FIONBIO),
        Call::any(libc::SYS_prctl).with(0, libc::PR_SET_NAME.cast_unsigned()),
        Call::any(libc::SYS_prctl).with(0, libc::PR_SET_VMA.cast_unsigned()),
        // A thread of the process, which aborts.
        Call::any(libc::SYS_tgkill).with(0, std::process::id()),
    ];
    let commands = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC];
    let commands = commands.map(|command| Call::any(libc::SYS_fcntl).with(1, command.cast_unsigned()));
    calls.extend(commands);
    calls.extend([libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_UDP].map(set_option));
    calls
}

/// What reaches controllers and other nodes: streams and datagrams of the network, and sockets of no other kind.
fn connecting() -> Vec<Call> {
    let kind = bits(!(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK));
    let sockets = [libc::AF_INET, libc::AF_INET6].into_iter().flat_map(|wanted| {
        [libc::SOCK_STREAM, libc::SOCK_DGRAM].map(|kind_wanted| {
            Call::any(libc::SYS_socket).with(0, wanted.cast_unsigned()).masked(1, kind, bits(kind_wanted))
        })
    });
    // Landlock lets none of them take a port of TCP.
    let mut calls = vec![Call::any(libc::SYS_connect), Call::any(libc::SYS_bind)];
    calls.extend(sockets);
    // Who looks up names asks for the errors of routers.
    calls.extend([libc::IPPROTO_IP, libc::IPPROTO_IPV6].map(set_option));
    calls
}

/// Options of sockets, of one level.
fn set_option(level: libc::c_int) -> Call {
    Call::any(libc::SYS_setsockopt).with(1, level.cast_unsigned())
}

/// Flags as the kernel gets them: it looks at the lower half of the argument.
fn bits(flags: libc::c_int) -> u64 {
    u64::from(flags.cast_unsigned())
}

/// A file, or its folder if it is one of those that are made while the machine runs: they are replaced, not written to,
/// and rules are for files, not for their names.
fn readable_at(file: &Path) -> PathBuf {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    match real.parent() {
        Some(folder) if folder != Path::new(RUN) && folder.starts_with(RUN) => folder.to_owned(),
        _ => real,
    }
}

/// Whether one of these addresses, with commas between, has to be looked up.
fn has_names(addresses: &str) -> bool {
    addresses.split(',').any(|address| address.trim().parse::<SocketAddr>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_connects_to_nothing_and_removes_nothing() {
        let alone = of_node(&[], None, Vec::new());
        let has = |sandbox: &Sandbox, number| sandbox.calls.iter().any(|call| call.number() == number);
        assert_eq!(alone.ports, Ports::None);
        assert!(alone.removable.is_empty());
        for number in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_unlinkat, libc::SYS_listen] {
            assert!(!has(&alone, number));
        }
        let one_of_several = of_node(&["/run/yonder/node.sock".into()], Some("127.0.0.1:7400"), Vec::new());
        assert_eq!(one_of_several.ports, Ports::Connect);
        assert_eq!(one_of_several.removable, [PathBuf::from("/run/yonder")]);
        assert!([libc::SYS_socket, libc::SYS_unlinkat].iter().all(|number| has(&one_of_several, *number)));
        assert!(!has(&one_of_several, libc::SYS_listen));
    }

    #[test]
    fn a_file_that_is_replaced_is_read_by_its_folder() {
        for (file, expected) in [
            ("/run/no-resolver/resolv.conf", "/run/no-resolver"),
            ("/run/no-resolver", "/run/no-resolver"),
            ("/etc/no-such-file", "/etc/no-such-file"),
        ] {
            assert_eq!(readable_at(Path::new(file)), Path::new(expected));
        }
    }

    #[test]
    fn files_of_names_are_read_where_there_are_names() {
        let reads_hosts = |controllers| {
            let readable = of_node(&[], controllers, vec!["/etc/yonder".into()]).readable;
            assert!(readable.contains(&"/etc/yonder".into()));
            readable.contains(&readable_at(Path::new("/etc/hosts")))
        };
        assert!(!reads_hosts(None) && !reads_hosts(Some("127.0.0.1:7400, [::1]:7400")));
        assert!(reads_hosts(Some("127.0.0.1:7400,localhost:7400")));
    }
}
