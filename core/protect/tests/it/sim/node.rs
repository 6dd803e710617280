//! [`Node`]: a memory node of the simulation, and the messages to it and from it.
//!
//! It executes a request once, however often it arrives, and never after it was aborted. What is for another
//! incarnation of it, or a region that it does not have, it refuses. While a region moves off it, nothing of it is
//! read or written, and when one comes back what was sent before that is refused.

use std::collections::{BTreeMap, BTreeSet};

use super::{PAGES, Sabotage};

/// A region of a node: what each page contains.
pub(super) type Contents = [u64; PAGES];

/// What is asked of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Read,
    Write(u64),
    /// Never execute the write with this number.
    Abort(u64),
}

/// A message to a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The operation's number: the same in each repetition.
    pub(super) id: u64,
    /// When it was sent first.
    pub(super) sent: u64,
    pub(super) pair: usize,
    pub(super) node: usize,
    pub(super) incarnation: u32,
    pub(super) region: u64,
    pub(super) page: usize,
    pub(super) call: Call,
}

/// How a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Content(u64),
    Done,
    /// The region moves.
    Busy,
    /// No such region.
    Moved,
    /// Not the incarnation that was meant.
    Refused,
}

/// A message from a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) pair: usize,
    pub(super) reply: Reply,
}

/// A memory node.
#[derive(Default)]
pub(super) struct Node {
    pub(super) incarnation: u32,
    pub(super) is_down: bool,
    /// It never comes back.
    pub(super) is_gone: bool,
    regions: BTreeMap<u64, Contents>,
    /// What the regions were a while ago.
    old: BTreeMap<u64, Contents>,
    /// Regions that move.
    closed: BTreeSet<u64>,
    /// When regions came, that were here before or not.
    came: BTreeMap<u64, u64>,
    /// Writes that were executed, or are never to be: how they were answered.
    ended: BTreeMap<u64, Reply>,
}

impl Node {
    pub(super) fn allocate(&mut self, region: u64) {
        self.regions.insert(region, [0; PAGES]);
    }

    pub(super) fn remember(&mut self) {
        self.old = self.regions.clone();
    }

    pub(super) fn crash(&mut self) {
        self.is_down = true;
    }

    /// It is there again: with nothing, or with what it had a while ago.
    pub(super) fn restart(&mut self, has_old: bool) {
        self.is_down = false;
        self.incarnation += 1;
        self.regions = if has_old { self.old.clone() } else { BTreeMap::new() };
        self.ended.clear();
        self.closed.clear();
    }

    /// A region moves off it. What it contains from now on.
    pub(super) fn close(&mut self, region: u64) -> Contents {
        self.closed.insert(region);
        self.regions[&region]
    }

    /// A region moves no more.
    pub(super) fn open(&mut self, region: u64) {
        self.closed.remove(&region);
    }

    /// A region is elsewhere now.
    pub(super) fn hand_over(&mut self, region: u64, sabotage: Option<Sabotage>) {
        self.open(region);
        if sabotage != Some(Sabotage::MovedIsServed) {
            self.regions.remove(&region);
        }
    }

    /// A region has moved here.
    pub(super) fn take_over(&mut self, region: u64, contents: Contents, now: u64) {
        self.regions.insert(region, contents);
        self.came.insert(region, now);
    }

    pub(super) fn execute(&mut self, request: &Request, sabotage: Option<Sabotage>) -> Reply {
        let takes_all = sabotage == Some(Sabotage::AnyIncarnation);
        if request.incarnation != self.incarnation && !takes_all {
            return Reply::Refused;
        }
        if takes_all && request.incarnation != self.incarnation {
            self.regions.entry(request.region).or_insert([0; PAGES]);
        }
        match request.call {
            Call::Read => match self.open_region(request.region, sabotage) {
                Ok(contents) => Reply::Content(contents[request.page]),
                Err(reply) => reply,
            },
            Call::Write(content) => self.write(request, content, sabotage),
            Call::Abort(id) => {
                self.ended.entry(id).or_insert(Reply::Done);
                Reply::Done
            }
        }
    }

    fn write(&mut self, request: &Request, content: u64, sabotage: Option<Sabotage>) -> Reply {
        let ended = self.ended.get(&request.id).filter(|_| sabotage != Some(Sabotage::RepeatedWrites));
        if let Some(reply) = ended {
            return *reply;
        }
        let came = self.came.get(&request.region).copied().unwrap_or(0);
        let is_of_before = request.sent < came && sabotage != Some(Sabotage::NothingIsTooOld);
        let reply = match self.open_region(request.region, sabotage) {
            Ok(_) if is_of_before => Reply::Moved,
            Ok(contents) => {
                contents[request.page] = content;
                Reply::Done
            }
            // That passes.
            Err(Reply::Busy) => return Reply::Busy,
            Err(reply) => reply,
        };
        self.ended.insert(request.id, reply);
        reply
    }

    /// A region that can be read and written.
    fn open_region(&mut self, region: u64, sabotage: Option<Sabotage>) -> Result<&mut Contents, Reply> {
        if self.closed.contains(&region) && sabotage != Some(Sabotage::OpenWhileMoving) {
            return Err(Reply::Busy);
        }
        self.regions.get_mut(&region).ok_or(Reply::Moved)
    }
}
