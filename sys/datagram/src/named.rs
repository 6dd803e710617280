//! [`NamedSocket`]: a Unix socket with a name in a folder, for streams of programs of the same user.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that wait to be accepted.
const WAITING_MAX: i32 = 128;

/// The name of a socket that is listened at. [`NamedSocket::remove`] takes it away.
#[derive(Debug)]
pub struct NamedSocket {
    path: PathBuf,
    /// Device and number of the socket.
    file: (u64, u64),
}

impl NamedSocket {
    /// Listens at a path without waiting. The socket of a program that was killed is replaced; anything else that is
    /// there stays, and is in the way. Its user alone may connect.
    ///
    /// # Errors
    /// If the path is taken, or cannot be made.
    pub fn listen(path: &Path) -> io::Result<(Self, UnixListener)> {
        remove_left_over(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // Its mode is that of the name it gets: there is no moment at which others may connect.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(WAITING_MAX)?;
        socket.set_nonblocking(true)?;
        let file = file_at(path)?;
        Ok((Self { path: path.to_owned(), file }, UnixListener::from(OwnedFd::from(socket))))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name, unless another socket has it by now.
    pub fn remove(&self) {
        if file_at(&self.path).is_ok_and(|file| file == self.file) {
            // Somebody else may have removed it just now.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Removes a socket at which nobody listens any more.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(is_refused) { fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_socket_is_its_users_and_one_that_is_left_over_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (_first, listener) = NamedSocket::listen(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(NamedSocket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "somebody listens");
        drop(listener);
        let (second, _listener) = NamedSocket::listen(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_its_own_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "a file").unwrap();
        assert_eq!(NamedSocket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();
        let (first, _listener) = NamedSocket::listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (_second, _other) = NamedSocket::listen(&path).unwrap();
        first.remove();
        UnixStream::connect(&path).unwrap();
    }
}
