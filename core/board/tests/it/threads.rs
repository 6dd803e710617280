//! Data threads beside a slow path that frees and allocates all the time: no request sees the bytes of another address
//! space, or bytes that were there before.
//!
//! Quiet is known as the node knows it: each data thread counts the messages that it has finished, and the slow path
//! waits until each has finished one more, or has none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use yonder_board::{Handled, Memory, NodeCore, PhysicalPage, Shell, SlowPath, Upkeep};
use yonder_wire::{AllocateRequest, AtomicOperation, ErrorCode, Header, Kind, MESSAGE_BYTES_MAX, Rights, split};

use crate::world::{Bytes, PAGE, Ring, SOMEWHERE, config};

const PAGES: u32 = 6;
const READERS: usize = 3;
const ROUNDS: usize = if cfg!(miri) { 5 } else { 1000 };
/// An access of so many lingers, and for how long.
const LINGER_EVERY: u64 = 8;
const LINGER_YIELDS: usize = 40;
const OFFSET: u64 = 512;

/// Memory some of whose accesses take long, so that others run meanwhile.
struct Slow {
    bytes: Bytes,
    accesses: AtomicU64,
}

impl Slow {
    fn linger(&self) {
        if self.accesses.fetch_add(1, Ordering::Relaxed).is_multiple_of(LINGER_EVERY) {
            (0..LINGER_YIELDS).for_each(|_| std::thread::yield_now());
        }
    }
}

impl Memory for Slow {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        self.linger();
        self.bytes.read(page, offset, into);
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        self.linger();
        self.bytes.write(page, offset, from);
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        self.bytes.atomic(page, offset, operation)
    }
}

/// Messages that a data thread has finished; odd while it executes one.
#[derive(Default)]
struct Progress(AtomicU64);

impl Progress {
    fn during<R>(&self, execute: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::SeqCst);
        let result = execute();
        self.0.fetch_add(1, Ordering::SeqCst);
        result
    }

    fn wait(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        while seen % 2 == 1 && self.0.load(Ordering::SeqCst) == seen {
            std::thread::yield_now();
        }
    }
}

struct Epochs<'a> {
    memory: &'a Slow,
    threads: &'a [Progress],
}

impl Upkeep for Epochs<'_> {
    fn wait_until_quiet(&mut self) {
        self.threads.iter().for_each(Progress::wait);
    }

    fn zero(&mut self, page: PhysicalPage) {
        self.memory.bytes.page(page).fill(0);
    }
}

/// An address space with one allocation, which may be gone already.
#[derive(Clone, Copy)]
struct Target {
    pid: u32,
    capability: u128,
    address: u64,
}

struct Node {
    board: Arc<NodeCore>,
    memory: Slow,
    ring: Ring,
    threads: [Progress; READERS],
    target: Mutex<Option<Target>>,
    stopped: AtomicBool,
    next_id: AtomicU64,
}

impl Node {
    /// Writes what is the space's alone, and reads it back: it is that, or zeros, or gone.
    fn run_client(&self, thread: usize) -> usize {
        let mut fast = self.board.fast_path();
        let mut reply = vec![0; MESSAGE_BYTES_MAX];
        let mut useful = 0;
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(target) = *self.target.lock().unwrap() else { continue };
            let mine = target.pid.to_le_bytes();
            for (kind, payload) in [(Kind::Write, &mine[..]), (Kind::Read, &[])] {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                let request = Header::request(kind, id, target.address + OFFSET, 4);
                let header = Header { pid: target.pid, capability: target.capability, time: id, ..request };
                let bytes = [&header.seal(payload)[..], payload].concat();
                let message = split(&bytes).unwrap().unwrap();
                let progress = &self.threads[thread];
                let handled = progress.during(|| fast.execute(&message, id, &self.memory, &self.ring, &mut reply));
                let Handled::Reply(length) = handled else { panic!("{handled:?}") };
                let answer = split(&reply[..length]).unwrap().unwrap();
                match answer.header.code {
                    ErrorCode::None if kind == Kind::Read => {
                        assert!(answer.payload == mine || answer.payload == [0; 4], "{:?} in {mine:?}", answer.payload);
                        useful += 1;
                    }
                    ErrorCode::None | ErrorCode::Busy | ErrorCode::OutOfMemory => {}
                    // It is gone, or the whole space is.
                    ErrorCode::BadAddress | ErrorCode::BadCapability => {}
                    code => panic!("{code}"),
                }
            }
        }
        useful
    }

    /// Runs the slow path and then stops the clients, also when it fails.
    fn run(&self, slow: &mut SlowPath) {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&self.stopped);
        self.run_slow_path(slow);
    }

    /// Makes spaces and ends them while they are used; half of the time by freeing, or discarding, what they have.
    fn run_slow_path(&self, slow: &mut SlowPath) {
        let mut upkeep = Epochs { memory: &self.memory, threads: &self.threads };
        for round in 0..ROUNDS {
            let pid = slow.create_space(None, 0, 0).unwrap();
            let mut shell = Shell { memory: &self.memory, pages: &self.ring, upkeep: &mut upkeep };
            let (address, _) = slow.allocate(pid, &AllocateRequest { bytes: PAGE, ..SOMEWHERE }, &mut shell).unwrap();
            let capability = slow.capability(pid, Rights::ReadWrite);
            *self.target.lock().unwrap() = Some(Target { pid: pid.get(), capability, address });
            for _ in 0..round % 5 {
                std::thread::yield_now();
            }
            match round % 4 {
                0 => slow.free(pid, address).unwrap(),
                1 => slow.discard(pid, address, PAGE, &mut shell).unwrap(),
                _ => {}
            }
            slow.destroy_space(pid).unwrap();
            while slow.take_ended().is_some() {}
            while self.ring.0.lock().unwrap().len() < 2
                && let Some(page) = slow.take_free_page(&mut upkeep)
            {
                assert!(self.memory.bytes.page(page).iter().all(|byte| *byte == 0), "a page with old bytes");
                self.ring.0.lock().unwrap().push(page);
            }
        }
    }
}

#[test]
fn no_request_sees_what_is_not_its_own() {
    let (board, mut slow) = NodeCore::new(&config(PAGES));
    let node = Node {
        board,
        memory: Slow { bytes: Bytes::new(PAGES), accesses: AtomicU64::new(0) },
        ring: Ring::default(),
        threads: Default::default(),
        target: Mutex::new(None),
        stopped: AtomicBool::new(false),
        next_id: AtomicU64::new(1),
    };
    std::thread::scope(|scope| {
        let node = &node;
        let readers: Vec<_> = (0..READERS).map(|thread| scope.spawn(move || node.run_client(thread))).collect();
        node.run(&mut slow);
        let useful: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(useful > 0 || cfg!(miri), "no read found its memory");
    });
    assert_eq!(node.board.free_pages(), PAGES);
    let mut upkeep = Epochs { memory: &node.memory, threads: &node.threads };
    let in_ring = node.ring.0.lock().unwrap().len();
    let left = std::iter::from_fn(|| slow.take_free_page(&mut upkeep)).count();
    assert_eq!((in_ring + left) as u32, PAGES, "memory was lost");
}
