//! The bytes of messages as the release before wrote them: today's code reads and writes the same.
//!
//! `formats/messages-3.txt` has a message a line, in hexadecimal digits, behind its name. A change that other releases
//! do not understand needs another [`VERSION`], and a file for that.

use std::fmt::Write as _;

use yonder_wire::{
    AdoptRequest, AdoptStage, AllocateRequest, Allocated, AtomicOperation, Backing, Body, Direction, ErrorCode,
    Greeting, Header, Kind, NodeStatus, Permission, Translation, VERSION, Welcome, split,
};

/// The messages of a version.
fn written() -> &'static str {
    match VERSION {
        3 => include_str!("formats/messages-3.txt"),
        other => panic!("version {other} has no file yet: put what this test writes into formats/messages-{other}.txt"),
    }
}

fn body<B: Body>(body: &B) -> Vec<u8> {
    let mut bytes = vec![0; B::BYTES];
    body.write_to(&mut bytes);
    bytes
}

/// All reasons for a refusal.
fn codes() -> impl Iterator<Item = ErrorCode> {
    (1_u16..).map_while(|number| zerocopy::try_transmute!(number).ok())
}

/// What a request and an answer of this kind carry, each in all its forms.
fn payloads(kind: Kind, direction: Direction) -> Vec<Vec<u8>> {
    let allocate = AllocateRequest {
        bytes: 8192,
        permission: Permission::ReadWrite,
        backing: Backing::Now,
        from: 1 << 20,
        to: 1 << 21,
    };
    let stages = [AdoptStage::Fill(b"bytes"), AdoptStage::Prepare, AdoptStage::Finish, AdoptStage::Abandon];
    let adopt = |stage| AdoptRequest { transfer: 9, from: 1 << 20, to: 1 << 21, stage }.to_bytes();
    match (kind, direction) {
        (Kind::Hello, Direction::Request) => [None, Some(3)].map(|home| body(&Greeting { home })).to_vec(),
        (Kind::Hello, Direction::Answer) => {
            vec![body(&Welcome { home: 3, page_bytes: 4096, memory_bytes: 1 << 30, incarnation: 7 << 40 })]
        }
        (Kind::Atomic, Direction::Request) => [
            AtomicOperation::TestAndSet,
            AtomicOperation::Store(5),
            AtomicOperation::FetchAdd(6),
            AtomicOperation::CompareAndSwap { expected: 7, new: 8 },
        ]
        .map(|operation| body(&operation))
        .to_vec(),
        (Kind::Allocate, Direction::Request) => {
            let least = AllocateRequest { permission: Permission::Read, backing: Backing::OnDemand, ..allocate };
            vec![body(&allocate), body(&least)]
        }
        (Kind::Allocate, Direction::Answer) => vec![body(&Allocated { bytes: 8192, retries: 2 })],
        (Kind::Translate, Direction::Answer) => vec![body(&Translation { offset: 1 << 16, bytes: 4096 })],
        (Kind::Status, Direction::Answer) => {
            vec![body(&NodeStatus { memory_bytes: 1 << 30, free_bytes: 1 << 29, allocated_bytes: 1 << 28, spaces: 4 })]
        }
        (Kind::Adopt, Direction::Request) => stages.map(adopt).to_vec(),
        _ if kind.carries_payload(direction) => vec![b"payload".to_vec()],
        _ => vec![Vec::new()],
    }
}

/// Whether a payload is read, and written as it was.
fn comes_back(header: &Header, payload: &[u8]) -> bool {
    fn is_same<B: Body>(payload: &[u8]) -> bool {
        B::from_bytes(payload).is_ok_and(|read| body(&read) == payload)
    }
    match (header.kind, header.direction) {
        _ if payload.is_empty() => true,
        (Kind::Hello, Direction::Request) => is_same::<Greeting>(payload),
        (Kind::Hello, Direction::Answer) => is_same::<Welcome>(payload),
        (Kind::Atomic, Direction::Request) => is_same::<AtomicOperation>(payload),
        (Kind::Allocate, Direction::Request) => is_same::<AllocateRequest>(payload),
        (Kind::Allocate, Direction::Answer) => is_same::<Allocated>(payload),
        (Kind::Translate, Direction::Answer) => is_same::<Translation>(payload),
        (Kind::Status, Direction::Answer) => is_same::<NodeStatus>(payload),
        (Kind::Adopt, Direction::Request) => AdoptRequest::from_bytes(payload).is_ok_and(|r| r.to_bytes() == payload),
        _ => true,
    }
}

/// One message a line, of all that there are.
fn all_messages() -> String {
    let mut text = String::new();
    let mut add = |name: String, header: Header, payload: &[u8]| {
        write!(text, "{name} ").expect("a text has room");
        let bytes = header.seal(payload);
        bytes.iter().chain(payload).for_each(|byte| write!(text, "{byte:02x}").expect("a text has room"));
        text.push('\n');
    };
    for kind in Kind::ALL {
        let mut request = Header::request(kind, 0x0102_0304_0506_0708, 0x1111_2000, 4096);
        (request.pid, request.first_id, request.fragment_offset) = (7, 0x0102_0304_0506_0700, 512);
        (request.capability, request.cookie, request.time) = (9 << 100, 0x0a0b, 5);
        for (number, payload) in payloads(kind, Direction::Request).iter().enumerate() {
            let length = if kind.carries_payload(Direction::Request) { payload.len() as u32 } else { 4096 };
            add(format!("{kind:?}-request-{number}"), Header { length, ..request }, payload);
        }
        for (number, payload) in payloads(kind, Direction::Answer).iter().enumerate() {
            let length = if kind.carries_payload(Direction::Answer) { payload.len() as u32 } else { 1 };
            add(format!("{kind:?}-answer-{number}"), request.answer(6, length), payload);
        }
    }
    let read = Header::request(Kind::Read, 8, 4096, 4096);
    for code in codes() {
        add(format!("refusal-{code:?}"), read.refusal(6, code), &[]);
    }
    text
}

#[test]
fn messages_are_written_as_the_release_before_wrote_them() {
    let (now, before) = (all_messages(), written());
    let differs = now.lines().zip(before.lines()).find(|(now, before)| now != before);
    assert_eq!(differs, None, "the format has changed: other releases need another VERSION for it");
    assert_eq!(now.lines().count(), before.lines().count(), "write into formats/messages-{VERSION}.txt:\n{now}");
}

#[test]
fn messages_of_the_release_before_are_read() {
    for line in written().lines() {
        let (name, digits) = line.split_once(' ').expect("a name, and digits");
        let digits: Vec<char> = digits.chars().collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("two digits");
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        let message = split(&bytes).unwrap().unwrap_or_else(|| panic!("{name} is not whole"));
        assert_eq!((message.verify(), message.bytes()), (Ok(()), bytes.len()), "{name}");
        assert_eq!([&message.header.seal(message.payload)[..], message.payload].concat(), bytes, "{name}");
        assert!(comes_back(&message.header, message.payload), "{name}");
    }
}
