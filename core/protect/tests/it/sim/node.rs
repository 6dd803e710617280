//! [`Node`]: a memory node of the simulation, and the messages to it and from it.
//!
//! It executes a request once, however often it arrives, and never after it was aborted. What is for another
//! incarnation of it, or a region that it does not have, it refuses.

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
    /// Not the incarnation that was meant, or no such region.
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
    regions: BTreeMap<u64, Contents>,
    /// What the regions were a while ago.
    old: BTreeMap<u64, Contents>,
    /// Writes that were executed, or are never to be.
    ended: BTreeSet<u64>,
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
    }

    pub(super) fn execute(&mut self, request: &Request, sabotage: Option<Sabotage>) -> Reply {
        let takes_all = sabotage == Some(Sabotage::AnyIncarnation);
        if request.incarnation != self.incarnation && !takes_all {
            return Reply::Refused;
        }
        if takes_all && request.incarnation != self.incarnation {
            self.regions.entry(request.region).or_insert([0; PAGES]);
        }
        let Some(contents) = self.regions.get_mut(&request.region) else { return Reply::Refused };
        match request.call {
            Call::Read => Reply::Content(contents[request.page]),
            Call::Write(content) => {
                if self.ended.insert(request.id) || sabotage == Some(Sabotage::RepeatedWrites) {
                    contents[request.page] = content;
                }
                Reply::Done
            }
            Call::Abort(id) => {
                self.ended.insert(id);
                Reply::Done
            }
        }
    }
}
