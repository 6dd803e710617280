//! [`ControlServer`]: answers at this process's socket, on a thread of its own.
//!
//! All clients are served at once and none is waited for: each has [`TIMEOUT`] for its one request, and of more than
//! [`CLIENTS_MAX`] the one that has been there for longest goes. So silent ones cost others nothing.
//!
//! Who may touch what: everything but the socket's path, its descriptor's identity and the stop socket is the thread's.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use yonder_datagram::peer::Peer;

use crate::answer::Controlled;
use crate::checked_socket::{CheckedSocket, Identity};
use crate::connection::{Connection, Going};
use crate::folder::{Folder, FolderError};

/// How long one client may take.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Clients at a time.
pub const CLIENTS_MAX: usize = 8;
/// How long to wait after a client could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a process cannot be asked. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no folder for its socket.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Somebody is asked there already: a process with the same number in another container.
    #[error("{} is another process's: set XDG_RUNTIME_DIR to another folder", .0.display())]
    Taken(PathBuf),
    /// The operating system refused it.
    #[error("{}: {cause}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What it said.
        cause: io::Error,
    },
}

/// A process that can be asked. Dropping it ends that, and waits until the request that is being answered is done.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    pid: u32,
    /// Device and number of the file at the path.
    file: (u64, u64),
    listener: Identity,
    stop: Option<CheckedSocket<UnixStream>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Answers for this process with `controlled`, at a socket in the folder at `path`.
    ///
    /// # Errors
    /// If the folder is not this user's alone, or the socket cannot be made. Then the process cannot be asked, and
    /// nothing else is wrong.
    pub fn start(path: &Path, controlled: Arc<dyn Controlled>) -> Result<Self, StartError> {
        let folder = Folder::make(path)?;
        let pid = std::process::id();
        let path = folder.socket(pid);
        // What this process was before it executed another program has left one.
        if path.exists() && !folder.remove_if_stale(pid) {
            return Err(StartError::Taken(path));
        }
        let refused = |cause| StartError::System { path: path.clone(), cause };
        let listener = listen_at(&path).map_err(refused)?;
        let file = std::fs::symlink_metadata(&path).map_err(refused)?;
        let (stop, stopped) = UnixStream::pair().map_err(refused)?;
        let failed = |error: Errno| refused(error.into());
        let listener = CheckedSocket::new(listener).map_err(failed)?;
        let (stop, stopped) = (CheckedSocket::new(stop).map_err(failed)?, CheckedSocket::new(stopped).map_err(failed)?);
        let identity = listener.identity();
        let service = Service { listener, stopped, folder, controlled, clients: Vec::new() };
        let mut server = Self {
            path: path.clone(),
            pid,
            file: (file.dev(), file.ino()),
            listener: identity,
            stop: Some(stop),
            thread: None,
        };
        // The thread takes over which signals it takes from the one that starts it. A refusal removes the socket.
        let thread = yonder_trap::hold_back(|| {
            std::thread::Builder::new().name("yonder-control".to_owned()).spawn(move || service.run())
        });
        server.thread = Some(thread.map_err(refused)?);
        Ok(server)
    }

    /// Where it is asked.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor at which it listens, for a forked child, which has it too and must close it: the thread is not
    /// there.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.listener.still()
    }

    /// Removes the socket, for a process that ends without dropping this. A forked child's is its parent's, and stays.
    pub fn remove_socket(&self) {
        let is_it = std::process::id() == self.pid
            && std::fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file);
        if is_it {
            // If it cannot be removed, whoever finds it next does.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the panic hook, and there is nothing to do about it here.
            let _ = thread.join();
        }
        self.remove_socket();
    }
}

/// A socket that only its user can connect to. It gets its name once it is listened at, so that one that refuses is
/// nobody's.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let unnamed = path.with_extension("new");
    let _ = std::fs::remove_file(&unnamed);
    let listener = UnixListener::bind(&unnamed)?;
    let named = std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| std::fs::rename(&unnamed, path));
    named.inspect_err(|_| {
        let _ = std::fs::remove_file(&unnamed);
    })?;
    Ok(listener)
}

/// What the thread owns.
struct Service {
    listener: CheckedSocket<UnixListener>,
    stopped: CheckedSocket<UnixStream>,
    folder: Folder,
    controlled: Arc<dyn Controlled>,
    /// The oldest first.
    clients: Vec<Connection>,
}

impl Service {
    fn run(mut self) {
        let mut pause = None;
        while let Some(ready) = self.wait(pause.take()) {
            let mut index = 0;
            self.clients.retain_mut(|client| {
                let is_ready = ready.clients[index];
                index += 1;
                let going = if is_ready { client.step(&*self.controlled) } else { Going::On };
                going == Going::On && Instant::now() < client.deadline
            });
            if ready.listener && !self.accept() {
                pause = Some(PAUSE);
            }
        }
    }

    /// Waits until there is something to do; `None` if that is to end. After a `pause` for those that are accepted
    /// next.
    fn wait(&self, pause: Option<Duration>) -> Option<Ready> {
        // Gone if the program has closed what it did not know.
        let (listener, stopped) = (self.listener.get()?, self.stopped.get()?);
        let sockets: Vec<_> = self.clients.iter().map(|client| client.socket.get()).collect();
        let mut events = vec![PollFd::new(stopped, PollFlags::IN)];
        if pause.is_none() {
            events.push(PollFd::new(listener, PollFlags::IN));
        }
        let of_clients = events.len();
        for (client, socket) in self.clients.iter().zip(&sockets) {
            events.extend(socket.map(|socket| PollFd::new(socket, client.awaits())));
        }
        let now = Instant::now();
        let until = self.clients.iter().map(|client| client.deadline.saturating_duration_since(now)).chain(pause).min();
        let timeout = until.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let is_ready = |event: &PollFd<'_>| !event.revents().is_empty();
        if is_ready(&events[0]) {
            return None;
        }
        let mut seen = events[of_clients..].iter().map(is_ready);
        // Who has lost the socket is ready to be let go.
        let clients = sockets.iter().map(|socket| socket.is_none_or(|_| seen.next().unwrap_or(false))).collect();
        Some(Ready { listener: events[1..of_clients].iter().any(is_ready), clients })
    }

    /// Accepts a client; false if the system could not.
    fn accept(&mut self) -> bool {
        let Some(listener) = self.listener.get() else { return true };
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            // It is gone again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return true;
            }
            Err(_) => return false,
        };
        let deadline = Instant::now() + TIMEOUT;
        let checked = socket.set_nonblocking(true).and_then(|()| Ok((Peer::of(&socket)?, CheckedSocket::new(socket)?)));
        let Ok((peer, socket)) = checked else { return false };
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.remove(0);
        }
        self.clients.push(if self.folder.trusts(peer.uid) {
            Connection::new(socket, deadline)
        } else {
            Connection::refused(socket, deadline, "this process is another user's".to_owned())
        });
        true
    }
}

/// What a wait has found to do.
struct Ready {
    listener: bool,
    clients: Vec<bool>,
}
