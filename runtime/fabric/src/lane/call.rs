//! [`call`]: one operation, waited for.

use std::time::Duration;

use yonder_client::{Operation, Outcome};
use yonder_units::{Narrow, saturating_nanos};
use yonder_wire::{ErrorCode, Header};

use super::{Condition, Data, Lane};

/// Longest time that an operation may take.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest time that a lane may be down while an operation is waited for.
const DOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// What a node answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The header of the answer.
    pub header: Header,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Why an operation was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The node refused it.
    #[error("{0}")]
    Refused(ErrorCode),
    /// No answer came in time: whether the node has done it, or will, is not known yet. It is given up at the node too,
    /// if it can be reached again; a later call that touches the same memory is sent when the node has confirmed that.
    #[error("it does not answer")]
    TimedOut,
    /// The node has lost this client's memory.
    #[error(
        "the node was restarted, this client was away for too long, or its identity was revoked: its far memory is lost"
    )]
    Lost,
}

/// The answer that is waited for, and the arguments of the operation.
struct Waiting<'a> {
    arguments: &'a [u8],
    answer: Option<Answer>,
}

impl Data for Waiting<'_> {
    fn copy_out(&mut self, _token: u64, offset: u64, into: &mut [u8]) {
        let offset = offset.narrow_usize();
        into.copy_from_slice(&self.arguments[offset..offset + into.len()]);
    }

    fn copy_in(&mut self, _token: u64, _offset: u64, _bytes: &[u8]) {
        unreachable!("no read was submitted");
    }

    fn answer(&mut self, _token: u64, header: &Header, payload: &[u8]) {
        self.answer = Some(Answer { header: *header, payload: payload.to_vec() });
    }
}

/// Performs an operation that is neither read, write nor atomic on a lane without others, and waits for its answer.
/// `arguments` are what it carries if its body is empty. Its deadline is set here.
pub fn call(lane: &mut Lane, operation: &Operation<'_>, arguments: &[u8]) -> Result<Answer, CallError> {
    assert_eq!(lane.outstanding(), 0, "a lane that is used for calls has one at a time");
    let start = yonder_clock::now();
    let deadline = start + saturating_nanos(CALL_TIME_MAX);
    let mut waiting = Waiting { arguments, answer: None };
    let (mut id, mut down_since) = (None, None);
    loop {
        let now = yonder_clock::now();
        if id.is_none() {
            // All operations of the lane may be waiting for their aborts to be answered: it goes on with them
            // meanwhile.
            id = lane.submit(&Operation { deadline, ..*operation }, now).ok();
        }
        let condition = lane.poll(now, &mut waiting);
        if let Some(completion) = lane.completion() {
            let answer = waiting.answer;
            return match completion.outcome {
                Outcome::Done | Outcome::Old(_) => Ok(answer.expect("an operation that is done was answered")),
                Outcome::Refused(code) => Err(CallError::Refused(code)),
                Outcome::TimedOut => Err(CallError::TimedOut),
                Outcome::Lost => Err(CallError::Lost),
            };
        }
        down_since = match condition {
            Condition::Up => None,
            Condition::Down => down_since.or(Some(now)),
        };
        if down_since.is_some_and(|since| now - since >= saturating_nanos(DOWN_TIME_MAX)) {
            if let Some(id) = id {
                lane.cancel(id);
            }
            return Err(CallError::TimedOut);
        }
        if id.is_none() && now >= deadline {
            return Err(CallError::TimedOut);
        }
        lane.wait(now, CALL_TIME_MAX);
    }
}

/// Waits until nothing that was given up on a lane without other operations may change `bytes` at `address` any more.
pub fn await_aborts(lane: &mut Lane, pid: u32, address: u64, bytes: u64) -> Result<(), CallError> {
    let start = yonder_clock::now();
    let mut nothing = Waiting { arguments: &[], answer: None };
    while lane.may_still_change(pid, address, bytes) {
        let now = yonder_clock::now();
        if now - start >= saturating_nanos(CALL_TIME_MAX) {
            return Err(CallError::TimedOut);
        }
        lane.poll(now, &mut nothing);
        lane.wait(now, CALL_TIME_MAX);
    }
    Ok(())
}
