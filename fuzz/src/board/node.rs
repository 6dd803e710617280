//! [`Node`]: the real board on one thread, with memory, a source of pages and a clock. It checks every answer.

use std::cell::Cell;
use std::sync::Arc;

use yonder_board::{
    CallEffect, Config, ExtendPath, FastPath, Handled, NodeCore, PIECE_PAGES_MAX, PageSize, Path, Shell, SlowPath,
    Source, SpaceLimits, path_of,
};
use yonder_simulation::{Janitor, Pages, encoded};
use yonder_wire::{
    AllocateRequest, Backing, Direction, ErrorCode, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, Message, Permission,
    split,
};

pub(super) const PAGE: u64 = 4096;
/// Pages of the node's memory.
pub(super) const PAGES: u32 = 24;
/// Pages of a region.
pub(super) const REGION_PAGES: u64 = 16;
/// Pages ready to be written, at most.
const RING_PAGES: usize = 6;

/// An address space, and a capability for it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Credential {
    pub(super) pid: u32,
    pub(super) capability: u128,
}

/// A request for memory that may be written, in bytes.
pub(super) fn allocation(bytes: u64) -> Vec<u8> {
    let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
    encoded(&AllocateRequest { bytes, permission, backing, from: 0, to: 0 })
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
}

impl Answer {
    pub(super) fn result(&self) -> Result<(), ErrorCode> {
        if self.header.is_refusal() { Err(self.header.code) } else { Ok(()) }
    }
}

/// A memory node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) board: Arc<NodeCore>,
    pub(super) slow: SlowPath,
    fast: FastPath,
    extend: ExtendPath,
    pub(super) memory: Pages,
    now: Cell<u64>,
    /// Room for an answer.
    reply: Vec<u8>,
}

impl Node {
    /// A node with a key of its own.
    pub(super) fn new(key: u128) -> Self {
        let config = Config {
            pages: PAGES,
            page_size: PageSize::new(PAGE).expect("a page size"),
            seed: 1,
            key: key.to_le_bytes().into(),
            recent_max: 70,
            spaces: SpaceLimits::of(64),
            piece_pages_max: PIECE_PAGES_MAX,
            lease_step_max: u64::MAX,
            tenants: yonder_board::TenantLimits::default(),
        };
        let (board, slow) = NodeCore::with_regions(&config, REGION_PAGES * PAGE);
        let (memory, now, reply) = (Pages::new(RING_PAGES), Cell::new(1000), vec![0; MESSAGE_BYTES_MAX]);
        let (fast, extend) = (board.fast_path(), board.extend_path());
        let mut node = Self { board, slow, fast, extend, memory, now, reply };
        node.refill(RING_PAGES);
        node
    }

    /// The node's clock. It goes on whenever somebody looks.
    pub(super) fn now(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }

    pub(super) fn pass(&self, nanos: u64) {
        self.now.set(self.now.get() + nanos);
    }

    /// Fills the ring up to so many pages.
    pub(super) fn refill(&mut self, pages: usize) {
        while self.memory.ready() < pages.min(RING_PAGES)
            && let Some(page) = self.slow.take_free_page(&mut Janitor(&self.memory))
        {
            assert!(self.memory.is_zero(page), "a page is ready that is not zero");
            self.memory.make_ready(page);
        }
    }

    /// The slow path, with what it needs of the shell.
    pub(super) fn slow_path<T>(
        &mut self,
        work: impl FnOnce(&mut SlowPath, &mut Shell<'_, Pages, Pages, Janitor<'_>>) -> T,
    ) -> T {
        self.memory.with_shell(|shell| work(&mut self.slow, shell))
    }

    /// A request with this name, sent now.
    pub(super) fn request(&self, by: Credential, kind: Kind, id: u64, address: u64, length: u32) -> Header {
        let Credential { pid, capability } = by;
        Header { pid, capability, time: self.now(), ..Header::request(kind, id, address, length) }
    }

    /// Sends a request, which is answered.
    pub(super) fn ask(&mut self, header: &Header, payload: &[u8]) -> Answer {
        self.send(header, payload).expect("a request is answered")
    }

    /// Seals a message and delivers it.
    pub(super) fn send(&mut self, header: &Header, payload: &[u8]) -> Option<Answer> {
        self.deliver(&[&header.seal(payload)[..], payload].concat(), MESSAGE_BYTES_MAX)
    }

    /// Delivers bytes as they arrive, with so many bytes of room for the answer.
    pub(super) fn deliver(&mut self, bytes: &[u8], room: usize) -> Option<Answer> {
        let message = split(bytes).ok()??;
        let now = self.now();
        let mut reply = std::mem::take(&mut self.reply);
        let handled = self.handle(&message, now, &mut reply[..room.max(HEADER_BYTES)]);
        self.reply = reply;
        while self.slow_path(|slow, shell| slow.work(now, shell)) {}
        while self.slow.take_created().is_some() || self.slow.take_ended().is_some() {}
        assert!(self.board.free_pages() <= PAGES);
        let Handled::Reply(length) = handled else {
            assert_eq!(handled, Handled::Dropped);
            return None;
        };
        assert!(length <= room.max(HEADER_BYTES));
        Some(check_answer(&message, now, &self.reply[..length]))
    }

    fn handle(&mut self, message: &Message<'_>, now: u64, reply: &mut [u8]) -> Handled {
        let handled = self.fast.execute(message, now, &self.memory, &self.memory, reply);
        if handled != Handled::Slow {
            return handled;
        }
        match path_of(&message.header) {
            Path::Extend => {
                let slow = &self.slow;
                let handled = self.extend.admit(message, now, |pid| slow.spaces().contains(&pid), reply);
                if handled == Handled::Slow { self.call(message, now, reply) } else { handled }
            }
            _ => self.slow_path(|slow, shell| slow.execute(message, Source(1), now, shell, reply)),
        }
    }

    /// An offload that answers with its arguments. Its number says whether it may be called twice.
    fn call(&mut self, message: &Message<'_>, now: u64, reply: &mut [u8]) -> Handled {
        assert_eq!(message.verify(), Ok(()), "what arrived corrupted is not executed");
        let effect = if message.header.address.is_multiple_of(2) { CallEffect::Once } else { CallEffect::Repeatable };
        let result = if message.header.address < 4 { Ok(message.payload) } else { Err(ErrorCode::NoOffload) };
        self.extend.answer(message, now, effect, result, reply)
    }
}

/// An answer is one whole message, to this request.
fn check_answer(message: &Message<'_>, now: u64, reply: &[u8]) -> Answer {
    let answer = split(reply).expect("an answer is a message").expect("it is whole");
    assert_eq!((answer.bytes(), answer.verify()), (reply.len(), Ok(())));
    let (asked, header) = (&message.header, answer.header);
    assert_eq!((header.direction, header.kind, header.time), (Direction::Answer, asked.kind, now));
    assert_eq!((header.request_id, header.first_id), (asked.request_id, asked.first_id));
    assert_eq!(asked.direction, Direction::Request, "only requests are answered");
    if message.verify().is_err() {
        assert_eq!(header.code, ErrorCode::Corrupt, "what arrived corrupted is refused");
    }
    Answer { header, payload: answer.payload.to_vec() }
}
