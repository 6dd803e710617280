//! The target `wire`: bytes that arrive as a datagram, or as the payload of one.
//!
//! What cannot be read is refused; what can be read means the same when it is written again; a message that is changed
//! after it was sealed is not taken for one that is whole.

use yonder_wire::{
    AdoptRequest, AdoptStage, AllocateRequest, Allocated, AtomicOperation, Body, Greeting, HEADER_BYTES, Header,
    MESSAGE_BYTES_MAX, NodeStatus, PAYLOAD_BYTES_MAX, Translation, VERSION, Welcome, WireError, split,
};

use crate::script::Step;
use crate::{Target, Trail};

pub(crate) const TARGET: Target = Target { name: "wire", step_bytes: 1, bytes_max: 4096, run };

/// Where a header has its version, kind, flags, code and the distance of a retry.
const BYTES_THAT_MUST_FIT: [(usize, u8, u8); 4] = [(3, 1, 16), (4, 0, 1), (6, 0, 14), (23, 0, 0)];

fn run(data: &[u8], trail: &mut Trail) {
    let Some((how, bytes)) = data.split_first() else { return };
    match how % 4 {
        0 => check_datagram(bytes, trail),
        1 => check_dressed(bytes, trail),
        _ => check_bodies(bytes, trail),
    }
}

/// What a receiver does with a datagram.
fn check_datagram(bytes: &[u8], trail: &mut Trail) {
    let found = split(bytes);
    trail.note([1, found.is_ok().into(), found.err().map_or(0, error_number)]);
    let message = match found {
        Ok(Some(message)) => message,
        Ok(None) => {
            assert!(bytes.len() < MESSAGE_BYTES_MAX, "{} bytes hold a whole message", bytes.len());
            if bytes.len() >= HEADER_BYTES {
                let filled = [bytes, &vec![0; MESSAGE_BYTES_MAX - bytes.len()]].concat();
                assert!(matches!(split(&filled), Ok(Some(_))), "a message is awaited that no buffer holds");
            }
            return;
        }
        Err(_) => return,
    };
    assert_eq!(message.as_bytes(), &bytes[..message.bytes()]);
    assert_eq!(message.payload, &bytes[HEADER_BYTES..message.bytes()]);
    assert!(message.payload.len() <= PAYLOAD_BYTES_MAX);
    assert_eq!(message.payload.len(), message.header.payload_bytes());
    let sealed = [&message.header.seal(message.payload)[..], message.payload].concat();
    trail.note([2, message.header.kind as u64, message.verify().is_ok().into()]);
    if message.verify().is_ok() {
        assert_eq!(sealed, message.as_bytes(), "a message that verifies is written in one way only");
    }
    let again = split(&sealed).expect("what is sealed is read").expect("it is whole");
    assert_eq!((again.header, again.payload, again.verify()), (message.header, message.payload, Ok(())));
    check_header(&message.header);
}

/// The same with the fields of the header put right that would be refused at once, and then with a bit flipped.
fn check_dressed(bytes: &[u8], trail: &mut Trail) {
    let Some((place, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER_BYTES {
        bytes.resize(HEADER_BYTES, 0);
    }
    bytes[..3].copy_from_slice(&[b'Y', b'o', VERSION]);
    for (at, least, greatest) in BYTES_THAT_MUST_FIT {
        bytes[at] = least + bytes[at] % (greatest - least + 1);
    }
    bytes[5] = 0;
    bytes[7] = 0;
    if place[0] % 4 != 3 {
        let payload = (bytes.len() - HEADER_BYTES) as u32;
        bytes[12..16].copy_from_slice(&payload.to_le_bytes());
    }
    check_datagram(&bytes, trail);
    let Ok(Some(message)) = split(&bytes) else { return };
    let mut sealed = [&message.header.seal(message.payload)[..], message.payload].concat();
    let bit = usize::from(u16::from_le_bytes(*place)) % (sealed.len() * 8);
    sealed[bit / 8] ^= 1 << (bit % 8);
    if let Ok(Some(changed)) = split(&sealed) {
        assert_eq!(changed.verify(), Err(WireError::Checksum), "bit {bit} is flipped");
    }
}

/// An answer to a request, and a refusal of it, can be sent.
fn check_header(header: &Header) {
    let refusal = header.refusal(7, yonder_wire::ErrorCode::Busy);
    assert!(split(&refusal.seal(&[])).is_ok_and(|found| found.is_some_and(|message| message.header == refusal)));
}

fn check_bodies(bytes: &[u8], trail: &mut Trail) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let read = match Step::of(&[*which]).below(8) {
        0 => check_body::<Greeting>(bytes),
        1 => check_body::<Welcome>(bytes),
        2 => check_body::<AtomicOperation>(bytes),
        3 => check_body::<AllocateRequest>(bytes),
        4 => check_body::<Allocated>(bytes),
        5 => check_body::<Translation>(bytes),
        6 => check_body::<NodeStatus>(bytes),
        _ => check_adopt(bytes, trail),
    };
    trail.note([3, u64::from(*which % 8), read.into()]);
}

/// Whether the bytes are such a body.
fn check_body<B: Body + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(body) = B::from_bytes(bytes) else { return false };
    assert_eq!(bytes.len(), B::BYTES);
    let mut written = vec![0xaa; B::BYTES];
    body.write_to(&mut written);
    assert_eq!(B::from_bytes(&written), Ok(body));
    true
}

fn check_adopt(bytes: &[u8], trail: &mut Trail) -> bool {
    let Ok(request) = AdoptRequest::from_bytes(bytes) else { return false };
    assert!(request.from < request.to);
    assert_eq!(request.to_bytes(), bytes);
    if let AdoptStage::Begin(inventory) = request.stage {
        let entries = inventory.allocations().count() * 16 + inventory.pages().count() * 4;
        assert!(entries < bytes.len(), "every entry was sent");
    }
    trail.note([4, std::mem::discriminant(&request.stage).eq(&std::mem::discriminant(&AdoptStage::Finish)).into(), 0]);
    true
}

fn error_number(error: WireError) -> u64 {
    match error {
        WireError::Magic(_) => 1,
        WireError::Version(_) => 2,
        WireError::Kind(_) => 3,
        WireError::Code(_) => 4,
        WireError::RequestId(_) => 5,
        WireError::Body => 6,
        WireError::Flags(_) => 7,
        WireError::Length(_) => 8,
        WireError::Checksum => 9,
    }
}
