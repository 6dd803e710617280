//! Which arguments are pointers, by the prototypes of the kernel and of its manual: read from there, not from the
//! table.
//!
//! Only calls of which the prototype says it all; `ioctl`, `prctl` and the like, whose arguments are numbers by their
//! type, are not here.

use super::*;

#[test]
fn addresses_are_the_pointers_of_the_prototypes() {
    let mut checked = 0;
    for (pointers, names) in POINTERS {
        for name in names.split_whitespace() {
            let row = syscalls().find(|row| row.name == name).expect("the table knows it");
            assert_eq!(row.rule.addresses().iter().collect::<Vec<_>>(), pointers, "{name}");
            checked += 1;
        }
    }
    assert!(checked > syscalls().count() * 3 / 4);
}

#[rustfmt::skip]
const POINTERS: [(&[u8], &str); 25] = [
    (&[], "alarm close close_range dup dup2 dup3 epoll_create epoll_create1 eventfd exit_group fallocate \
        fanotify_init fchdir fchmod fchown fdatasync flock fsmount fsync ftruncate getpgid getpriority \
        getsid inotify_init1 inotify_rm_watch io_destroy ioperm iopl ioprio_get ioprio_set kill \
        landlock_restrict_self listen lseek membarrier memfd_secret mlockall msgget personality pidfd_getfd \
        pidfd_open pkey_alloc pkey_free process_mrelease readahead sched_get_priority_max \
        sched_get_priority_min sched_getscheduler semget setfsgid setfsuid setgid setns setpgid setpriority \
        setregid setresgid setresuid setreuid setuid shmget shutdown socket sync_file_range syncfs tee \
        tgkill timer_delete timer_getoverrun timerfd_create tkill umask unshare userfaultfd"),
    (&[0], "access acct adjtimex chdir chmod chown chroot clone3 creat delete_module futex_requeue \
        get_thread_area getcwd getrandom landlock_create_ruleset lchown madvise memfd_create mkdir mknod \
        mlock mlock2 mmap mprotect mq_unlink munlock munmap perf_event_open pipe pipe2 pkey_mprotect rmdir \
        set_robust_list set_thread_area set_tid_address setdomainname sethostname shmdt swapoff swapon \
        sysinfo time times truncate umount2 uname unlink uselib"),
    (&[0, 1], "getcpu gettimeofday link listmount listxattr llistxattr lremovexattr lstat nanosleep pivot_root \
        readlink removexattr rename settimeofday sigaltstack stat statfs statmount symlink utime utimes"),
    (&[0, 1, 2], "add_key execve getresgid getresuid getxattr lgetxattr lsetxattr request_key setxattr"),
    (&[0, 1, 2, 4], "mount"),
    (&[0, 1, 3], "get_mempolicy"),
    (&[0, 2], "init_module mincore symlinkat"),
    (&[0, 2, 3], "ppoll"),
    (&[0, 3], "futex_waitv mbind"),
    (&[0, 3, 4], "futex"),
    (&[1], "bind clock_adjtime clock_getres clock_gettime clock_settime connect epoll_wait faccessat faccessat2 \
        fchmodat fchownat finit_module flistxattr fremovexattr fstat fstatfs getdents getdents64 getgroups \
        getitimer getrlimit getrusage inotify_add_watch lookup_dcookie mkdirat mknodat modify_ldt mq_notify \
        msgrcv msgsnd open_by_handle_at openat pread64 preadv preadv2 process_madvise pwrite64 pwritev \
        pwritev2 read readv recvmsg sched_getattr sched_getparam sched_rr_get_interval sched_setattr \
        sched_setparam semop sendmmsg sendmsg set_mempolicy setgroups setrlimit shmat signalfd syslog \
        timer_gettime timerfd_gettime unlinkat ustat write writev"),
    (&[1, 2], "accept accept4 fgetxattr file_getattr file_setattr fsetxattr futimesat get_robust_list getpeername \
        getsockname io_cancel mq_getsetattr newfstatat openat2 readlinkat rt_sigprocmask setitimer \
        timer_create utimensat"),
    (&[1, 2, 3], "execveat name_to_handle_at"),
    (&[1, 2, 3, 4], "select"),
    (&[1, 3], "copy_file_range linkat mount_setattr move_mount open_tree_attr process_vm_readv renameat renameat2 \
        semtimedop splice wait4"),
    (&[1, 3, 4], "epoll_pwait2 mq_timedreceive"),
    (&[1, 4], "epoll_pwait mq_timedsend sendto statx"),
    (&[1, 4, 5], "recvfrom"),
    (&[2], "fcntl kexec_load landlock_add_rule msgctl pidfd_send_signal rt_sigqueueinfo sched_getaffinity \
        sched_setaffinity sched_setscheduler seccomp sendfile shmctl"),
    (&[2, 3], "clock_nanosleep fsconfig migrate_pages prlimit64 ptrace timer_settime timerfd_settime"),
    (&[2, 3, 4], "move_pages"),
    (&[2, 4], "waitid"),
    (&[3], "epoll_ctl kexec_file_load reboot rt_tgsigqueueinfo setsockopt socketpair"),
    (&[3, 4], "getsockopt io_getevents"),
    (&[4], "fanotify_mark"),
];
