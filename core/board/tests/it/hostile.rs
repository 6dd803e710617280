//! Messages that no client would send: nothing panics, and memory of others neither changes nor shows.

use proptest::prelude::*;
use yonder_wire::{AllocateRequest, Direction, HEADER_BYTES, Header, Kind, Rights};

use crate::world::{PAGE, SOMEWHERE, World};

const SECRET: u8 = 0xa5;

/// A message as an attacker composes it: any header, aimed near what is there.
#[derive(Clone, Debug)]
struct Attack {
    kind: Kind,
    direction: Direction,
    id: u64,
    retry: u32,
    pid: usize,
    capability: usize,
    address: u64,
    length: u32,
    fragment_offset: u32,
    time: u64,
    payload: Vec<u8>,
    flipped: Option<u16>,
    room: usize,
}

fn number() -> impl Strategy<Value = u64> {
    let pages = (0u64..12, 0u64..3).prop_map(|(page, around)| (page * PAGE).wrapping_add(around).wrapping_sub(1));
    prop_oneof![1 => any::<u64>(), 1 => 0u64..16, 4 => pages, 1 => Just(u64::MAX)]
}

/// A payload that may be an allocation, an atomic, or bytes.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(number(), 3..5);
    let body = words.prop_map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    prop_oneof![body, prop::collection::vec(any::<u8>(), 0..100), Just(vec![9; 2 * PAGE as usize])]
}

fn attack() -> impl Strategy<Value = Attack> {
    let direction = prop_oneof![9 => Just(Direction::Request), 1 => Just(Direction::Answer)];
    let what = (prop::sample::select(&Kind::ALL[..]), direction, 1u64..20, 0u32..20, 0usize..4, 0usize..5);
    let length = prop_oneof![any::<u32>(), 0u32..5, 0..3 * PAGE as u32];
    let time = prop_oneof![any::<u64>(), 0u64..2000];
    let flipped = prop_oneof![9 => Just(None), 1 => any::<u16>().prop_map(Some)];
    let room = prop_oneof![Just(1 << 17), HEADER_BYTES..200];
    let rest = (number(), length, 0u32..2, time, payload(), flipped, room);
    (what, rest).prop_map(|((kind, direction, id, retry, pid, capability), rest)| {
        let (address, length, fragment_offset, time, payload, flipped, room) = rest;
        Attack {
            kind,
            direction,
            id,
            retry,
            pid,
            capability,
            address,
            length,
            fragment_offset,
            time,
            payload,
            flipped,
            room,
        }
    })
}

impl Attack {
    fn bytes(&self, pids: [u32; 4], capabilities: [u128; 5]) -> Vec<u8> {
        let request_id = self.id + u64::from(self.retry);
        let mut header = Header::request(self.kind, request_id, self.address, self.length);
        (header.first_id, header.direction) = (self.id, self.direction);
        (header.pid, header.capability) = (pids[self.pid], capabilities[self.capability]);
        (header.fragment_offset, header.time) = (self.fragment_offset, self.time);
        let payload = if header.kind.carries_payload(header.direction) { &self.payload[..] } else { &[] };
        if !payload.is_empty() || header.payload_bytes() > 0 {
            header.length = payload.len() as u32;
        }
        let mut bytes = [&header.seal(payload)[..], payload].concat();
        if let Some(bit) = self.flipped {
            let bit = usize::from(bit) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 512 }))]
    #[test]
    fn an_attacker_neither_changes_nor_reads_what_is_not_his(attacks in prop::collection::vec(attack(), 1..60)) {
        let mut world = World::with_ring(16, 8);
        let victim = world.create();
        let (address, _) = world.allocate(victim, &AllocateRequest { bytes: 2 * PAGE, ..SOMEWHERE }).unwrap();
        world.write(victim, address, &[SECRET; 2 * PAGE as usize]).unwrap();
        let attacker = world.create();
        let (own, _) = world.allocate(attacker, &SOMEWHERE).unwrap();
        world.write(attacker, own, &[1]).unwrap();
        let reader = world.grant(attacker, Rights::Read);
        let pids = [victim.pid, attacker.pid, attacker.pid, 0];
        let capabilities = [attacker.capability, attacker.capability, reader.capability, victim.capability ^ 0b101, 0];
        for attack in &attacks {
            let answer = world.deliver_with_room(&attack.bytes(pids, capabilities), attack.room);
            if let Some((header, payload)) = answer {
                prop_assert!(payload.len() <= attack.room - HEADER_BYTES);
                prop_assert!(header.kind == Kind::CreateSpace || header.capability != victim.capability);
                prop_assert!(!payload.contains(&SECRET) || attack.payload.contains(&SECRET) || header.kind != Kind::Read);
            }
            if attack.time % 7 == 0 {
                world.refill(4);
            }
        }
        prop_assert_eq!(world.read(victim, address, 2 * PAGE as usize), Ok(vec![SECRET; 2 * PAGE as usize]));
        prop_assert!(world.ask(Kind::Free, victim, address, 0, &[]).is_ok());
    }
}
