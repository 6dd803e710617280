//! Waits for children do not see a helper, which has nothing that its caller was given, and lives on when it is asked
//! to end.
//!
//! UNSAFETY: looks at the process that it is.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use yonder_process::{Side, detach};

fn main() {
    let (mut ours, mut theirs) = UnixStream::pair().expect("sockets can be made");
    let (given, kept) = (std::fs::File::open("/dev/zero"), std::fs::File::open("/dev/zero"));
    let (given, kept) = (given.expect("there are zeros"), kept.expect("there are zeros"));
    // SAFETY: changes a flag of a descriptor that is open.
    assert_eq!(unsafe { libc::fcntl(given.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let is_open = |descriptor: i32| std::path::Path::new(&format!("/proc/self/fd/{descriptor}")).exists();
    match detach().expect("it can fork") {
        Side::Helper => {
            drop(ours);
            // SAFETY: asks for numbers, and sends a signal to this process alone.
            let (parent, session) = unsafe { (libc::getppid(), libc::getsid(0)) };
            // SAFETY: as above; the signal goes to the thread that the C library takes this one for.
            let raised = [libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM].map(|signal| unsafe { libc::raise(signal) });
            assert_eq!(raised, [0; 3], "it knows the number of another thread");
            let descriptors = [is_open(given.as_raw_fd()), is_open(kept.as_raw_fd())];
            let is_null = |number: i32| std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
            let nulls = [0, 1].map(|number| is_null(number) == Some("/dev/null".into()));
            // It is closed, so nothing may close it again.
            std::mem::forget(given);
            write!(theirs, "{parent} {session} {descriptors:?} {nulls:?}").expect("the caller reads");
        }
        Side::Caller => {
            drop(theirs);
            // SAFETY: asks for numbers.
            let (this, session) = unsafe { (libc::getpid(), libc::getsid(0)) };
            // SAFETY: asks for children, of which there are none.
            assert_eq!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) }, -1, "the helper is seen");
            let mut told = String::new();
            ours.read_to_string(&mut told).expect("the helper writes");
            let (numbers, rest) = told.split_once(" [").expect("it has told all");
            let numbers: Vec<i32> = numbers.split(' ').map(|word| word.parse().expect("a number")).collect();
            assert!(numbers[0] != this && numbers[1] != session, "{told}");
            assert_eq!(rest, "false, true] [true, true]");
            assert!(is_open(given.as_raw_fd()));
        }
    }
}
