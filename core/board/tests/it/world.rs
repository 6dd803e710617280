//! [`World`]: a node on one thread, with memory, a source of pages, a clock, and a client that numbers its requests.

use std::sync::{Arc, Mutex};

use yonder_board::{
    Config, FastPath, Handled, Memory, NUMBERS_PER_PAGE, NodeCore, PIECE_PAGES_MAX, PageSize, PageSource, PhysicalPage,
    Pid, Shell, SlowPath, Source, SpaceLimits, Upkeep,
};
use yonder_wire::{
    AllocateRequest, Allocated, AtomicOperation, Backing, Body, Direction, ErrorCode, Header, Kind, MESSAGE_BYTES_MAX,
    Permission, Rights, split,
};

pub(crate) const PAGE: u64 = 4096;

/// The node's bytes. A page has a lock, which makes an access atomic against all others.
pub(crate) struct Bytes(Vec<Mutex<Vec<u8>>>);

impl Bytes {
    pub(crate) fn new(pages: u32) -> Self {
        Self((0..pages).map(|_| Mutex::new(vec![0; PAGE as usize])).collect())
    }

    pub(crate) fn page(&self, page: PhysicalPage) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0[page.0 as usize].lock().unwrap()
    }
}

impl Memory for Bytes {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.page(page)[offset as usize..][..into.len()]);
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        self.page(page)[offset as usize..][..from.len()].copy_from_slice(from);
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        let mut page = self.page(page);
        let word: &mut [u8; 8] = (&mut page[offset as usize..][..8]).try_into().unwrap();
        let old = u64::from_le_bytes(*word);
        *word = operation.apply(old).to_le_bytes();
        old
    }
}

/// Pages for first writes.
#[derive(Default)]
pub(crate) struct Ring(pub(crate) Mutex<Vec<PhysicalPage>>);

impl PageSource for Ring {
    fn take(&self) -> Option<PhysicalPage> {
        self.0.lock().unwrap().pop()
    }

    fn give_back(&self, page: PhysicalPage) {
        self.0.lock().unwrap().push(page);
    }
}

/// What the slow path asked for, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Quiet,
    Zero(PhysicalPage),
}

/// Upkeep where nothing runs beside the slow path.
pub(crate) struct Alone {
    pub(crate) memory: Arc<Bytes>,
    pub(crate) asked: Vec<Asked>,
}

impl Upkeep for Alone {
    fn wait_until_quiet(&mut self) {
        self.asked.push(Asked::Quiet);
    }

    fn zero(&mut self, page: PhysicalPage) {
        self.asked.push(Asked::Zero(page));
        self.memory.page(page).fill(0);
    }
}

pub(crate) struct World {
    pub(crate) board: Arc<NodeCore>,
    pub(crate) slow: SlowPath,
    pub(crate) fast: FastPath,
    pub(crate) memory: Arc<Bytes>,
    pub(crate) ring: Ring,
    pub(crate) upkeep: Alone,
    pub(crate) now: u64,
    /// Where requests come from.
    pub(crate) source: Source,
    next_id: u64,
}

/// An address space as its owner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    pub(crate) pid: u32,
    pub(crate) capability: u128,
}

pub(crate) const SOMEWHERE: AllocateRequest =
    AllocateRequest { bytes: PAGE, permission: Permission::ReadWrite, backing: Backing::OnDemand, from: 0, to: 0 };

pub(crate) fn config(pages: u32) -> Config {
    let page_size = PageSize::new(PAGE).unwrap();
    let (key, piece_pages_max) = ((*b"only this node's").into(), PIECE_PAGES_MAX);
    Config {
        pages,
        page_size,
        seed: 1,
        key,
        recent_max: 4096,
        spaces: SpaceLimits::of(64),
        piece_pages_max,
        lease_step_max: u64::MAX,
        tenants: yonder_board::TenantLimits::default(),
    }
}

impl World {
    pub(crate) fn new(config: &Config) -> Self {
        Self::of(config, NodeCore::new(config))
    }

    /// A node with regions of `bytes`.
    pub(crate) fn with_regions(config: &Config, bytes: u64) -> Self {
        Self::of(config, NodeCore::with_regions(config, bytes))
    }

    fn of(config: &Config, (board, slow): (Arc<NodeCore>, SlowPath)) -> Self {
        let memory = Arc::new(Bytes::new(config.pages * NUMBERS_PER_PAGE));
        let upkeep = Alone { memory: Arc::clone(&memory), asked: Vec::new() };
        let fast = board.fast_path();
        Self {
            fast,
            slow,
            board,
            memory,
            ring: Ring::default(),
            upkeep,
            now: 1000,
            source: Source(1),
            next_id: 1 << 40,
        }
    }

    /// A node whose ring has `ready` pages.
    pub(crate) fn with_ring(pages: u32, ready: usize) -> Self {
        let mut world = Self::new(&config(pages));
        world.refill(ready);
        world
    }

    /// Fills the ring up to `ready` pages.
    pub(crate) fn refill(&mut self, ready: usize) {
        while self.ring.0.lock().unwrap().len() < ready
            && let Some(page) = self.slow.take_free_page(&mut self.upkeep)
        {
            self.ring.give_back(page);
        }
    }

    /// A request in an address space, with an id of its own.
    pub(crate) fn request(&mut self, kind: Kind, space: Space, address: u64, length: usize) -> Header {
        self.next_id += 1;
        let header = Header::request(kind, self.next_id, address, length as u32);
        Header { pid: space.pid, capability: space.capability, time: self.now, ..header }
    }

    /// Another attempt of a request.
    pub(crate) fn retry(&mut self, first: &Header) -> Header {
        self.next_id += 1;
        Header { request_id: self.next_id, ..*first }
    }

    /// Delivers a message, and returns the answer.
    pub(crate) fn send(&mut self, header: &Header, payload: &[u8]) -> (Header, Vec<u8>) {
        self.deliver(&[&header.seal(payload)[..], payload].concat()).expect("it is a request")
    }

    /// Delivers bytes, as a shell would; the answer, if there is one.
    pub(crate) fn deliver(&mut self, bytes: &[u8]) -> Option<(Header, Vec<u8>)> {
        self.deliver_with_room(bytes, MESSAGE_BYTES_MAX)
    }

    /// The same, with `room` bytes for the answer.
    pub(crate) fn deliver_with_room(&mut self, bytes: &[u8], room: usize) -> Option<(Header, Vec<u8>)> {
        let message = split(bytes).ok()??;
        let mut reply = vec![0xee; room];
        self.now += 1;
        let mut handled = self.fast.execute(&message, self.now, &*self.memory, &self.ring, &mut reply);
        if handled == Handled::Slow {
            let mut shell = Shell { memory: &*self.memory, pages: &self.ring, upkeep: &mut self.upkeep };
            handled = self.slow.execute(&message, self.source, self.now, &mut shell, &mut reply);
        }
        let Handled::Reply(bytes) = handled else { return None };
        let answer = split(&reply[..bytes]).unwrap().expect("a whole answer");
        assert_eq!((answer.bytes(), answer.verify()), (bytes, Ok(())));
        assert_eq!((answer.header.direction, answer.header.time), (Direction::Answer, self.now));
        assert_eq!((answer.header.kind, answer.header.request_id), (message.header.kind, message.header.request_id));
        Some((answer.header, answer.payload.to_vec()))
    }

    /// Sends a new request, and returns how it was answered.
    pub(crate) fn ask(
        &mut self,
        kind: Kind,
        space: Space,
        address: u64,
        length: usize,
        payload: &[u8],
    ) -> Result<(Header, Vec<u8>), ErrorCode> {
        let header = self.request(kind, space, address, length);
        outcome(self.send(&header, payload))
    }

    /// A piece of the work that was begun; whether there is more.
    pub(crate) fn work(&mut self) -> bool {
        let mut shell = Shell { memory: &*self.memory, pages: &self.ring, upkeep: &mut self.upkeep };
        self.slow.work(self.now, &mut shell)
    }

    pub(crate) fn create(&mut self) -> Space {
        let (answer, _) = self.ask(Kind::CreateSpace, Space { pid: 0, capability: 0 }, 0, 0, &[]).unwrap();
        Space { pid: answer.pid, capability: answer.capability }
    }

    /// An address space as a controller has one made.
    pub(crate) fn create_named(&mut self, pid: Pid, lease_ms: u32) -> Space {
        self.slow.create_space(Some(pid), lease_ms, self.now).unwrap();
        Space { pid: pid.get(), capability: self.slow.capability(pid, Rights::Owner) }
    }

    pub(crate) fn grant(&mut self, space: Space, rights: Rights) -> Space {
        let (answer, _) = self.ask(Kind::Grant, space, 0, rights as usize, &[]).unwrap();
        Space { capability: answer.capability, ..space }
    }

    pub(crate) fn allocate(&mut self, space: Space, request: &AllocateRequest) -> Result<(u64, Allocated), ErrorCode> {
        let mut payload = [0; AllocateRequest::BYTES];
        request.write_to(&mut payload);
        let (answer, payload) = self.ask(Kind::Allocate, space, 0, payload.len(), &payload)?;
        Ok((answer.address, Allocated::from_bytes(&payload).unwrap()))
    }

    pub(crate) fn write(&mut self, space: Space, address: u64, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.ask(Kind::Write, space, address, bytes.len(), bytes).map(|_| ())
    }

    pub(crate) fn read(&mut self, space: Space, address: u64, bytes: usize) -> Result<Vec<u8>, ErrorCode> {
        self.ask(Kind::Read, space, address, bytes, &[]).map(|(_, payload)| payload)
    }

    pub(crate) fn atomic(&mut self, space: Space, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        let mut payload = [0; AtomicOperation::BYTES];
        operation.write_to(&mut payload);
        self.ask(Kind::Atomic, space, address, payload.len(), &payload).map(|(answer, _)| answer.address)
    }

    pub(crate) fn free(&mut self, space: Space, address: u64) -> Result<(), ErrorCode> {
        self.ask(Kind::Free, space, address, 0, &[]).map(|_| ())
    }

    pub(crate) fn discard(&mut self, space: Space, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.ask(Kind::Discard, space, address, bytes as usize, &[]).map(|_| ())
    }

    pub(crate) fn destroy(&mut self, space: Space) -> Result<(), ErrorCode> {
        self.ask(Kind::DestroySpace, space, 0, 0, &[]).map(|_| ())
    }
}

/// How a request was answered.
pub(crate) fn outcome((header, payload): (Header, Vec<u8>)) -> Result<(Header, Vec<u8>), ErrorCode> {
    if header.is_refusal() { Err(header.code) } else { Ok((header, payload)) }
}
