//! [`DirectFile`]: a file that is read and written without the page cache.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use yonder_intercept::Kept;

/// What the mode of a file says of all but its owner.
const OTHERS: u32 = 0o077;
/// How long a lock is waited for that a process has.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one that nobody has any more: the kernel ends the rings of a process, and with them its lock, some time
/// after the process, and late on a busy machine.
const DEAD_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
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
    #[error(
        "is in use by another process: type another path, or that of a folder, in which each process has a file of its own"
    )]
    InUse,
    /// What is there leads elsewhere, or is something else.
    #[error("is a link, or no regular file: type the path of a file itself, of a new one, or of a folder")]
    NotAFile,
    /// Another user owns it, or it has a second name that may be another user's.
    #[error("belongs to another user, or has a second name: type the path of a new file, or of a folder")]
    NotOurs,
    /// Its mode lets other users in.
    #[error(
        "may be read or written by other users: type chmod 600 and its path, or the path of a new file, or of a folder"
    )]
    NotPrivate,
}

/// A file that this process alone has, and that transfers go to without the page cache.
#[derive(Debug)]
pub struct DirectFile {
    pub(crate) file: Kept,
}

impl DirectFile {
    /// Opens the file at `path`, and locks it for as long as it is open. If there is a folder, makes a file in it that
    /// has no name and ends with the process: each who asks has another one.
    ///
    /// What is written to it is a program's memory, so it is readable by its owner alone if it is made now, and refused
    /// if it was there and another user can open it, or has put it there.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if path.is_dir() { Self::nameless(path) } else { Self::named(path) }
    }

    fn named(path: &Path) -> Result<Self, OpenError> {
        let file = open(path, OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        check(&rustix::fs::fstat(&file).map_err(|error| OpenError::Refused(error.into()))?)?;
        let begun = Instant::now();
        while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(OpenError::Refused(error.into()));
            }
            let timeout = if has_living_owner(&file) { LOCK_TIMEOUT } else { DEAD_LOCK_TIMEOUT };
            if begun.elapsed() > timeout {
                return Err(OpenError::InUse);
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        Ok(Self { file })
    }

    fn nameless(folder: &Path) -> Result<Self, OpenError> {
        // Nobody can give it a name later.
        match open(folder, OFlags::TMPFILE | OFlags::EXCL) {
            Ok(file) => Ok(Self { file }),
            Err(OpenError::Refused(error)) if error.kind() == io::ErrorKind::Unsupported => Self::unlinked(folder),
            Err(error) => Err(error),
        }
    }

    /// As [`DirectFile::nameless`], on a file system whose files have a name at the beginning.
    fn unlinked(folder: &Path) -> Result<Self, OpenError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".yonder-{}-{number}", std::process::id()));
        let file = open(&path, OFlags::CREATE | OFlags::EXCL)?;
        rustix::fs::unlink(&path).map_err(|error| OpenError::Refused(error.into()))?;
        Ok(Self { file })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_size.cast_unsigned())
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

/// Whether a process that is there has the lock of a file, as far as it can be known.
fn has_living_owner(file: &impl AsFd) -> bool {
    let (Ok(stat), Ok(locks)) = (rustix::fs::fstat(file), std::fs::read_to_string("/proc/locks")) else { return true };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let this = format!("{:02x}:{:02x}:{}", device.0, device.1, stat.st_ino);
    owner(&locks, &this).is_none_or(is_alive)
}

/// Whether a process is there and has not ended.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Its state stands behind the name, which may have anything in it.
    stat.rsplit_once(") ").is_some_and(|(_, behind)| !behind.starts_with(['Z', 'X']))
}

/// Which process has the lock of the file that is called `this`, by the kernel's table of them.
fn owner(locks: &str, this: &str) -> Option<u32> {
    let words = locks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    // Its number, kind, whether it is binding, what for, by whom, on what. Who waits for one has an arrow in front.
    let of_this = |words: &Vec<&str>| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&this);
    // One of another namespace has no number here.
    words.filter(of_this).find_map(|words| words[4].parse().ok()).filter(|owner| *owner != 0)
}

/// Whether a file is this user's alone. Whoever opened it before its mode was what it is now can still read it, but
/// only its owner, or a user whom the mode let in then, could.
fn check(file: &Stat) -> Result<(), OpenError> {
    if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotAFile);
    }
    if file.st_uid != rustix::process::geteuid().as_raw() || file.st_nlink != 1 {
        return Err(OpenError::NotOurs);
    }
    if file.st_mode & OTHERS != 0 {
        return Err(OpenError::NotPrivate);
    }
    Ok(())
}

/// Opens for direct reads and writes.
fn open(path: &Path, flags: OFlags) -> Result<Kept, OpenError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT | flags;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Kept::new(file)),
        Err(Errno::INVAL) => Err(OpenError::NotDirect),
        Err(Errno::LOOP) => Err(OpenError::NotAFile),
        Err(other) => Err(OpenError::Refused(other.into())),
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        // A ring keeps the file open until the kernel has taken it apart, which must not keep the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_lock_has_an_owner_who_may_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        assert!(has_living_owner(&file), "nobody is known to have it");
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(has_living_owner(&file));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        assert!(!is_alive(process) && is_alive(std::process::id()));
        let locks = "1: POSIX ADVISORY WRITE 5 fe:00:12 0 EOF\n2: FLOCK ADVISORY WRITE 7 fe:00:12 0 EOF\n\
            2: -> FLOCK ADVISORY WRITE 8 fe:00:13 0 EOF\n3: FLOCK ADVISORY WRITE 0 fe:00:14 0 EOF\n";
        assert_eq!(["12", "13", "14"].map(|inode| owner(locks, &format!("fe:00:{inode}"))), [Some(7), None, None]);
    }

    /// Where the descriptor of a file says that it is.
    fn place(file: &DirectFile) -> String {
        std::fs::read_link(format!("/proc/self/fd/{}", file.file.as_raw_fd())).unwrap().display().to_string()
    }

    #[test]
    fn a_file_is_one_process_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let first = DirectFile::open(&path).unwrap();
        assert!(matches!(DirectFile::open(&path), Err(OpenError::InUse)));
        drop(first);
        DirectFile::open(&path).unwrap();
    }

    #[test]
    fn each_has_a_file_without_a_name_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let make = |is_unlinked| match is_unlinked {
            false => DirectFile::open(folder.path()).unwrap(),
            true => DirectFile::unlinked(folder.path()).unwrap(),
        };
        for is_unlinked in [false, true] {
            let files = [0, 1].map(|_| make(is_unlinked));
            files[0].reserve(8192).unwrap();
            assert_eq!(files.each_ref().map(|file| file.bytes().unwrap()), [8192, 0]);
            assert!(files.iter().all(|file| place(file).ends_with("(deleted)")));
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    /// What another user may have put there, or can open, would be handed a program's memory.
    #[test]
    fn a_planted_file_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let [target, link, dangling, second, pipe] =
            ["target", "link", "none", "second", "pipe"].map(|name| folder.path().join(name));
        let refused = |path: &Path| DirectFile::open(path).unwrap_err();
        drop(DirectFile::open(&target).unwrap());
        drop(DirectFile::open(&target).expect("its own file is opened again"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("nothing"), &dangling).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [&link, &dangling] {
            assert!(matches!(refused(path), OpenError::NotAFile), "{}: {:?}", path.display(), refused(path));
        }
        assert!(matches!(refused(&pipe), OpenError::NotAFile | OpenError::NotDirect), "{:?}", refused(&pipe));
        for mode in [0o604, 0o602, 0o640, 0o620, 0o666] {
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(refused(&target), OpenError::NotPrivate), "{mode:o}");
        }
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::hard_link(&target, &second).unwrap();
        assert!(matches!(refused(&target), OpenError::NotOurs));
        std::fs::remove_file(&second).unwrap();
        assert!(!folder.path().join("nothing").exists());
        drop(DirectFile::open(&target).unwrap());
        match std::os::unix::fs::chown(&target, Some(65534), None) {
            Ok(()) => assert!(matches!(refused(&target), OpenError::NotOurs)),
            Err(error) => println!("SKIP: a file of another user: {error}"),
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let refused = |path: &str| DirectFile::open(Path::new(path)).unwrap_err().to_string();
        assert!(refused("/proc/none/none").contains("type a path"));
        assert!(refused("/proc/self").contains("type a path"));
    }
}
