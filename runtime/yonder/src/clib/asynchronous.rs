//! Asynchronous operations of a [`Thread`]: how they begin, and how they follow what has moved to another node.

use yonder_client::Outcome;
use yonder_wire::{AllocateRequest, Body, ErrorCode, Kind};

use super::flows::Route;
use super::process::Backend;
use super::table::{Asked, Content, Index, Slice};
use super::thread::MOVES_MAX;
use super::{Buffer, ClibError, Pending, Thread};

/// Most asynchronous operations that wait to be sent with others. The first goes at once, so that the node has work.
const UNSENT_MAX: usize = 16;

impl<B: Buffer> Thread<B> {
    /// Begins to fill `buffer` with the bytes at `address`. It may be sent with the next call only.
    pub fn rread_async(&mut self, address: u64, buffer: B) -> Result<Pending<B>, ClibError> {
        self.begin(Kind::Read, address, Content::Buffer(buffer)).map(Pending::new)
    }

    /// Begins to copy `buffer` to `address`. It may be sent with the next call only.
    pub fn rwrite_async(&mut self, address: u64, buffer: B) -> Result<Pending<B>, ClibError> {
        self.begin(Kind::Write, address, Content::Buffer(buffer)).map(Pending::new)
    }

    /// Refuses what would have no place in the table.
    pub(super) fn check_room(&self) -> Result<(), ClibError> {
        if self.table.is_full() { Err(ClibError::TooManyPending(self.table.capacity())) } else { Ok(()) }
    }

    /// Begins an operation of `kind` on the memory at `address`, or near it.
    pub(super) fn begin(&mut self, kind: Kind, address: u64, content: Content<B>) -> Result<Index, ClibError> {
        self.check_room()?;
        let route = self.flows.route(address)?;
        match content {
            // It lies on two nodes, which is rare: it is done at once.
            Content::Buffer(buffer) if buffer.len() as u64 > route.end - address => {
                self.across_nodes(kind, address, buffer)
            }
            content => self.start(&route, kind, address, content),
        }
    }

    /// Notes an operation that has ended already. One whose outcome is unknown has its result like any other.
    pub(super) fn ended(&mut self, content: Content<B>, done: Result<(), ClibError>) -> Result<Index, ClibError> {
        let outcome = match done {
            Ok(()) => Outcome::Done,
            Err(ClibError::TimedOut) => Outcome::TimedOut,
            Err(error) => return Err(error),
        };
        self.table.insert_done(content, outcome).map_err(|_| ClibError::TooManyPending(self.table.capacity()))
    }

    fn start(&mut self, route: &Route, kind: Kind, address: u64, content: Content<B>) -> Result<Index, ClibError> {
        let now = yonder_clock::now();
        self.begun += 1;
        let asked = Asked { kind, address, node: route.node, order: self.begun, moves: 0 };
        let mut body = [0; AllocateRequest::BYTES];
        let request = content.request(&asked, &mut body);
        let Ok(index) = self.table.insert(content, asked) else {
            return Err(ClibError::TooManyPending(self.table.capacity()));
        };
        match self.submit(route, &request, u64::from(index.slot), now) {
            Ok(id) => {
                self.table.submitted(index.slot, id, route.node);
                self.unsent += 1;
                if self.unsent == UNSENT_MAX || self.flows.outstanding() == 1 {
                    self.poll(now, Slice::From(&[]), &mut None);
                }
                Ok(index)
            }
            Err(error) => {
                self.table.withdraw(index);
                Err(error)
            }
        }
    }

    /// An operation with a buffer that lies on two nodes.
    fn across_nodes(&mut self, kind: Kind, address: u64, mut buffer: B) -> Result<Index, ClibError> {
        let mut bytes = vec![0; buffer.len()];
        let done = if kind == Kind::Read {
            let read = self.rread(address, &mut bytes);
            read.map(|()| buffer.copy_in(0, &bytes))
        } else {
            buffer.copy_out(0, &mut bytes);
            self.rwrite(address, &bytes)
        };
        self.ended(Content::Buffer(buffer), done)
    }

    /// Asks for operations again whose addresses have moved, in the order in which they were called. Everything else
    /// that is under way ends first, so that nothing that was called later comes before them.
    pub(super) fn follow(&mut self, mut slice: Slice<'_>, ended: &mut Option<Outcome>) {
        while self.flows.outstanding() > 0 {
            self.flows.wait();
            self.poll(yonder_clock::now(), slice.reborrow(), ended);
        }
        let mut moved = std::mem::take(&mut self.moved);
        moved.sort_unstable_by_key(|(slot, _)| self.table.asked(*slot).0.order);
        for (slot, code) in moved {
            if let Err(outcome) = self.ask_again(slot, code) {
                self.table.end(slot, outcome);
            }
        }
    }

    /// Asks for an asynchronous operation at the node that has its address now, or for an allocation where there is
    /// room; or says how it has ended.
    fn ask_again(&mut self, slot: u32, code: ErrorCode) -> Result<(), Outcome> {
        let moves = self.table.count_move(slot);
        let asked = self.table.asked(slot).0;
        let node = asked.node.expect("only an address space of several nodes moves");
        let unknown = |_| Outcome::TimedOut;
        if moves > MOVES_MAX {
            return Err(Outcome::Refused(code));
        }
        if !self.has_moved(asked.address, node, code, moves).map_err(unknown)? {
            self.place_again(slot, code)?;
        }
        let mut body = [0; AllocateRequest::BYTES];
        let (asked, content) = self.table.asked(slot);
        let request = content.request(asked, &mut body);
        let route = self.flows.route(request.near).map_err(unknown)?;
        let id = self.submit(&route, &request, u64::from(slot), yonder_clock::now()).map_err(unknown)?;
        self.table.submitted(slot, id, route.node);
        Ok(())
    }

    /// Chooses another region for an allocation that was refused with `code` for want of room. What was refused for
    /// another reason, or has no other region, stays refused.
    fn place_again(&mut self, slot: u32, code: ErrorCode) -> Result<(), Outcome> {
        let refused = Outcome::Refused(code);
        let Backend::Cluster(cluster) = &self.process.place else { return Err(refused) };
        let Some((asked, allocation)) = self.table.allocation(slot) else { return Err(refused) };
        match allocation.place_again(cluster, code) {
            Ok(from) => asked.address = from,
            Err(ClibError::OutOfMemory) => return Err(Outcome::Refused(ErrorCode::OutOfMemory)),
            Err(_) => return Err(refused),
        }
        Ok(())
    }
}
