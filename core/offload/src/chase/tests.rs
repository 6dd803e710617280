//! Walks against plain walks over the same structure, in rings and after wild pointers.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Comparison;
use crate::fake_memory::FakeMemory;

const PID: u32 = 5;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 16 << 20;

fn memory() -> FakeMemory {
    let mut memory = FakeMemory::default();
    memory.caller_allocates(PID, BASE, SIZE);
    memory
}

fn call(memory: &mut FakeMemory, request: &Request<'_>) -> Result<Vec<u8>, ErrorCode> {
    memory.call(&mut PointerChase, PID, &request.encode())
}

/// A node of 32 bytes: key of 8 bytes, next, child, value of 8 bytes.
const NODE: Lists<'static> = Lists {
    next_offset: 8,
    child_offset: 16,
    key_offset: 0,
    levels: 1,
    order: Order::LittleEndian,
    comparison: Comparison::Equal,
    take: Take::Match,
    mask: &[],
};
const VALUE: Field = Field { offset: 24, bytes: 8 };

fn write_node(memory: &mut FakeMemory, at: u64, words: [u64; 4]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.caller_writes(PID, at, &bytes);
}

/// Writes a list of nodes with these keys, whose values are their indices, and returns their addresses.
fn write_list(memory: &mut FakeMemory, keys: &[u64]) -> Vec<u64> {
    // The order in memory is not that of the list.
    let addresses: Vec<u64> = (0..keys.len() as u64).map(|index| BASE + (index * 7919 % 8192) * 32).collect();
    for (index, key) in keys.iter().enumerate() {
        let next = addresses.get(index + 1).copied().unwrap_or(0);
        write_node(memory, addresses[index], [*key, next, 0, index as u64]);
    }
    addresses
}

fn lists_request<'a>(start: u64, lists: Lists<'a>, key: &'a [u8]) -> Request<'a> {
    Request { start, shape: Shape::Lists(lists), key, value: VALUE, steps_max: STEPS_MAX }
}

/// The index that a plain walk over `keys` takes.
fn plain_walk(keys: &[u64], lists: &Lists<'_>, wanted: u64, mask: u64) -> Option<usize> {
    let ordered = |number: u64| if lists.order == Order::Bytes { number.swap_bytes() } else { number };
    let matches = |key: &u64| lists.comparison.holds(ordered(key & mask).cmp(&ordered(wanted & mask)));
    let found = keys.iter().position(matches);
    match lists.take {
        Take::Match => found,
        Take::Before => found.unwrap_or(keys.len()).checked_sub(1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]
    #[test]
    fn a_list_is_walked_as_a_plain_walk_does(
        keys in prop::collection::vec(0u64..2000, 0..300), wanted in 0u64..2000, sorted in any::<bool>(),
        comparison in prop::sample::select(Comparison::ALL.to_vec()), before in any::<bool>(), bytes in any::<bool>(),
        mask in prop::sample::select(vec![u64::MAX, 0xff, 0xff00, 0]), steps_max in 1u32..400,
    ) {
        let mut keys = keys;
        if sorted {
            keys.sort_unstable();
        }
        let mut memory = memory();
        let addresses = write_list(&mut memory, &keys);
        let (wanted_bytes, mask_bytes) = (wanted.to_le_bytes(), mask.to_le_bytes());
        let lists = Lists {
            comparison,
            take: if before { Take::Before } else { Take::Match },
            order: if bytes { Order::Bytes } else { Order::LittleEndian },
            mask: if mask == u64::MAX { &[] } else { &mask_bytes },
            ..NODE
        };
        let start = addresses.first().copied().unwrap_or(0);
        let mut request = Request { steps_max, ..lists_request(start, lists, &wanted_bytes) };
        // A walk that has spent its steps is gone on with; each call but the last looks at a new node at least.
        let answer = loop {
            let bytes = call(&mut memory, &request).unwrap();
            let answer = Answer::decode(&bytes).unwrap();
            prop_assert!(answer.steps <= steps_max);
            if answer.outcome != Outcome::StepsSpent || (before && steps_max == 1) {
                break bytes;
            }
            request.start = if before && answer.previous != 0 { answer.previous } else { answer.node };
        };
        let answer = Answer::decode(&answer).unwrap();
        if answer.outcome == Outcome::StepsSpent {
            return Ok(());
        }
        match plain_walk(&keys, &lists, wanted, mask) {
            None => prop_assert_eq!((answer.outcome, answer.value.len()), (Outcome::Ended, 0)),
            Some(index) => {
                prop_assert_eq!((answer.outcome, answer.node), (Outcome::Found, addresses[index]));
                prop_assert_eq!(answer.value, (index as u64).to_le_bytes());
            }
        }
    }

    #[test]
    fn a_radix_tree_of_tables_is_a_map(
        keys in prop::collection::btree_map(prop::collection::vec(0u8..4, 3), any::<u64>(), 0..40),
        wanted in prop::collection::vec(0u8..4, 3),
    ) {
        let (mut memory, mut next) = (memory(), BASE + TABLE_NODE_BYTES);
        for (key, value) in &keys {
            insert_radix(&mut memory, &mut next, key, *value);
        }
        let bytes = call(&mut memory, &tables_request(BASE, &wanted)).unwrap();
        let answer = Answer::decode(&bytes).unwrap();
        match keys.get(&wanted) {
            Some(value) => prop_assert_eq!((answer.outcome, answer.value), (Outcome::Found, &value.to_le_bytes()[..])),
            None => prop_assert_eq!((answer.outcome, answer.value.len(), answer.node), (Outcome::Ended, 0, 0)),
        }
    }

    #[test]
    fn requests_and_answers_come_back(
        key in prop::collection::vec(any::<u8>(), 0..50), mask in prop::collection::vec(any::<u8>(), 0..50),
        numbers in any::<[u32; 8]>(), cut in any::<prop::sample::Index>(),
    ) {
        let (key, [a, b, c, d, e, f, g, h]) = (&key[..], numbers);
        let (order, comparison, take) = (Order::LittleEndian, Comparison::Greater, Take::Before);
        let lists =
            Lists { next_offset: a, child_offset: b, key_offset: c, levels: d, order, comparison, take, mask: &mask };
        let value = Field { offset: e, bytes: f };
        for shape in [Shape::Lists(lists), Shape::Tables { table_offset: g }] {
            let request = Request { start: u64::from(h) << 20, shape, key, value, steps_max: a };
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            prop_assert_eq!(Request::decode(&bytes[..cut.index(bytes.len())]), Err(crate::Malformed));
        }
        for outcome in [Outcome::Found, Outcome::Ended, Outcome::StepsSpent] {
            let answer = Answer { outcome, steps: a, level: b, node: u64::from(c) << 9, previous: 3, value: key };
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
            prop_assert_eq!(Answer::decode(&bytes[..cut.index(bytes.len())]), Err(crate::Malformed));
        }
    }
}

/// A node of a radix tree: value of 8 bytes, table.
const TABLE_NODE_BYTES: u64 = 8 + 256 * 8;

fn tables_request(start: u64, key: &[u8]) -> Request<'_> {
    let (shape, value) = (Shape::Tables { table_offset: 8 }, Field { offset: 0, bytes: 8 });
    Request { start, shape, key, value, steps_max: STEPS_MAX }
}

fn insert_radix(memory: &mut FakeMemory, next: &mut u64, key: &[u8], value: u64) {
    let mut node = BASE;
    for byte in key {
        let pointer = node + 8 + 8 * u64::from(*byte);
        node = u64::from_le_bytes(memory.caller_reads(PID, pointer, 8).try_into().unwrap());
        if node == 0 {
            node = *next;
            *next += TABLE_NODE_BYTES;
            memory.caller_writes(PID, pointer, &node.to_le_bytes());
        }
    }
    memory.caller_writes(PID, node, &value.to_le_bytes());
}

/// The radix tree of the paper: the nodes of each layer are lists.
#[test]
fn one_call_goes_down_a_tree_of_lists() {
    let mut memory = memory();
    let words: BTreeMap<[u8; 3], u64> = [(*b"ant", 1), (*b"and", 2), (*b"bat", 3), (*b"bit", 4)].into_iter().collect();
    let (mut next, mut first) = (BASE, 0);
    for (word, value) in &words {
        let (mut link, mut at) = (None, first);
        for byte in word {
            // Looks for the byte in the list that begins at `at`; a new node becomes the first of its list.
            let mut node = at;
            let word_at = |memory: &FakeMemory, address| {
                u64::from_le_bytes(memory.caller_reads(PID, address, 8).try_into().unwrap())
            };
            while node != 0 && word_at(&memory, node) != u64::from(*byte) {
                node = word_at(&memory, node + 8);
            }
            if node == 0 {
                (node, next) = (next, next + 32);
                write_node(&mut memory, node, [u64::from(*byte), at, 0, *value]);
                match link {
                    Some(parent) => memory.caller_writes(PID, parent + 16, &node.to_le_bytes()),
                    None => first = node,
                }
            }
            (link, at) = (Some(node), word_at(&memory, node + 16));
        }
    }
    let lists = Lists { levels: 3, order: Order::Bytes, ..NODE };
    for (word, value) in &words {
        let bytes = call(&mut memory, &lists_request(first, lists, word)).unwrap();
        let answer = Answer::decode(&bytes).unwrap();
        assert_eq!((answer.outcome, answer.level), (Outcome::Found, 2));
        assert_eq!(answer.value, value.to_le_bytes());
    }
    let bytes = call(&mut memory, &lists_request(first, lists, b"bad")).unwrap();
    let answer = Answer::decode(&bytes).unwrap();
    assert_eq!((answer.outcome, answer.level, answer.value.len()), (Outcome::Ended, 2, 0));
}

#[test]
fn a_ring_ends_after_its_steps() {
    let mut memory = memory();
    write_node(&mut memory, BASE, [1, BASE + 32, 0, 0]);
    write_node(&mut memory, BASE + 32, [2, BASE, 0, 0]);
    let bytes = call(&mut memory, &lists_request(BASE, NODE, &9u64.to_le_bytes())).unwrap();
    let answer = Answer::decode(&bytes).unwrap();
    assert_eq!((answer.outcome, answer.steps, answer.node), (Outcome::StepsSpent, STEPS_MAX, BASE));
    assert_eq!(memory.accesses, u64::from(STEPS_MAX), "key and pointer are read at once");
}

#[test]
fn key_and_pointer_may_lie_far_apart() {
    let mut memory = memory();
    let lists = Lists { next_offset: 5000, ..NODE };
    write_node(&mut memory, BASE, [1, 0, 0, 10]);
    memory.caller_writes(PID, BASE + 5000, &(BASE + 8192).to_le_bytes());
    write_node(&mut memory, BASE + 8192, [2, 0, 0, 20]);
    let bytes = call(&mut memory, &lists_request(BASE, lists, &2u64.to_le_bytes())).unwrap();
    assert_eq!(Answer::decode(&bytes).unwrap().value, 20u64.to_le_bytes());
}

#[test]
fn wild_pointers_and_wild_requests_are_refused() {
    let mut memory = memory();
    let key = 9u64.to_le_bytes();
    let good = lists_request(BASE, NODE, &key);
    write_node(&mut memory, BASE, [1, u64::MAX - 3, 0, 0]);
    assert_eq!(call(&mut memory, &good), Err(ErrorCode::BadAddress), "a pointer to the end of all addresses");
    assert_eq!(call(&mut memory, &Request { start: 1, ..good }), Err(ErrorCode::BadAddress));
    assert_eq!(call(&mut memory, &tables_request(u64::MAX, &[255])), Err(ErrorCode::BadAddress));
    let long = [0; KEY_BYTES_MAX + 1];
    let levels = Lists { levels: 3, ..NODE };
    let none = Lists { levels: 0, ..NODE };
    let refused = [
        Request { steps_max: 0, ..good },
        Request { steps_max: STEPS_MAX + 1, ..good },
        Request { key: &long, ..good },
        Request { value: Field { offset: 0, bytes: VALUE_BYTES_MAX as u32 + 1 }, ..good },
        Request { shape: Shape::Lists(levels), ..good },
        Request { shape: Shape::Lists(none), ..good },
    ];
    for request in refused {
        assert_eq!(call(&mut memory, &request), Err(ErrorCode::BadLength), "{request:?}");
    }
    let refused = memory.call(&mut PointerChase, PID + 1, &good.encode());
    assert_eq!(refused, Err(ErrorCode::BadAddress), "another caller's memory");
}
