//! Regions that end while a write of them is under way: their far memory is nobody's until the write cannot come any
//! more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use yonder_fabric::{
    Completion, Fabric, FabricError, Module, PageRead, PageWrite, PostError, Posting, QueuePair, RemoteAddress, WorkId,
    open,
};
use yonder_mapping::Mapping;
use yonder_paging::{Config, Deadlines, FarMemory};
use yonder_units::Nanos;

use crate::emulated::wait_for;

const PAGE: u64 = 4096;
const LOCAL: u64 = 2 << 20;

/// A node that takes writes and answers neither them nor their aborts while it is `silent`.
#[derive(Default)]
struct Node {
    silent: AtomicBool,
    /// Writes that were given up, and whose aborts are not answered.
    late: Mutex<Vec<RemoteAddress>>,
    taken: AtomicUsize,
    released: AtomicUsize,
}

struct Link {
    inner: Arc<dyn Fabric>,
    node: Arc<Node>,
}

struct Queue {
    inner: Box<dyn QueuePair>,
    node: Arc<Node>,
    /// Writes that the node has taken and not answered.
    taken: Vec<(WorkId, RemoteAddress)>,
}

impl Fabric for Link {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let inner = self.inner.queue_pair(module, frames)?;
        Ok(Box::new(Queue { inner, node: Arc::clone(&self.node), taken: Vec::new() }))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.inner.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        let late = self.node.late.lock().unwrap();
        assert!(late.is_empty(), "memory is given back that {} writes may still reach", late.len());
        self.node.released.fetch_add(1, Ordering::SeqCst);
        self.inner.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.inner.discard(start, bytes)
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        self.inner.mapped()
    }
}

impl QueuePair for Queue {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.inner.post_read_vector(id, read, now)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        if self.node.silent.load(Ordering::SeqCst) {
            self.taken.push((id, write.to));
            self.node.taken.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        self.inner.post_write_vector(id, write, now)
    }

    fn set_posting(&mut self, posting: Posting) {
        self.inner.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        // Aborts go out with a poll, and are answered.
        if !self.node.silent.load(Ordering::SeqCst) {
            self.node.late.lock().unwrap().clear();
        }
        self.inner.poll(now, completions);
    }

    fn cancel(&mut self, id: WorkId) {
        match self.taken.iter().position(|taken| taken.0 == id) {
            Some(at) => self.node.late.lock().unwrap().push(self.taken.remove(at).1),
            None => self.inner.cancel(id),
        }
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        let late = self.node.late.lock().unwrap();
        late.iter().any(|late| (start.0..start.0 + bytes).contains(&late.0))
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding() + self.taken.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

#[test]
fn far_memory_is_given_back_when_no_write_can_reach_it_any_more() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let node = Arc::new(Node::default());
    let inner = open("emu://?latency=1us&size=64MiB&reads=frames").unwrap();
    let fabric: Arc<dyn Fabric> = Arc::new(Link { inner, node: Arc::clone(&node) });
    let deadlines = Deadlines { fault: Duration::from_secs(2), attempt: Duration::from_millis(5) };
    let far = FarMemory::new(fabric, Config { deadlines, ..Config::with_local(LOCAL) }).unwrap();
    let (ends, stays) = (far.region(4 * LOCAL).unwrap(), far.region(PAGE).unwrap());
    node.silent.store(true, Ordering::SeqCst);
    // More than is local is written, until writes are under way that the node does not answer.
    for at in (0..ends.bytes()).step_by(PAGE as usize) {
        if node.taken.load(Ordering::SeqCst) > 0 || ends.write_u64(at, at + 1).is_err() {
            break;
        }
    }
    assert!(node.taken.load(Ordering::SeqCst) > 0, "nothing was written");
    drop(ends);
    assert!(!node.late.lock().unwrap().is_empty(), "no write was given up with its region");
    assert_eq!(node.released.load(Ordering::SeqCst), 0);
    // Nothing else is written: it is for the sake of that memory alone that the queue pair is polled.
    node.silent.store(false, Ordering::SeqCst);
    wait_for("the memory is released", || node.released.load(Ordering::SeqCst) > 0);
    drop(stays);
    assert_eq!(node.released.load(Ordering::SeqCst), 2);
}
