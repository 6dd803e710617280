//! `shm:///path.sock`: a memory node on this machine, whose memory is mapped here.
//!
//! The node hands its memory over as a descriptor when the control connection opens. Reads and writes are copies to and
//! from the mapping, with no message; allocation goes over the control connection. The node checks nothing of a copy:
//! client and node trust each other.
//!
//! A watcher thread waits for the end of the control connection. From then on everything completes as
//! [`Status::Disconnected`], although the mapping is still there: nobody guarantees its content any more.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use crate::control::{Control, Redial, SessionError, WAIT_MAX};
use crate::identity::Identity;
use crate::url::shm_path;
use crate::{
    Completion, Fabric, FabricError, Module, PostError, QUEUE_DEPTH_MAX, QueuePair, ReadInto, RemoteAddress, Status,
    WorkId,
};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;

const _: () = assert!(DEPTH <= QUEUE_DEPTH_MAX);

/// A memory node on this machine.
pub struct ShmFabric {
    control: Control,
    far: Arc<Far>,
}

/// The node's memory, and whether it still counts. Shared by the fabric and its queue pairs.
struct Far {
    mapping: Arc<Mapping>,
    identity: Arc<Identity>,
    /// Closing it ends the watcher.
    socket: UnixStream,
    watcher: Option<JoinHandle<()>>,
}

impl ShmFabric {
    /// Connects to the node that listens on the socket `shm:///path`. Blocks for some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let path = shm_path(url)?;
        let unreachable = |cause: String| FabricError::Unreachable { url: url.to_owned(), cause };
        let refused = |cause: String| FabricError::System { url: url.to_owned(), cause };
        let identity = Arc::new(Identity::new().map_err(|error| refused(error.to_string()))?);
        let greeted = DescriptorStream::connect(path)
            .map_err(SessionError::from)
            .and_then(|stream| Control::greet(stream, &identity));
        let (mut connected, welcome) = greeted.map_err(|error| unreachable(error.to_string()))?;
        let file = connected.stream().file.take().ok_or_else(|| unreachable("it exports no memory".to_owned()))?;
        let bytes = welcome.address_space_bytes;
        let file_bytes = rustix::fs::fstat(&file).map_or(0, |stat| stat.st_size as u64);
        if bytes == 0 || file_bytes < bytes {
            return Err(unreachable(format!("it exports {file_bytes} bytes and speaks of {bytes}")));
        }
        let mapping = Mapping::shared(file.as_fd(), bytes as usize).map_err(|error| refused(error.to_string()))?;
        let socket = connected.stream().socket.try_clone().map_err(|error| refused(error.to_string()))?;
        let far = Far::watched(mapping, Arc::clone(&identity), socket).map_err(|error| refused(error.to_string()))?;
        Ok(Self { control: Control::new(url, identity, Redial::Never, connected.erase()), far: Arc::new(far) })
    }
}

impl Fabric for ShmFabric {
    fn url(&self) -> &str {
        self.control.url()
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(ShmQueuePair { far: Arc::clone(&self.far), frames, posted: VecDeque::with_capacity(DEPTH) }))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.control.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.control.release(start, bytes)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.control.discard(start, bytes)
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        Some(&self.far.mapping)
    }
}

impl Far {
    /// Starts the watcher of `socket`.
    fn watched(mapping: Mapping, identity: Arc<Identity>, socket: UnixStream) -> io::Result<Self> {
        let (watched, told) = (socket.try_clone()?, Arc::clone(&identity));
        let watcher = thread::Builder::new().name("yonder-shm-watch".to_owned()).spawn(move || {
            let mut interest = [PollFd::new(&watched, PollFlags::RDHUP)];
            // Any other return than an interruption means that the connection cannot be trusted.
            while rustix::event::poll(&mut interest, None) == Err(rustix::io::Errno::INTR) {}
            told.lose();
        })?;
        Ok(Self { mapping: Arc::new(mapping), identity, socket, watcher: Some(watcher) })
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // The connection may have ended by itself; then the watcher is ending too.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        if let Some(watcher) = self.watcher.take() {
            // The watcher has nothing to report.
            let _ = watcher.join();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read { from: RemoteAddress, into: ReadInto },
    Write { to: RemoteAddress, from: FrameIndex },
}

/// A queue pair of copies.
struct ShmQueuePair {
    far: Arc<Far>,
    frames: Arc<Mapping>,
    posted: VecDeque<(WorkId, Operation)>,
}

impl ShmQueuePair {
    fn post(&mut self, id: WorkId, operation: Operation) -> Result<(), PostError> {
        if self.posted.len() == DEPTH {
            return Err(PostError::Full);
        }
        self.posted.push_back((id, operation));
        Ok(())
    }

    fn execute(&self, operation: Operation) -> Status {
        let (Operation::Read { from: address, .. } | Operation::Write { to: address, .. }) = operation;
        let inside = address.0.checked_add(PAGE_BYTES as u64).is_some_and(|end| end <= self.far.mapping.len() as u64);
        if !inside {
            return Status::Failed;
        }
        match operation {
            Operation::Read { from, into: ReadInto::Frame(frame) } => {
                self.frames.copy_from(frame.offset(), &self.far.mapping, from.0, PAGE_BYTES);
            }
            Operation::Read { into: ReadInto::Mapped, .. } => {}
            Operation::Write { to, from } => {
                self.far.mapping.copy_from(to.0, &self.frames, from.offset(), PAGE_BYTES);
            }
        }
        Status::Done
    }
}

impl QueuePair for ShmQueuePair {
    fn post_read(&mut self, id: WorkId, from: RemoteAddress, into: ReadInto, _now: Nanos) -> Result<(), PostError> {
        self.post(id, Operation::Read { from, into })
    }

    fn post_write(&mut self, id: WorkId, to: RemoteAddress, from: FrameIndex, _now: Nanos) -> Result<(), PostError> {
        self.post(id, Operation::Write { to, from })
    }

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        while completions.len() < completions.capacity()
            && let Some((id, operation)) = self.posted.pop_front()
        {
            let executed = self.execute(operation);
            // Asked after the copy: what was copied while the node was there is good.
            let status = if self.far.identity.is_lost() { Status::Disconnected } else { executed };
            completions.push(Completion { id, status });
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.posted.retain(|(posted, _)| *posted != id);
    }

    fn outstanding(&self) -> usize {
        self.posted.len()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}

/// A local stream that keeps the descriptor its peer sends.
struct DescriptorStream {
    socket: UnixStream,
    file: Option<OwnedFd>,
}

impl DescriptorStream {
    fn connect(path: &std::path::Path) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(WAIT_MAX))?;
        socket.set_write_timeout(Some(WAIT_MAX))?;
        Ok(Self { socket, file: None })
    }
}

impl Read for DescriptorStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(into)];
        let received = rustix::net::recvmsg(&self.socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.file = files.last().or(self.file.take());
            }
        }
        Ok(received.bytes)
    }
}

impl Write for DescriptorStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl AsFd for DescriptorStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
