//! [`CheckedSocket`]: a socket in a process that may close it behind our back.
//!
//! A program that becomes a daemon closes all descriptors that it does not know, and a shell moves files to any number
//! it likes. The number of a socket is then another file, or none. So before a socket is used or closed, it is looked
//! at whether it is still the one that it was.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;

/// From where on sockets have their numbers, if so many are allowed: far from those that programs choose.
const HIGH: RawFd = 900;

/// A socket, and which one it is.
#[derive(Debug)]
pub(crate) struct CheckedSocket<T: AsFd> {
    socket: Option<T>,
    identity: Identity,
}

/// What a descriptor is of: device and number of its file, which no other file has while this one is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    number: RawFd,
    device: u64,
    inode: u64,
}

impl Identity {
    /// What a descriptor is of now.
    fn of(socket: impl AsFd) -> rustix::io::Result<Self> {
        let socket = socket.as_fd();
        let stat = fstat(socket)?;
        Ok(Self { number: socket.as_raw_fd(), device: stat.st_dev, inode: stat.st_ino })
    }

    /// The number, if it is still of this file, for whoever has not got the socket. Where there is no `/proc` nobody
    /// knows.
    pub(crate) fn still(self) -> Option<RawFd> {
        let stat = rustix::fs::stat(format!("/proc/self/fd/{}", self.number)).ok()?;
        (stat.st_dev == self.device && stat.st_ino == self.inode).then_some(self.number)
    }
}

impl<T: AsFd + From<OwnedFd>> CheckedSocket<T> {
    /// Keeps a socket, under a high number if there is one.
    pub(crate) fn new(socket: T) -> rustix::io::Result<Self> {
        let socket = match fcntl_dupfd_cloexec(&socket, HIGH) {
            Ok(moved) => T::from(moved),
            Err(_) => socket,
        };
        let identity = Identity::of(&socket)?;
        Ok(Self { socket: Some(socket), identity })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// The socket, if its descriptor is still of it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.socket.as_ref().filter(|socket| Identity::of(socket) == Ok(self.identity))
    }
}

impl<T: AsFd> Drop for CheckedSocket<T> {
    fn drop(&mut self) {
        let socket = self.socket.take().filter(|socket| Identity::of(socket) != Ok(self.identity));
        // It has been closed already; what has its number now is somebody else's.
        std::mem::forget(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_that_has_become_another_file_is_left_alone() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut kept = CheckedSocket::new(near).unwrap();
        assert!(kept.get().is_some() && kept.identity().still().is_some());
        // As a program does that moves a file to this number.
        let (other, mut other_far) = UnixStream::pair().unwrap();
        let mut number = OwnedFd::from(kept.socket.take().unwrap());
        rustix::io::dup2(&other, &mut number).unwrap();
        kept.socket = Some(number.into());
        drop(other);
        assert!(kept.get().is_none());
        // Nobody has this end any more.
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        drop(kept);
        // The program's file is open as before.
        other_far.write_all(b"x").unwrap();
    }

    #[test]
    fn what_is_kept_is_closed_in_the_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let kept = CheckedSocket::new(near).unwrap();
        assert!(kept.identity().number >= HIGH || fcntl_dupfd_cloexec(&far, HIGH).is_err());
        drop(kept);
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
