//! What is not listed cannot be done in a sandbox, by threads of before or after; what is listed can.
//!
//! Each attempt needs a process of its own, which is the test itself with arguments.
//!
//! UNSAFETY: makes system calls that are to be refused, of no effect if they were not.

use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus};

use yonder_process::{Call, Entered, Ports, Sandbox, has_filters, landlock_version};

/// An attempt, and how its process ends.
type Attempt = (&'static str, fn(&Path) -> End, fn(ExitStatus) -> bool);

/// What came of an attempt.
#[derive(PartialEq, Eq, Debug)]
enum End {
    /// It was allowed.
    Done,
    /// It failed with this error.
    Refused(i32),
}

const ATTEMPTS: &[Attempt] = &[
    ("read what is listed", |folder| of(std::fs::read(folder.join("listed"))), is_done),
    ("read what is not", |folder| of(std::fs::read(folder.join("other"))), is_refused),
    ("read what all may", |_| of(std::fs::read("/etc/passwd")), is_refused),
    ("write", |folder| of(std::fs::write(folder.join("new"), "")), is_refused),
    ("remove what is in the folder", |folder| of(std::fs::remove_file(folder.join("removable/file"))), is_done),
    ("remove what is not", |folder| of(std::fs::remove_file(folder.join("other"))), is_refused),
    ("connect to a port", |folder| of(std::net::TcpStream::connect(listed(folder))), is_refused),
    ("bind a port", |_| of(std::net::TcpListener::bind("127.0.0.1:0")), is_refused),
    ("connect to a socket of the file system", |folder| of(connect_unix(&folder.join("socket"))), is_refused),
    ("have packets", |_| raw(libc::SYS_socket, [17, 3, 0]), is_refused),
    ("start a thread", |_| of(std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap())), is_done),
    ("start a process", |_| of(Command::new("/bin/true").spawn()), is_refused),
    ("become another program", |_| of::<(), _>(Err(Command::new("/bin/true").exec())), is_killed),
    ("become another program, of a descriptor", |_| raw(libc::SYS_execveat, [0; 3]), is_killed),
    ("trace", |_| raw(libc::SYS_ptrace, [0; 3]), is_killed),
    ("trace from a thread", |_| std::thread::spawn(|| raw(libc::SYS_ptrace, [0; 3])).join().unwrap(), is_killed),
    ("see the memory of another", |_| raw(libc::SYS_process_vm_readv, [1, 0, 0]), is_killed),
    ("have a ring", |_| raw(libc::SYS_io_uring_setup, [0; 3]), is_killed),
    ("mount", |_| raw(libc::SYS_mount, [0; 3]), is_killed),
    ("have a name", |_| raw(libc::SYS_prctl, [15, c"name".as_ptr() as usize, 0]), is_done),
    ("have what a name is not", |_| raw(libc::SYS_prctl, [4, 1, 0]), is_refused),
    ("allow what was taken away", |_| raw(libc::SYS_seccomp, [1, 0, 0]), is_refused),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..) {
        Some([attempt, number, folder]) if attempt == "attempt" => {
            let (_, attempt, _) = ATTEMPTS[number.parse::<usize>().expect("a number")];
            in_sandbox(attempt, Path::new(folder));
        }
        // Arguments of the harness that is not there.
        _ => test(),
    }
}

fn test() {
    if !has_filters() || landlock_version().is_none_or(|version| version < 4) {
        println!("SKIP: this kernel has not both filters of system calls and rules for files and ports");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listens = listener.local_addr().expect("an address");
    for file in ["listed", "other", "removable/file"] {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
        std::fs::write(path, listens.to_string()).expect("a file");
    }
    let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).expect("a socket");
    let itself = std::env::current_exe().expect("a running test knows its executable");
    for (number, (name, _, is_right)) in ATTEMPTS.iter().enumerate() {
        let mut child = Command::new(&itself);
        let ended = child.args(["attempt", &number.to_string()]).arg(folder.path()).output().expect("a child");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(is_right(ended.status), "to {name}: {} {said}", ended.status);
        println!("test to {name} ... ok");
    }
}

fn is_done(ended: ExitStatus) -> bool {
    ended.code() == Some(0)
}

fn is_refused(ended: ExitStatus) -> bool {
    ended.code() == Some(1)
}

fn is_killed(ended: ExitStatus) -> bool {
    ended.signal() == Some(libc::SIGSYS)
}

fn in_sandbox(attempt: fn(&Path) -> End, folder: &Path) {
    let Entered { filter, landlock } = sandbox(folder).enter();
    assert_eq!((filter, landlock), (Ok(()), Ok(())));
    let end = attempt(folder);
    let code = i32::from(end != End::Done);
    // What says so is listed.
    let _ = writeln!(std::io::stderr(), "{end:?}");
    std::process::exit(code);
}

/// What this test itself needs, and sockets of which landlock alone says what they may be used for.
fn sandbox(folder: &Path) -> Sandbox {
    let any = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_lseek,
        libc::SYS_fstat,
        libc::SYS_statx,
        libc::SYS_openat,
        libc::SYS_unlinkat,
        libc::SYS_fcntl,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_prlimit64,
        libc::SYS_sched_getaffinity,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_setsockopt,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_exit,
        libc::SYS_exit_group,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
    ];
    let mut calls: Vec<Call> = any.map(Call::any).into();
    let (inet, thread) = (libc::AF_INET as u32, libc::CLONE_THREAD as u64);
    // Of what these are for, landlock allows nothing.
    calls.push(Call::any(libc::SYS_socket).with(0, inet));
    calls.push(Call::any(libc::SYS_clone).masked(0, thread, thread));
    calls.push(Call::any(libc::SYS_prctl).with(0, libc::PR_SET_NAME as u32));
    let readable = vec![folder.join("listed"), folder.join("missing")];
    Sandbox { calls, readable, removable: vec![folder.join("removable")], ports: Ports::None }
}

fn of<T, E: Into<std::io::Error>>(result: Result<T, E>) -> End {
    match result.map_err(Into::into) {
        Ok(_) => End::Done,
        Err(error) => End::Refused(error.raw_os_error().unwrap_or(-1)),
    }
}

/// What stands in the file that is listed: an address at which the test listens.
fn listed(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("listed")).expect("it may be read")
}

fn connect_unix(path: &Path) -> std::io::Result<std::os::unix::net::UnixStream> {
    std::os::unix::net::UnixStream::connect(path)
}

fn raw(number: i64, arguments: [usize; 3]) -> End {
    let [a, b, c] = arguments;
    // SAFETY: the arguments are numbers, or texts that live for ever; with these no call here changes this process's
    // memory.
    let result = unsafe { libc::syscall(number, a, b, c, 0, 0, 0) };
    if result == -1 { of::<(), _>(Err(std::io::Error::last_os_error())) } else { End::Done }
}
