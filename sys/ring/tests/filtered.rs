//! A ring in a process whose filter refuses io_uring to everybody else, as that of a program under `yonder run` does.
//!
//! UNSAFETY: forks, because filters cannot be taken away again, and makes a raw system call.

use std::path::Path;
use std::sync::Arc;

use yonder_intercept::{STUB, handle, install_filter, install_stub};
use yonder_ring::{DirectFile, Ring};
use yonder_syscalls::{Stub, filter};

const BYTES: usize = 4096;
/// How the child says that there is no io_uring, with or without a filter.
const SKIPPED: i32 = 77;

/// Transfers a page to the file and back. The file grows, which are system calls of other kinds.
fn transfer(path: &Path) -> Result<(), String> {
    let file = DirectFile::open(path).map_err(|error| error.to_string())?;
    file.reserve(BYTES as u64).map_err(|error| error.to_string())?;
    let mut ring = Ring::new(Arc::new(file), 2, BYTES).map_err(|error| error.to_string())?;
    ring.buffer(0).fill(7);
    for step in 0..2 {
        if step == 0 {
            ring.write(0, 0, BYTES)
        } else {
            ring.read(1, 0, BYTES)
        }
        while ring.transfers() > 0 {
            ring.wait();
            if ring.ended().is_some_and(|ended| !ended.is_done) {
                return Err(format!("step {step} has failed"));
            }
        }
    }
    let is_good = ring.buffer(1).iter().all(|byte| *byte == 7) && ring.file().bytes().is_ok_and(|bytes| bytes == 4096);
    ring.file().clear().map_err(|error| error.to_string())?;
    if is_good { Ok(()) } else { Err("what was read is not what was written".to_owned()) }
}

fn run(path: &Path) -> Result<i32, String> {
    if let Err(error) = transfer(path) {
        println!("SKIP: {error}");
        return Ok(SKIPPED);
    }
    install_stub().map_err(|error| error.to_string())?;
    handle(|_, _| -i64::from(libc::EFAULT), 0).map_err(|error| error.to_string())?;
    let program = filter(Stub { start: STUB.start as u64, end: STUB.end as u64 });
    install_filter(&program).map_err(|error| error.to_string())?;
    // SAFETY: the filter refuses it before the kernel looks at the structure, which is none.
    let refused = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) };
    if refused != -1 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
        return Err("the filter lets io_uring through to the program".to_owned());
    }
    transfer(path).map(|()| 0)
}

#[test]
fn a_ring_works_where_a_filter_refuses_it_to_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    // SAFETY: the child runs what is above, and exits at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = run(&path).unwrap_or_else(|error| {
            println!("{error}");
            1
        });
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and the status is a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child's status is {status}");
    assert!([0, SKIPPED].contains(&libc::WEXITSTATUS(status)), "the child's status is {status}");
}
