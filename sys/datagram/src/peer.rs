//! [`Peer`]: who is at the other end of a Unix socket, as the kernel knows it.
//!
//! The kernel notes it when the connection is made: of who connects, that is who called `connect`; of who listens, who
//! called `listen`.
//!
//! UNSAFETY: a system call that fills a structure.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use crate::address::length_of;

/// A process at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number; `None` if it has none here, as that of another namespace.
    pub pid: Option<u32>,
    /// The user that it ran as.
    pub uid: u32,
}

impl Peer {
    /// Who is at the other end of a connected Unix socket.
    ///
    /// # Errors
    /// If it is no such socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = length_of::<libc::ucred>();
        let descriptor = socket.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open while it is borrowed; the kernel writes at most `bytes` bytes to the
        // structure, of whose fields any value is one.
        let refused = unsafe {
            libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut bytes)
        };
        if refused != 0 {
            return Err(io::Error::last_os_error());
        }
        if found.uid == u32::MAX {
            // What the kernel says of a socket with nobody at the other end.
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(Self { pid: u32::try_from(found.pid).ok().filter(|pid| *pid != 0), uid: found.uid })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_pair_of_this_process_is_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(Peer::of(&near).unwrap(), Peer { pid: Some(std::process::id()), uid });
    }

    #[test]
    fn what_has_no_other_end_has_no_peer() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(Peer::of(&file).is_err());
        let folder = tempfile::tempdir().unwrap();
        let alone = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(Peer::of(&alone).is_err());
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        // Whoever listens is who would be seen by who connects.
        assert_eq!(Peer::of(&listener).unwrap().pid, Some(std::process::id()));
    }
}
