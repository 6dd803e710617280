// Runs a command as the first process of a container: namespaces of its own, and the capabilities and the filter of
// system calls that Docker gives by default. The first word is "device" if it is to have /dev/userfaultfd, else
// "plain".
//
// Ends with the command's exit code, with 77 if this user may make no namespaces, with 78 if anything else cannot be
// done.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_NAMESPACES = 77, NO_CONTAINER = 78, CAPABILITIES_MAX = 40 };

static void need(int came_true, const char *what) {
    if (came_true) return;
    perror(what);
    exit(NO_CONTAINER);
}

// What root in a container may do.
static const int kept[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID,
    CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_MKNOD, CAP_AUDIT_WRITE, CAP_SETFCAP};

// Those of the calls that root without further capabilities may not make that a program, or Yonder, could miss.
static const unsigned refused[] = {
    SYS_userfaultfd, SYS_process_madvise, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_perf_event_open, SYS_bpf, SYS_kcmp, SYS_pidfd_getfd, SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy,
    SYS_move_pages, SYS_migrate_pages, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_move_mount,
    SYS_open_by_handle_at, SYS_add_key, SYS_request_key, SYS_keyctl, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_acct,
    SYS_settimeofday, SYS_clock_settime, SYS_vhangup, SYS_syslog, SYS_quotactl, SYS_fanotify_init, SYS_iopl,
    SYS_ioperm};

static void filter_calls(void) {
    enum { COUNT = sizeof refused / sizeof *refused };
    struct sock_filter code[2 * COUNT + 4];
    int length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    for (int index = 0; index < COUNT; index++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[index], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)length, .filter = code};
    need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}, {0}};
    for (size_t index = 0; index < sizeof kept / sizeof *kept; index++) {
        unsigned bit = 1u << (kept[index] & 31);
        sets[kept[index] / 32].effective |= bit;
        sets[kept[index] / 32].permitted |= bit;
    }
    for (int capability = 0; capability <= CAPABILITIES_MAX; capability++) {
        int is_kept = sets[capability / 32].permitted >> (capability & 31) & 1;
        need(is_kept || prctl(PR_CAPBSET_DROP, capability) == 0, "capabilities");
    }
    need(syscall(SYS_capset, &header, sets) == 0, "capset");
}

// A folder of devices that has no others.
static void give_devices(int with_userfaultfd) {
    static const char *const names[] = {"null", "zero", "full", "random", "urandom", "userfaultfd"};
    need(mkdir("/run/dev", 0755) == 0 && mkdir("/run/dev/shm", 01777) == 0, "devices");
    for (int index = 0; index < 5 + with_userfaultfd; index++) {
        char old[64], new[64];
        snprintf(old, sizeof old, "/dev/%s", names[index]);
        snprintf(new, sizeof new, "/run/dev/%s", names[index]);
        int file = open(new, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        need(file >= 0 && close(file) == 0 && mount(old, new, NULL, MS_BIND, NULL) == 0, old);
    }
    need(mount("/run/dev", "/dev", NULL, MS_BIND | MS_REC, NULL) == 0, "/dev");
}

static int in_container(char **words) {
    need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "/");
    need(mount("proc", "/proc", "proc", 0, NULL) == 0, "/proc");
    need(mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0, "/run");
    need(close(open("/run/.containerenv", O_CREAT | O_WRONLY, 0600)) == 0, "/run/.containerenv");
    give_devices(strcmp(words[0], "device") == 0);
    filter_calls();
    drop_capabilities();
    execvp(words[1], words + 1);
    need(0, words[1]);
    return NO_CONTAINER;
}

int main(int count, char **words) {
    if (count < 3) return NO_CONTAINER;
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return NO_NAMESPACES;
    pid_t first = fork();
    if (first == 0) return in_container(words + 1);
    int status = 0;
    need(waitpid(first, &status, 0) == first, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
