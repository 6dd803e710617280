//! [`Errand`]: what tenants ask the slow and the extend path of a node for, one after the other.

use yonder_client::{Operation, Outcome};
use yonder_fabric::lane::{CallError, Lane, call};
use yonder_offload::Comparison;
use yonder_offload::chase::{self, Field, Lists, Order, Request, Shape, Take};
use yonder_wire::Kind;

use super::attack::operation;
use super::{Any, Memory};
use crate::BenchError;

/// Something that is asked for again and again.
pub(super) enum Errand {
    /// An address space, and its end.
    Space,
    /// A walk along a list that leads nowhere.
    Walk {
        /// The call.
        call: Operation<'static>,
        /// Its arguments.
        arguments: Vec<u8>,
    },
}

impl Errand {
    /// Walks of `steps` steps through memory whose first word is written now.
    pub(super) fn walk(lane: &mut Lane, memory: Memory, steps: u32) -> Result<Self, BenchError> {
        let lists = Lists {
            next_offset: 0,
            child_offset: 8,
            key_offset: 16,
            levels: 1,
            order: Order::Bytes,
            comparison: Comparison::Equal,
            take: Take::Match,
            mask: &[],
        };
        let request = Request {
            start: memory.address,
            shape: Shape::Lists(lists),
            key: &[1; 8],
            value: Field::default(),
            steps_max: steps,
        };
        // The first node leads to itself.
        let word = memory.address.to_le_bytes();
        let write = operation(Kind::Write, memory, memory.address, word.len() as u64);
        let mut first = Any::default();
        first.0[..word.len()].copy_from_slice(&word);
        let deadline = yonder_clock::now() + 5_000_000_000;
        let failed = || BenchError::Settings("the node does not write the list that is to be walked along".to_owned());
        lane.submit(&Operation { deadline, ..write }, yonder_clock::now()).map_err(|_| failed())?;
        let written = loop {
            match lane.completion() {
                Some(completion) => break completion.outcome,
                None => _ = lane.poll(yonder_clock::now(), &mut first),
            }
        };
        if written != Outcome::Done {
            return Err(failed());
        }
        let arguments = request.encode();
        Ok(Self::Walk { call: operation(Kind::Call, memory, chase::NUMBER, arguments.len() as u64), arguments })
    }

    /// Has it done once: the requests that this took.
    pub(super) fn run(&self, lane: &mut Lane) -> Result<u64, CallError> {
        match self {
            Self::Space => {
                let nothing = Memory { pid: 0, capability: 0, address: 0 };
                let made = call(lane, &operation(Kind::CreateSpace, nothing, 0, 0), &[])?.header;
                let made = Memory { pid: made.pid, capability: made.capability, address: 0 };
                call(lane, &operation(Kind::DestroySpace, made, 0, 0), &[])?;
                Ok(2)
            }
            Self::Walk { call: walk, arguments } => call(lane, walk, arguments).map(|_| 1),
        }
    }
}
