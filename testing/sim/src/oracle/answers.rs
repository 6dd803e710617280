//! Single answers, as the oracle compares them, without any state.

use yonder_wire::{
    AllocateRequest, Allocated, AtomicOperation, Body, Header, Kind, Message, PAYLOAD_BYTES_MAX, Rights,
};

/// What every copy of a request must be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answered {
    pub(super) address: u64,
    pub(super) capability: u128,
    pub(super) pid: u32,
    pub(super) allocated: Option<Allocated>,
    pub(super) counted: Option<u64>,
}

/// What an answer says that every copy must say.
pub(super) fn answered(answer: &Message<'_>) -> Result<Answered, String> {
    let Header { address, capability, pid, kind, .. } = answer.header;
    let allocated = match kind {
        Kind::Allocate => Some(Allocated::from_bytes(answer.payload).map_err(|error| error.to_string())?),
        _ => None,
    };
    let counted = match kind {
        Kind::Call => Some(u64::from_le_bytes(answer.payload.try_into().map_err(|_| "a count has 8 bytes")?)),
        _ => None,
    };
    Ok(Answered { address, capability, pid, allocated, counted })
}

/// Whether a request can be executed somewhere.
pub(super) fn well_formed(request: &Message<'_>) -> bool {
    let asked = &request.header;
    match asked.kind {
        Kind::Read => asked.length > 0 && asked.length as usize <= PAYLOAD_BYTES_MAX,
        Kind::Write | Kind::Discard => asked.length > 0,
        Kind::Atomic => asked.address.is_multiple_of(8) && AtomicOperation::from_bytes(request.payload).is_ok(),
        Kind::Allocate => AllocateRequest::from_bytes(request.payload).is_ok_and(|asked| asked.bytes > 0),
        Kind::Grant => Rights::from_number(asked.length).is_some(),
        _ => true,
    }
}

/// Where two contents of one range differ, in words.
pub(super) fn difference(right: &[u8], read: &[u8]) -> String {
    let at = right.iter().zip(read).position(|(right, read)| right != read);
    match at {
        Some(at) => format!("byte {at} of {} was read as {:#x}, it is {:#x}", right.len(), read[at], right[at]),
        None => format!("{} bytes were read, asked for were {}", read.len(), right.len()),
    }
}
