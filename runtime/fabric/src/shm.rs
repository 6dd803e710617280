//! `shm:///path.sock`: a memory node on this machine, whose memory is mapped here.
//!
//! The node hands its memory over as a descriptor when the connection opens. An allocation is translated page by page,
//! and its pages are mapped one behind the other, so that far memory has addresses of its own here: offsets in one
//! large reserved range. Reads and writes are copies to and from there, with no message. The node checks nothing of a
//! copy: client and node trust each other.
//!
//! A watcher thread waits for the end of the connection. From then on everything completes as [`Status::Disconnected`],
//! although the mapping is still there: nobody guarantees its content any more. The same is so while the lease of the
//! address space is over ([`Lease`]), which is looked at before each copy and after it: before, so that no page is
//! written that may be of no use any more, and after, because the process may have stood still meanwhile.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::net::Shutdown;
use yonder_intercept::Kept;
use yonder_mapping::{MapError, Mapping};
use yonder_units::{Nanos, Narrow, PAGE_BYTES};

use crate::lane::{Lane, NodeAddress, NodeSession, OpenError};
use crate::lease::Lease;
use crate::ranges::Ranges;
use crate::space::Space;
use crate::url::{settings_of, shm_path};
use crate::vector::{MoveBytes as _, Operation};
use crate::{
    Completion, Credentials, Fabric, FabricError, Module, PageRead, PageWrite, PostError, QUEUE_DEPTH_MAX, QueuePair,
    ReadInto, RemoteAddress, Status, WorkId,
};

/// Operations that a queue pair holds.
const DEPTH: usize = 256;
/// Operations of the lane for allocation.
const CONTROL_OPERATIONS_MAX: usize = 8;
/// Bytes reserved here for each byte of the node's memory, so that free ranges rarely fail an allocation by being
/// scattered.
const RESERVED_PER_BYTE: u64 = 4;

const _: () = assert!(DEPTH <= QUEUE_DEPTH_MAX);

/// A memory node on this machine.
pub struct ShmFabric {
    space: Space,
    far: Arc<Far>,
    file: Kept,
    allocations: Mutex<Allocations>,
}

/// The reserved range, and what of it counts. Shared by the fabric and its queue pairs.
struct Far {
    mapping: Arc<Mapping>,
    session: Arc<NodeSession>,
    lease: Arc<Lease>,
    node_page_bytes: u64,
    /// Whether there is memory, by pages of the node.
    is_mapped: Box<[AtomicBool]>,
    /// Ends the connection when it is dropped, behind the mapping: the node takes that for the end of all accesses.
    _watcher: Option<Watcher>,
}

/// What lies where.
struct Allocations {
    /// In the reserved range.
    local: Ranges,
    /// Addresses of the allocations in the node's address space, by their local ones.
    remote: HashMap<u64, u64>,
}

/// Waits for the end of the connection.
struct Watcher {
    /// Closing it ends the thread.
    socket: Kept,
    thread: Option<JoinHandle<()>>,
}

impl ShmFabric {
    /// Connects to the node that listens on the socket `shm:///path`, perhaps with `?lease=60s` behind it. Blocks for
    /// some seconds at most.
    pub fn connect(url: &str) -> Result<Self, FabricError> {
        let (url, settings) = settings_of(url)?;
        let unreachable = |cause: String| FabricError::Unreachable { url: url.to_owned(), cause };
        let refused = |cause: String| FabricError::System { url: url.to_owned(), cause };
        let (address, session) = (NodeAddress::Unix(shm_path(url)?.to_owned()), Arc::new(NodeSession::default()));
        let opened =
            Lane::open(&address, CONTROL_OPERATIONS_MAX, &session).map_err(|error| unreachable(error.to_string()))?;
        let file = Kept::new(opened.memory.ok_or_else(|| unreachable("it exports no memory".to_owned()))?);
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(unreachable(OpenError::Unsealed.to_string()));
        }
        let (bytes, page_bytes) = (opened.welcome.memory_bytes, opened.welcome.page_bytes);
        if page_bytes < PAGE_BYTES as u64 {
            return Err(unreachable(format!("it has pages of {page_bytes} bytes")));
        }
        let file_bytes = rustix::fs::fstat(&file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if bytes == 0 || file_bytes < bytes {
            return Err(unreachable(format!("it exports {file_bytes} bytes and speaks of {bytes}")));
        }
        let socket = opened.lane.clone_socket().map_err(|error| refused(error.to_string()))?;
        let watcher = Watcher::new(socket, &session).map_err(|error| refused(error.to_string()))?;
        let reserved = bytes.saturating_mul(RESERVED_PER_BYTE);
        let space = Space::create(url, opened.lane, settings.lease_of_fabric())?;
        let far = Far::new(reserved, page_bytes, (session, Some(watcher)), Arc::clone(space.lease()))
            .map_err(|error| refused(error.to_string()))?;
        let allocations = Mutex::new(Allocations { local: Ranges::new(reserved), remote: HashMap::new() });
        Ok(Self { space, far: Arc::new(far), file, allocations })
    }

    /// Maps the pages of the allocation at `remote` to `local`.
    fn map(&self, local: u64, remote: u64, bytes: u64) -> Result<(), FabricError> {
        let mut done = 0;
        while done < bytes {
            let found = self.space.translate(remote + done)?;
            let run = found.bytes.min(bytes - done);
            let mapped = self.far.mapping.map_file(local + done, self.file.as_fd(), found.offset, run.narrow_usize());
            mapped.map_err(|error| self.system(&error))?;
            self.far.set_mapped(local + done, run, true);
            done += run;
        }
        Ok(())
    }

    /// Takes the memory of a range away again.
    fn unmap(&self, local: u64, bytes: u64) -> Result<(), FabricError> {
        self.far.set_mapped(local, bytes, false);
        self.far.mapping.unmap_file(local, bytes.narrow_usize()).map_err(|error| self.system(&error))
    }

    fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn not_allocated(&self, start: RemoteAddress) -> FabricError {
        let cause = format!("the address {} is not in memory allocated to this client", start.0);
        FabricError::System { url: self.url().to_owned(), cause }
    }

    fn system(&self, error: &MapError) -> FabricError {
        FabricError::System { url: self.url().to_owned(), cause: error.to_string() }
    }
}

impl Fabric for ShmFabric {
    fn url(&self) -> &str {
        self.space.url()
    }

    fn queue_pair(&self, _module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(ShmQueuePair { far: Arc::clone(&self.far), frames, posted: VecDeque::with_capacity(DEPTH) }))
    }

    fn space(&self) -> Option<Credentials> {
        Some(self.space.credentials())
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let mut allocations = self.allocations();
        let remote = self.space.allocate(bytes)?.0;
        let whole = bytes.next_multiple_of(self.far.node_page_bytes);
        let mapped = match allocations.local.allocate(whole) {
            Some(local) => self.map(local, remote, whole).map(|()| local).inspect_err(|_| {
                // The first error is the one that counts; what cannot be undone now ends with the address space.
                let _ = self.unmap(local, whole);
                allocations.local.release(local);
            }),
            None => Err(FabricError::OutOfMemory { url: self.url().to_owned(), bytes }),
        };
        let local = mapped.inspect_err(|_| {
            let _ = self.space.release(RemoteAddress(remote));
        })?;
        allocations.remote.insert(local, remote);
        Ok(RemoteAddress(local))
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        let mut allocations = self.allocations();
        let Some(remote) = allocations.remote.get(&start.0).copied() else { return Err(self.not_allocated(start)) };
        self.space.release(RemoteAddress(remote))?;
        allocations.remote.remove(&start.0);
        let bytes = allocations.local.release(start.0).expect("it has an address in the node's address space");
        self.unmap(start.0, bytes)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        if !self.allocations().local.contains(start.0, bytes) {
            return Err(self.not_allocated(start));
        }
        // The node would put other pages in the place of these, which would have to be mapped again; so the content is
        // dropped here, where it is mapped, and its memory returns to the machine all the same.
        self.far.mapping.discard(start.0, bytes.narrow_usize()).map_err(|error| self.system(&error))
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        // Who copies from the mapping looks at no lease afterwards, and behind it the node takes the memory back, which
        // reads as zeros then. So all reads go through frames, and their end looks at the lease.
        None
    }
}

impl Far {
    fn new(
        bytes: u64,
        node_page_bytes: u64,
        (session, watcher): (Arc<NodeSession>, Option<Watcher>),
        lease: Arc<Lease>,
    ) -> Result<Self, MapError> {
        let mapping = Arc::new(Mapping::reserved(bytes.narrow_usize())?);
        let is_mapped = (0..bytes.div_ceil(node_page_bytes)).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { mapping, session, lease, node_page_bytes, is_mapped, _watcher: watcher })
    }

    /// Whether the memory may have ceased to be this client's.
    #[inline]
    fn is_gone(&self) -> bool {
        self.session.is_lost() || self.lease.is_over()
    }

    fn set_mapped(&self, local: u64, bytes: u64, is_mapped: bool) {
        let (first, end) = (local / self.node_page_bytes, (local + bytes).div_ceil(self.node_page_bytes));
        for page in &self.is_mapped[first.narrow_usize()..end.narrow_usize()] {
            page.store(is_mapped, Ordering::Release);
        }
    }

    /// Whether there is memory for the page at `address`. Pages of the node are whole numbers of pages.
    #[inline]
    fn has_page(&self, address: u64) -> bool {
        let page = usize::try_from(address / self.node_page_bytes).ok();
        address.is_multiple_of(PAGE_BYTES as u64)
            && page.and_then(|page| self.is_mapped.get(page)).is_some_and(|page| page.load(Ordering::Acquire))
    }
}

impl Watcher {
    fn new(socket: OwnedFd, session: &Arc<NodeSession>) -> io::Result<Self> {
        let (watched, session) = (Kept::new(socket.try_clone()?), Arc::clone(session));
        let thread = thread::Builder::new().name("yonder-shm-watch".to_owned()).spawn(move || {
            let mut interest = [PollFd::new(&watched, PollFlags::RDHUP)];
            // Any other return than an interruption means that the connection cannot be trusted.
            while rustix::event::poll(&mut interest, None) == Err(rustix::io::Errno::INTR) {}
            session.lose();
        })?;
        Ok(Self { socket: Kept::new(socket), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The connection may have ended by itself; then the thread is ending too.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // The thread has nothing to report.
            let _ = thread.join();
        }
    }
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
        let far = &self.far.mapping;
        match operation {
            Operation::Read(PageRead { from, into: ReadInto::Frame(into), vector }) if self.far.has_page(from.0) => {
                vector.copy(&self.frames, into.offset(), far, from.0);
            }
            Operation::Write(PageWrite { to, from, vector }) if self.far.has_page(to.0) => {
                vector.copy(far, to.0, &self.frames, from.offset());
            }
            _ => return Status::Failed,
        }
        Status::Done
    }
}

impl QueuePair for ShmQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, _now: Nanos) -> Result<(), PostError> {
        assert!(read.into != ReadInto::Mapped, "what is mapped here may cease to be ours: read into a frame");
        self.post(id, Operation::Read(read))
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, _now: Nanos) -> Result<(), PostError> {
        self.post(id, Operation::Write(write))
    }

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        if self.posted.is_empty() {
            return;
        }
        // Asked after a copy, for what was copied while the memory was there is good, and thereby before the next.
        let mut is_gone = self.far.is_gone();
        while completions.len() < completions.capacity()
            && let Some((id, operation)) = self.posted.pop_front()
        {
            let mut status = Status::Disconnected;
            if !is_gone {
                let executed = self.execute(operation);
                is_gone = self.far.is_gone();
                status = if is_gone { Status::Disconnected } else { executed };
            }
            completions.push(Completion { id, status });
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.posted.retain(|(posted, ..)| *posted != id);
    }

    fn may_still_write(&self, _start: RemoteAddress, _bytes: u64) -> bool {
        // A write is a copy, and copied by the poll that ends it.
        false
    }

    fn outstanding(&self) -> usize {
        self.posted.len()
    }

    fn depth(&self) -> usize {
        DEPTH
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use yonder_units::FrameIndex;

    use super::*;
    use crate::{Vector, lease};

    /// Pages of a node, the first of them mapped.
    fn far(pages: usize, lease: Duration) -> Far {
        let file = yonder_mapping::create_memfd(c"yonder-shm-test", PAGE_BYTES).unwrap();
        let lease = Arc::new(Lease::new(lease, lease::now()));
        let far = Far::new((pages * PAGE_BYTES) as u64, PAGE_BYTES as u64, (Arc::default(), None), lease).unwrap();
        far.mapping.map_file(0, file.as_fd(), 0, PAGE_BYTES).unwrap();
        far.set_mapped(0, PAGE_BYTES as u64, true);
        far
    }

    #[test]
    fn nothing_is_copied_behind_the_lease_until_it_is_renewed() {
        let far = Arc::new(far(1, Duration::from_nanos(1)));
        let frames = Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap());
        let mut queue = ShmQueuePair { far: Arc::clone(&far), frames: frames.clone(), posted: VecDeque::new() };
        let mut completions = Vec::with_capacity(2);
        frames.write(0, &[1; PAGE_BYTES]);
        let mut word = [0; 8];
        for (renewed, status, copied) in [(0, Status::Disconnected, [0; 8]), (u64::MAX - 1, Status::Done, [1; 8])] {
            far.lease.renew(renewed);
            queue.post_write(WorkId(1), RemoteAddress(0), FrameIndex(0), 0).unwrap();
            queue.poll(0, &mut completions);
            assert_eq!(completions.pop().map(|completion| completion.status), Some(status));
            far.mapping.read(0, &mut word);
            assert_eq!(word, copied);
        }
    }

    #[test]
    fn segments_are_copied_alone() {
        let far = Arc::new(far(2, Duration::ZERO));
        let frames = Arc::new(Mapping::anonymous(2 * PAGE_BYTES).unwrap());
        let mut queue = ShmQueuePair { far: Arc::clone(&far), frames: frames.clone(), posted: VecDeque::new() };
        let (vector, mut completions) = (Vector::new([16..32, 100..200, 4000..4096]), Vec::with_capacity(4));
        frames.write(0, &[1; PAGE_BYTES]);
        frames.write(PAGE_BYTES as u64, &[2; PAGE_BYTES]);
        queue.post_write_vector(WorkId(1), PageWrite { to: RemoteAddress(0), from: FrameIndex(0), vector }, 0).unwrap();
        for (id, from) in [(2, 0), (3, PAGE_BYTES as u64)] {
            let read = PageRead { from: RemoteAddress(from), into: ReadInto::Frame(FrameIndex(1)), vector };
            queue.post_read_vector(WorkId(id), read, 0).unwrap();
        }
        queue.poll(0, &mut completions);
        assert_eq!(
            completions.iter().map(|completion| completion.status).collect::<Vec<_>>(),
            [Status::Done, Status::Done, Status::Failed]
        );
        let (mut node, mut local) = ([9; PAGE_BYTES], [9; PAGE_BYTES]);
        far.mapping.read(0, &mut node);
        frames.read(PAGE_BYTES as u64, &mut local);
        assert!(node == vector.filled(1, 0) && local == vector.filled(1, 2));
    }
}
