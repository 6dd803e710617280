//! [`Folder`]: where the sockets of a user's processes are.
//!
//! `$XDG_RUNTIME_DIR/yonder`, or `/tmp/yonder-UID` where there is no such variable. It belongs to the user and nobody
//! else may enter it, which is looked at before it is used: in `/tmp` anybody could have made it before. `PID.sock` in
//! it is the socket of a process; one that nobody listens at any more is removed by whoever finds it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

/// What the name of a socket ends with.
const SOCKET: &str = ".sock";
/// Rights of anybody but the owner.
const OF_OTHERS: u32 = 0o077;
/// The superuser.
const ROOT: u32 = 0;

/// A folder that cannot be used. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{} {why}", path.display())]
pub struct FolderError {
    path: PathBuf,
    why: String,
}

/// A folder of sockets that has been looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folder {
    path: PathBuf,
    owner: u32,
}

/// The folder of this user's processes, with what `XDG_RUNTIME_DIR` is set to.
#[must_use]
pub fn folder_of(runtime_dir: Option<&Path>) -> PathBuf {
    match runtime_dir.filter(|folder| folder.is_absolute() && folder.is_dir()) {
        Some(folder) => folder.join("yonder"),
        None => PathBuf::from(format!("/tmp/yonder-{}", geteuid().as_raw())),
    }
}

impl Folder {
    /// The folder at `path`, made if it is not there, for a process that will have a socket in it.
    ///
    /// # Errors
    /// If it cannot be made, or is not this user's alone.
    pub fn make(path: &Path) -> Result<Self, FolderError> {
        let wrong = |why: String| FolderError { path: path.to_owned(), why };
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(wrong(format!("cannot be made: {error}"))),
            _ => {
                let folder = Self::open(path)?.ok_or_else(|| wrong("is gone again".to_owned()))?;
                if folder.owner != geteuid().as_raw() {
                    return Err(wrong(not_ours(folder.owner)));
                }
                Ok(folder)
            }
        }
    }

    /// The folder at `path`, for a process that asks others; `None` if it is not there. Root may ask everybody's
    /// processes.
    ///
    /// # Errors
    /// If it is not this user's alone.
    pub fn open(path: &Path) -> Result<Option<Self>, FolderError> {
        let wrong = |why: String| FolderError { path: path.to_owned(), why };
        // Of the name itself: a link could be changed by whoever has made it.
        let found = match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|error| wrong(format!("cannot be looked at: {error}")))?,
        };
        let (owner, user) = (found.uid(), geteuid().as_raw());
        if !found.is_dir() {
            return Err(wrong("is no folder: remove it".to_owned()));
        }
        if owner != user && user != ROOT {
            return Err(wrong(not_ours(owner)));
        }
        if found.mode() & OF_OTHERS != 0 {
            let path = path.display();
            return Err(wrong(format!("is open to other users: type chmod 700 {path} if you trust what is in it")));
        }
        Ok(Some(Self { path: path.to_owned(), owner }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the socket of a process is.
    #[must_use]
    pub fn socket(&self, pid: u32) -> PathBuf {
        self.path.join(format!("{pid}{SOCKET}"))
    }

    /// Whether a process of this user may be told what concerns the folder's owner, and tell him.
    pub(crate) fn trusts(&self, user: u32) -> bool {
        user == self.owner || user == ROOT
    }

    /// Whose processes have their sockets here: no others answer.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The processes that have sockets here, by their numbers. Sockets that nobody listens at are removed.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let mut processes = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SOCKET)).and_then(|pid| pid.parse().ok());
            if let Some(pid) = number
                && !self.remove_if_stale(pid)
            {
                processes.push(pid);
            }
        }
        processes.sort_unstable();
        Ok(processes)
    }

    /// Removes the socket of a process that is gone; whether it was.
    pub(crate) fn remove_if_stale(&self, pid: u32) -> bool {
        let path = self.socket(pid);
        // In a folder of another user it may be a link by the next moment.
        if self.owner != geteuid().as_raw() {
            return false;
        }
        // A socket gets its name when it is listened at, so nobody is about to. Another error says nothing.
        connect_at_once(&path) == Err(Errno::CONNREFUSED) && std::fs::remove_file(&path).is_ok()
    }

    /// Looks at the socket of a process before anything is said there: `Ok(false)` if there is none.
    pub(crate) fn look_at_socket(&self, pid: u32) -> Result<bool, FolderError> {
        let path = self.socket(pid);
        let wrong = |why: String| FolderError { path: path.clone(), why };
        let found = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            found => found.map_err(|error| wrong(format!("cannot be looked at: {error}")))?,
        };
        if !found.file_type().is_socket() || found.uid() != self.owner || found.mode() & OF_OTHERS != 0 {
            return Err(wrong("is no socket of this user's alone: remove it".to_owned()));
        }
        Ok(true)
    }
}

/// Connects and leaves again; does not wait where others wait already.
fn connect_at_once(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

fn not_ours(owner: u32) -> String {
    format!("belongs to user {owner}: set XDG_RUNTIME_DIR to a folder of yours")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn the_folder_is_where_the_session_keeps_such_things_or_in_tmp() {
        let folder = tempfile::tempdir().unwrap();
        let in_tmp = PathBuf::from(format!("/tmp/yonder-{}", geteuid().as_raw()));
        assert_eq!(folder_of(Some(folder.path())), folder.path().join("yonder"));
        for none in [None, Some(Path::new("")), Some(Path::new("relative")), Some(Path::new("/no/such/folder"))] {
            assert_eq!(folder_of(none), in_tmp);
        }
    }

    #[test]
    fn a_folder_that_is_made_is_ours_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("yonder");
        assert_eq!(Folder::open(&path).unwrap(), None);
        let folder = Folder::make(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, folder.owner), (0o700, geteuid().as_raw()));
        assert_eq!((Folder::make(&path).unwrap(), Folder::open(&path).unwrap()), (folder.clone(), Some(folder)));
        assert!(Folder::make(&parent.path().join("no/yonder")).unwrap_err().to_string().contains("cannot be made"));
    }

    #[test]
    fn a_folder_that_others_may_enter_or_have_made_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("yonder");
        let said =
            || [Folder::make(&path).unwrap_err(), Folder::open(&path).unwrap_err()].map(|error| error.to_string());
        std::fs::create_dir(&path).unwrap();
        for mode in [0o770, 0o701, 0o755] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(said().iter().all(|said| said.contains("is open to other users: type chmod 700 ")), "{:?}", said());
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Folder::make(&link).unwrap_err().to_string().contains("is no folder"));
        assert!(Folder::open(&link).unwrap_err().to_string().contains("is no folder"));
        if chown(&path, Some(65534), None).is_err() {
            println!("SKIP: only root can give folders away");
            return;
        }
        assert!(Folder::make(&path).unwrap_err().to_string().contains("belongs to user 65534"));
        // Root may ask the processes of others.
        let theirs = Folder::open(&path).unwrap().unwrap();
        assert_eq!([65534, ROOT, 1000].map(|user| theirs.trusts(user)), [true, true, false]);
    }
}
