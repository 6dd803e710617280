//! Searching the tree: [`Tree::get`], in three [`Way`]s that find the same.

use crate::{AppError, Meter};
use yonder_offload::Comparison;
use yonder_offload::chase::{self, Answer, Lists, Order, Outcome, Request, STEPS_MAX, Shape, Take};

use crate::tree::handle::{Tree, check_key};
use crate::tree::layout::{CHILD, CHILD_AND_VALUE, NEXT, Node, SYMBOL};

/// How a search goes along pointers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// The client reads each node: one round trip a node.
    Reads,
    /// The node chases pointers along one list: one round trip a level, as in the paper.
    Levels,
    /// The node chases pointers down all levels: one round trip.
    Whole,
}

/// Where a search has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At the node of the whole key.
    Node(Found),
    /// At the end of a list: the first `level` bytes of the key are there, the next one is not. `last` is the last node
    /// of the list, or 0 if the list is empty.
    End { level: usize, last: u64 },
}

/// A node that was found, and what leads on from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) address: u64,
    /// The first node of the list below, or 0.
    pub(crate) child: u64,
    /// The value plus one, or 0.
    pub(crate) value: u64,
}

impl Way {
    /// All of them, slowest first.
    pub const ALL: [Self; 3] = [Self::Reads, Self::Levels, Self::Whole];

    /// What people name it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Levels => "levels",
            Self::Whole => "whole",
        }
    }
}

impl Tree {
    /// The value of a key, or `None` if it was never inserted.
    pub fn get(&mut self, key: &[u8], way: Way, meter: &mut Meter) -> Result<Option<u64>, AppError> {
        check_key(key)?;
        match self.find(key, way, meter)? {
            Place::Node(found) => Ok(found.value.checked_sub(1)),
            Place::End { .. } => Ok(None),
        }
    }

    /// Where a key of one byte or more is, or would be.
    pub(crate) fn find(&mut self, key: &[u8], way: Way, meter: &mut Meter) -> Result<Place, AppError> {
        let root = self.root(meter)?;
        match way {
            Way::Reads => descend(root, key, |list, symbol| read_along(list, symbol[0], meter)),
            Way::Levels => descend(root, key, |list, symbol| chase(list, symbol, meter)),
            Way::Whole => chase(root, key, meter),
        }
    }
}

/// Goes down level by level, with `search` for one list and one byte.
fn descend(
    root: u64,
    key: &[u8],
    mut search: impl FnMut(u64, &[u8]) -> Result<Place, AppError>,
) -> Result<Place, AppError> {
    let mut found = Found { address: 0, child: root, value: 0 };
    for (level, symbol) in key.chunks(1).enumerate() {
        match search(found.child, symbol)? {
            Place::Node(next) => found = next,
            Place::End { last, .. } => return Ok(Place::End { level, last }),
        }
    }
    Ok(Place::Node(found))
}

/// Reads the nodes of one list.
fn read_along(list: u64, symbol: u8, meter: &mut Meter) -> Result<Place, AppError> {
    let (mut address, mut last) = (list, 0);
    while address != 0 {
        let Node { next, child, value, symbol: found } = Node::from_words(meter.read_words(address)?);
        if found == symbol {
            return Ok(Place::Node(Found { address, child, value }));
        }
        (address, last) = (next, address);
    }
    Ok(Place::End { level: 0, last })
}

/// Lets the node go down from `list`, one level for each byte of the key.
fn chase(list: u64, key: &[u8], meter: &mut Meter) -> Result<Place, AppError> {
    let (mut start, mut level) = (list, 0);
    loop {
        if start == 0 {
            // There is nobody to ask about what is not there.
            return Ok(Place::End { level, last: 0 });
        }
        let answer = meter.call(chase::NUMBER, &request(start, &key[level..]).encode())?;
        let Answer { outcome, level: down, node, previous, value, .. } = Answer::decode(&answer)?;
        level += down as usize;
        match outcome {
            Outcome::Found => {
                let (words, _) = value.as_chunks();
                let [child, value] = words else { return Err(AppError::WrongAnswer("the pointer chase")) };
                let [child, value] = [child, value].map(|word| u64::from_le_bytes(*word));
                return Ok(Place::Node(Found { address: node, child, value }));
            }
            Outcome::Ended => return Ok(Place::End { level, last: previous }),
            Outcome::StepsSpent => start = node,
        }
        if level >= key.len() {
            return Err(AppError::WrongAnswer("the pointer chase"));
        }
    }
}

fn request(start: u64, key: &[u8]) -> Request<'_> {
    let lists = Lists {
        next_offset: NEXT as u32,
        child_offset: CHILD as u32,
        key_offset: SYMBOL as u32,
        levels: key.len() as u32,
        order: Order::Bytes,
        comparison: Comparison::Equal,
        take: Take::Match,
        mask: &[],
    };
    Request { start, shape: Shape::Lists(lists), key, value: CHILD_AND_VALUE, steps_max: STEPS_MAX }
}
