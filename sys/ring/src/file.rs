//! [`DirectFile`]: a file that is read and written without the page cache.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// How long a lock is waited for: the kernel ends the rings of a process, and with them its lock, some time after the process.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// How often it is tried meanwhile.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Why a file cannot be used. The texts follow the file's name and say what mends it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system says no.
    #[error("cannot be opened ({0}): type a path that this user may write to")]
    Refused(io::Error),
    /// Its file system knows no direct access.
    #[error("is on a file system without direct access: type a path on ext4, xfs or btrfs")]
    NotDirect,
    /// Another process has it.
    #[error("is in use by another process: type another path, or end that process")]
    InUse,
}

/// A file that this process alone has, and that transfers go to without the page cache.
#[derive(Debug)]
pub struct DirectFile {
    pub(crate) file: OwnedFd,
}

impl DirectFile {
    /// Opens the file at `path`, readable by its owner alone if it is made now, and locks it for as long as it is open.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::DIRECT;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            Errno::INVAL => OpenError::NotDirect,
            other => OpenError::Refused(other.into()),
        })?;
        let begun = Instant::now();
        while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(OpenError::Refused(error.into()));
            }
            if begun.elapsed() > LOCK_PATIENCE {
                return Err(OpenError::InUse);
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        Ok(Self { file })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_size as u64)
    }

    /// Makes the file `bytes` long, all of which the disk has room for from then on.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        rustix::fs::ftruncate(&self.file, bytes)?;
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?)
    }

    /// Gives everything that is in it back to the disk.
    pub fn clear(&self) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, 0)?)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // A ring keeps the file open until the kernel has taken it apart, which must not keep the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
