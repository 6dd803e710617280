//! [`ask`]: one request to a process, and its answer.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use yonder_datagram::peer::Peer;
use yonder_settings::{Lines, REPLY_LINE_BYTES_MAX, ROWS_MAX, Refusal, ReplyLine, Request, Row};

use crate::folder::{Folder, FolderError};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No such process has a socket.
    #[error("process {0} has no far memory, or is not there")]
    Absent(u32),
    /// The socket may not be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Somebody else answers there.
    #[error("user {user} answers for process {pid}, who must not")]
    Foreign {
        /// The process.
        pid: u32,
        /// Who answers.
        user: u32,
    },
    /// The process has answered that it will not.
    #[error("{}", .0.text())]
    Refused(Refusal),
    /// It has not answered.
    #[error("process {pid} does not answer ({cause}): is it stopped?")]
    Silent {
        /// The process.
        pid: u32,
        /// What was waited for in vain.
        cause: io::Error,
    },
    /// It has answered what this version does not understand.
    #[error("process {0} answers what is no answer: use the yonder that it was started with")]
    Garbled(u32),
}

/// Asks a process in `folder`, which may take so long.
///
/// # Errors
/// If it does not do what it is asked.
pub fn ask(folder: &Folder, pid: u32, request: Request, timeout: Duration) -> Result<Vec<Row>, AskError> {
    if !folder.look_at_socket(pid)? {
        return Err(AskError::Absent(pid));
    }
    let deadline = Instant::now() + timeout;
    let silent = |cause: io::Error| match cause.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => AskError::Absent(pid),
        _ => AskError::Silent { pid, cause },
    };
    let mut socket = connected(folder, pid, timeout).map_err(silent)?;
    let peer = Peer::of(&socket).map_err(silent)?;
    if peer.uid != folder.owner() {
        return Err(AskError::Foreign { pid, user: peer.uid });
    }
    socket.write_all(format!("{request}\n").as_bytes()).map_err(silent)?;
    let mut reply = Reply { socket, lines: Lines::new(REPLY_LINE_BYTES_MAX), deadline };
    let mut rows = Vec::new();
    loop {
        let line = reply.line().map_err(silent)?;
        match line.and_then(|line| ReplyLine::parse(&line).ok()) {
            Some(ReplyLine::Row(row)) if rows.len() < ROWS_MAX => rows.push(row),
            Some(ReplyLine::Done) => return Ok(rows),
            Some(ReplyLine::Not(refusal)) => return Err(AskError::Refused(refusal)),
            Some(ReplyLine::Row(_)) | None => return Err(AskError::Garbled(pid)),
        }
    }
}

/// A connection that waits for nothing for longer than `timeout`, not even for a place in the queue of those that wait.
fn connected(folder: &Folder, pid: u32, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for what in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, what, Some(timeout))?;
    }
    connect(&socket, &SocketAddrUnix::new(folder.socket(pid))?)?;
    Ok(socket.into())
}

/// What comes back.
struct Reply {
    socket: UnixStream,
    lines: Lines,
    deadline: Instant,
}

impl Reply {
    /// The next line; `None` if what comes is none.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
    }
}
