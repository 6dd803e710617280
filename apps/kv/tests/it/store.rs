//! The store against memory that does not fail: single commands, a model, eviction, expiry, many threads.

use crate::memory::{FlatMemory, run, stat, value};
use proptest::prelude::*;
use std::collections::HashMap;
use yonder_kv::protocol::{Answer, Command, WriteMode, WriteRefusal};
use yonder_kv::store::Room;
use yonder_kv::{Store, StoreConfig};

const NOW_S: u32 = 1_700_000_000;
const SMALL: StoreConfig = StoreConfig { value_bytes_max: 64 << 10, items: Some(1), hash_seed: 7, access_times: false };

fn store(bytes: u64) -> Store<FlatMemory> {
    Store::new(FlatMemory::new(bytes), StoreConfig::default()).expect("the memory is large enough")
}

/// Runs pairs of input and expected reply.
fn script(store: &Store<FlatMemory>, steps: &[(&str, &str)]) {
    for (input, expected) in steps {
        let reply = run(store, input.as_bytes(), NOW_S);
        assert_eq!(String::from_utf8_lossy(&reply), *expected, "{input:?}");
    }
}

#[test]
fn commands_answer_as_memcached_does() {
    script(
        &store(8 << 20),
        &[
            ("get k\r\n", "END\r\n"),
            ("replace k 0 0 1\r\n1\r\n", "NOT_STORED\r\n"),
            ("append k 0 0 1\r\n1\r\n", "NOT_STORED\r\n"),
            ("set k 5 0 2\r\n10\r\n", "STORED\r\n"),
            ("add k 0 0 1\r\n1\r\n", "NOT_STORED\r\n"),
            ("gets k\r\n", "VALUE k 5 2 1\r\n10\r\nEND\r\n"),
            ("cas k 6 0 2 9\r\n11\r\n", "EXISTS\r\n"),
            ("cas k 6 0 2 1\r\n11\r\n", "STORED\r\n"),
            ("cas x 6 0 2 1\r\n11\r\n", "NOT_FOUND\r\n"),
            (
                "append k 9 0 1\r\nz\r\nprepend k 9 0 1\r\na\r\nget k\r\n",
                "STORED\r\nSTORED\r\nVALUE k 6 4\r\na11z\r\nEND\r\n",
            ),
            ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            ("set n 3 0 2\r\n99\r\nincr n 1\r\nget n\r\n", "STORED\r\n100\r\nVALUE n 3 3\r\n100\r\nEND\r\n"),
            ("decr n 1\r\nget n\r\n", "99\r\nVALUE n 3 3\r\n99 \r\nEND\r\n"),
            ("decr n 1000\r\nincr n 18446744073709551615\r\nincr n 2\r\n", "0\r\n18446744073709551615\r\n1\r\n"),
            ("incr x 1\r\n", "NOT_FOUND\r\n"),
            (
                "set e 0 0 0\r\n\r\nget e e\r\nincr e 1\r\n",
                "STORED\r\nVALUE e 0 0\r\n\r\nVALUE e 0 0\r\n\r\nEND\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            ("delete e\r\ndelete e\r\n", "DELETED\r\nNOT_FOUND\r\n"),
            ("touch k 10\r\ntouch x 10\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
            (
                "set q 0 0 1 noreply\r\nq\r\nincr q 1 noreply\r\ndelete zz noreply\r\ntouch q 0 noreply\r\nget q\r\n",
                "VALUE q 0 1\r\nq\r\nEND\r\n",
            ),
        ],
    );
}

#[test]
fn a_set_that_is_refused_drops_the_old_value_and_others_keep_it() {
    let store = Store::new(FlatMemory::new(8 << 20), SMALL).expect("large enough");
    for (refusal, expected) in [
        (WriteRefusal::TooLarge, &b"SERVER_ERROR object too large for cache\r\n"[..]),
        (WriteRefusal::NoRoom, b"SERVER_ERROR out of memory storing object\r\n"),
    ] {
        let refused = |mode, answer| Command::WriteRefused { mode, key: b"k".to_vec(), refusal, answer };
        script(&store, &[("set k 0 0 1\r\n1\r\n", "STORED\r\n")]);
        assert_eq!(store.execute(refused(WriteMode::Add, Answer::Wanted), NOW_S).reply, expected);
        script(&store, &[("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")]);
        assert_eq!(store.execute(refused(WriteMode::Set, Answer::Wanted), NOW_S).reply, expected);
        script(&store, &[("get k\r\n", "END\r\n")]);
        assert_eq!(store.execute(refused(WriteMode::Set, Answer::Quiet), NOW_S).reply, b"");
    }
    let large = format!("set k 0 0 {0}\r\n{1}\r\n", 64 << 10, "x".repeat(64 << 10));
    script(
        &store,
        &[
            (&large, "STORED\r\n"),
            ("append k 0 0 1\r\ny\r\n", "NOT_STORED\r\n"),
            ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ],
    );
}

#[test]
fn items_expire_when_their_time_has_come() {
    let store = store(8 << 20);
    let get = |key: &str, now_s| value(&run(&store, format!("get {key}\r\n").as_bytes(), now_s)).is_some();
    run(
        &store,
        format!(
            "set relative 0 10 1\r\n1\r\nset absolute 0 {} 1\r\n1\r\nset never 0 0 1\r\n1\r\nset past 0 -1 1\r\n1\r\n",
            NOW_S + 20
        )
        .as_bytes(),
        NOW_S,
    );
    assert!(get("relative", NOW_S + 9) && !get("relative", NOW_S + 10));
    assert!(get("absolute", NOW_S + 19) && !get("absolute", NOW_S + 20));
    assert!(!get("past", NOW_S));
    assert_eq!(
        run(&store, b"add absolute 0 5 1\r\n2\r\ngat 100 absolute\r\n", NOW_S + 20),
        b"STORED\r\nVALUE absolute 0 1\r\n2\r\nEND\r\n"
    );
    assert!(get("absolute", NOW_S + 119) && !get("absolute", NOW_S + 120));
    assert!(get("never", u32::MAX));
    assert_eq!(stat(&store, "get_expired"), 4);
    assert_eq!(stat(&store, "curr_items"), 1);
}

#[test]
fn flush_all_takes_effect_now_or_later() {
    let store = store(8 << 20);
    script(&store, &[("set k 0 0 1\r\n1\r\nflush_all\r\nget k\r\n", "STORED\r\nOK\r\nEND\r\n")]);
    script(&store, &[("set k 0 0 1\r\n2\r\nflush_all 10\r\nget k\r\n", "STORED\r\nOK\r\nVALUE k 0 1\r\n2\r\nEND\r\n")]);
    assert!(value(&run(&store, b"get k\r\n", NOW_S + 9)).is_some());
    // What is stored at the moment of the flush or later stays.
    run(&store, b"set late 0 0 1\r\n3\r\n", NOW_S + 10);
    assert_eq!(run(&store, b"get k late\r\n", NOW_S + 10), b"VALUE late 0 1\r\n3\r\nEND\r\n");
    assert_eq!((stat(&store, "cmd_flush"), stat(&store, "get_flushed")), (2, 2));
}

#[test]
fn the_crawler_removes_what_has_expired_and_touches_nothing_else() {
    let memory = FlatMemory::new(8 << 20);
    let store = Store::new(memory.clone(), SMALL).expect("large enough");
    for number in 0..500 {
        let exptime = if number % 2 == 0 { 0 } else { 10 };
        run(&store, format!("set {number} 0 {exptime} 3\r\nabc\r\n").as_bytes(), NOW_S);
    }
    let before = memory.accesses();
    assert_eq!(store.crawl(NOW_S + 9, usize::MAX), 0);
    assert_eq!(memory.accesses(), before);
    let mut removed = 0;
    for _ in 0..100 {
        removed += store.crawl(NOW_S + 32, 100);
    }
    assert_eq!((removed, stat(&store, "curr_items"), stat(&store, "crawler_reclaimed")), (250, 250, 250));
}

#[test]
fn a_lookup_whose_tag_differs_touches_no_far_memory() {
    let memory = FlatMemory::new(8 << 20);
    let store = Store::new(memory.clone(), StoreConfig::default()).expect("large enough");
    run(&store, b"set k 0 0 1\r\n1\r\n", NOW_S);
    let before = memory.accesses();
    for number in 0..1000 {
        run(&store, format!("get absent{number}\r\n").as_bytes(), NOW_S);
    }
    assert_eq!(memory.accesses(), before);
}

#[test]
fn nor_does_one_behind_which_others_were_removed() {
    let memory = FlatMemory::new(8 << 20);
    // The smallest table: many items share a bucket.
    let store = Store::new(memory.clone(), SMALL).expect("large enough");
    let others = |verb: &str, rest: &str| {
        (0..100).for_each(|number| drop(run(&store, format!("{verb} other{number}{rest}").as_bytes(), NOW_S)));
    };
    others("set", " 0 0 1\r\n1\r\n");
    run(&store, b"set k 0 0 1\r\n1\r\n", NOW_S);
    others("delete", "\r\n");
    let before = memory.accesses();
    for number in 0..1000 {
        run(&store, format!("get absent{number}\r\n").as_bytes(), NOW_S);
    }
    assert_eq!(memory.accesses(), before);
    assert!(value(&run(&store, b"get k\r\n", NOW_S)).is_some());
}

#[test]
fn a_get_with_a_huge_reply_comes_in_parts() {
    let store = store(8 << 20);
    let large = "x".repeat(200_000);
    run(&store, format!("set k 0 0 200000\r\n{large}\r\n").as_bytes(), NOW_S);
    let command = crate::memory::commands(b"get k k k k k\r\n").remove(0);
    let execution = store.execute(command, NOW_S);
    assert!(execution.reply.len() < 500_000 && execution.rest.is_some());
    let whole = run(&store, b"get k k k k k\r\n", NOW_S);
    let item = format!("VALUE k 0 200000\r\n{large}\r\n");
    assert_eq!(whole, [item.repeat(5).as_bytes(), b"END\r\n"].concat());
}

/// So many bytes for a command, and the most that it asked for.
#[derive(Debug)]
struct Narrow {
    bytes_max: usize,
    asked: usize,
}

impl Room for Narrow {
    fn grow_to(&mut self, bytes: usize) -> bool {
        self.asked = self.asked.max(bytes);
        bytes <= self.bytes_max
    }
}

#[test]
fn what_a_command_allocates_it_asks_for_first() {
    const VALUE: usize = 100_000;
    let store = store(8 << 20);
    let large = "x".repeat(VALUE);
    run(&store, format!("set k 0 0 {VALUE}\r\n{large}\r\nset n 0 0 1\r\n7\r\n").as_bytes(), NOW_S);
    let execute = |command: &str, bytes_max: usize| {
        let mut room = Narrow { bytes_max, asked: 0 };
        let execution = store.execute_in(crate::memory::commands(command.as_bytes()).remove(0), NOW_S, &mut room);
        assert!(execution.reply.capacity() <= room.asked.max(100), "{} for {room:?}", execution.reply.capacity());
        (execution, room.asked)
    };
    let no_reply = b"SERVER_ERROR out of memory writing get response\r\n";
    for command in ["get k\r\n", "gets n k\r\n", "gat 9 k\r\n"] {
        let (execution, asked) = execute(command, VALUE);
        assert_eq!((execution.reply.as_slice(), execution.rest), (&no_reply[..], None), "{command}");
        assert!((VALUE..VALUE + 1000).contains(&asked), "{asked}");
    }
    assert_eq!(
        execute("get k\r\n", 2 * VALUE).0.reply.len(),
        format!("VALUE k 0 {VALUE}\r\n\r\nEND\r\n").len() + VALUE
    );
    let twice = execute("get k k\r\n", 4 * VALUE);
    assert!(twice.0.reply.len() > 2 * VALUE && twice.1 <= 3 * VALUE, "{} were asked for", twice.1);
    // A value that cannot be changed stays as it is.
    let no_room = b"SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(execute("append k 0 0 3\r\nend\r\n", VALUE).0.reply, no_room);
    assert_eq!(execute("prepend k 0 0 3\r\nbeg\r\n", VALUE).0.reply, no_room);
    assert_eq!(value(&run(&store, b"get k\r\n", NOW_S)), Some(large.as_bytes()));
    let (execution, asked) = execute("append k 0 0 3\r\nend\r\n", 2 * VALUE);
    assert_eq!((execution.reply.as_slice(), asked), (&b"STORED\r\n"[..], 1 + VALUE + 3));
    assert_eq!(execute("prepend k 0 0 3\r\nbeg\r\n", 2 * VALUE).0.reply, b"STORED\r\n");
    assert_eq!(value(&run(&store, b"get k\r\n", NOW_S)), Some(format!("beg{large}end").as_bytes()));
    for (command, expected) in
        [("incr n 1\r\n", "8\r\n"), ("get absent\r\n", "END\r\n"), ("delete n\r\n", "DELETED\r\n")]
    {
        assert_eq!(String::from_utf8_lossy(&execute(command, 200).0.reply), expected);
    }
}

#[test]
fn hot_items_survive_eviction() {
    let store = store(4 << 20);
    let set = |key: &str| run(&store, format!("set {key} 0 0 900\r\n{}\r\n", "v".repeat(900)).as_bytes(), NOW_S);
    (0..10).for_each(|number| assert_eq!(set(&format!("hot{number}")), b"STORED\r\n"));
    for number in 0..20_000 {
        assert_eq!(set(&format!("cold{number}")), b"STORED\r\n");
        if number % 100 == 0 {
            (0..10).for_each(|hot| drop(run(&store, format!("get hot{hot}\r\n").as_bytes(), NOW_S)));
        }
    }
    let hot = (0..10).filter(|hot| value(&run(&store, format!("get hot{hot}\r\n").as_bytes(), NOW_S)).is_some());
    assert_eq!(hot.count(), 10);
    assert!(stat(&store, "evictions") > 15_000);
    assert_eq!(stat(&store, "evictions") + stat(&store, "curr_items"), stat(&store, "total_items"));
    assert!(stat(&store, "curr_items") > 3000, "memory is used");
}

#[test]
fn a_changed_size_mix_is_served() {
    let store = store(4 << 20);
    for size in [10, 100_000, 1000, 1 << 20, 5000, 60, 300_000, 10] {
        for number in 0..3000.min((16 << 20) / size) {
            let stored =
                run(&store, format!("set {size}-{number} 0 0 {size}\r\n{}\r\n", "v".repeat(size)).as_bytes(), NOW_S);
            assert_eq!(stored, b"STORED\r\n", "{size}");
        }
        let last = run(&store, format!("get {size}-{}\r\n", 3000.min((16 << 20) / size) - 1).as_bytes(), NOW_S);
        assert_eq!(value(&last).map(<[u8]>::len), Some(size));
    }
    assert!(stat(&store, "slabs_moved") > 0);
}

#[test]
fn impossible_configurations_say_what_to_type() {
    let error = |bytes, config| Store::new(FlatMemory::new(bytes), config).err().expect("refused").to_string();
    let small = error(1 << 20, StoreConfig::default());
    assert!(small.contains("type --memory 2"), "{small}");
    let large = error(1 << 20, StoreConfig { value_bytes_max: 1 << 30, ..StoreConfig::default() });
    assert!(large.contains("type --value-max"), "{large}");
}

/// One random command on one of a few keys.
#[derive(Clone, Debug)]
enum Op {
    Write { verb: &'static str, key: u8, len: usize },
    CasOf { key: u8, len: usize },
    Get { key: u8 },
    Delete { key: u8 },
    Arithmetic { verb: &'static str, key: u8, delta: u64 },
    SetNumber { key: u8, number: u64 },
    Flush,
}

fn ops(len_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let key = || 0u8..40;
    let verb = prop::sample::select(vec!["set", "add", "replace", "append", "prepend"]);
    let op = prop_oneof![
        8 => (verb, key(), 0..len_max).prop_map(|(verb, key, len)| Op::Write { verb, key, len }),
        2 => (key(), 0..len_max).prop_map(|(key, len)| Op::CasOf { key, len }),
        6 => key().prop_map(|key| Op::Get { key }),
        2 => key().prop_map(|key| Op::Delete { key }),
        2 => (prop::sample::select(vec!["incr", "decr"]), key(), any::<u64>())
            .prop_map(|(verb, key, delta)| Op::Arithmetic { verb, key, delta }),
        2 => (key(), prop_oneof![any::<u64>(), 0u64..20]).prop_map(|(key, number)| Op::SetNumber { key, number }),
        1 => Just(Op::Flush),
    ];
    prop::collection::vec(op, 1..200)
}

type Model = HashMap<u8, Vec<u8>>;

/// Bytes that name the operation they came from.
fn pattern(step: usize, len: usize) -> Vec<u8> {
    format!("<{step}>").bytes().cycle().take(len).collect()
}

fn cas_of(store: &Store<FlatMemory>, key: u8) -> u64 {
    let reply = run(store, format!("gets k{key}\r\n").as_bytes(), NOW_S);
    let line = String::from_utf8_lossy(&reply);
    line.lines().next().and_then(|line| line.split(' ').nth(4)?.parse().ok()).unwrap_or(1)
}

/// Applies one operation to the store and to the model. Returns both replies.
fn apply(store: &Store<FlatMemory>, model: &mut Model, step: usize, op: &Op) -> (Vec<u8>, Vec<u8>) {
    let (input, expected) = match *op {
        Op::Write { verb, key, len } => {
            let bytes = pattern(step, len);
            let old = model.get(&key).cloned();
            let new = match (verb, old) {
                ("set", _) | ("add", None) | ("replace", Some(_)) => Some(bytes.clone()),
                ("append", Some(old)) => Some([old, bytes.clone()].concat()),
                ("prepend", Some(old)) => Some([bytes.clone(), old].concat()),
                _ => None,
            };
            let expected = if new.is_some() { "STORED\r\n" } else { "NOT_STORED\r\n" };
            new.map(|new| model.insert(key, new));
            let line = format!("{verb} k{key} 0 0 {len}\r\n");
            ([line.as_bytes(), &bytes, b"\r\n"].concat(), expected.as_bytes().to_vec())
        }
        Op::CasOf { key, len } => {
            let bytes = pattern(step, len);
            let line = format!("cas k{key} 0 0 {len} {}\r\n", cas_of(store, key));
            let existed = model.contains_key(&key);
            if existed {
                model.insert(key, bytes.clone());
            }
            let expected = if existed { "STORED\r\n" } else { "NOT_FOUND\r\n" };
            ([line.as_bytes(), &bytes, b"\r\n"].concat(), expected.as_bytes().to_vec())
        }
        Op::Get { key } => {
            let expected = model.get(&key).map_or(b"END\r\n".to_vec(), |value| {
                [format!("VALUE k{key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
            });
            (format!("get k{key}\r\n").into_bytes(), expected)
        }
        Op::Delete { key } => {
            let expected = if model.remove(&key).is_some() { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
            (format!("delete k{key}\r\n").into_bytes(), expected.as_bytes().to_vec())
        }
        Op::Arithmetic { verb, key, delta } => {
            (format!("{verb} k{key} {delta}\r\n").into_bytes(), arithmetic(model, verb, key, delta).into_bytes())
        }
        Op::SetNumber { key, number } => {
            model.insert(key, number.to_string().into_bytes());
            (
                format!("set k{key} 0 0 {}\r\n{number}\r\n", number.to_string().len()).into_bytes(),
                b"STORED\r\n".to_vec(),
            )
        }
        Op::Flush => {
            model.clear();
            (b"flush_all\r\n".to_vec(), b"OK\r\n".to_vec())
        }
    };
    (run(store, &input, NOW_S), expected)
}

fn arithmetic(model: &mut Model, verb: &str, key: u8, delta: u64) -> String {
    let Some(value) = model.get_mut(&key) else { return "NOT_FOUND\r\n".to_owned() };
    let Some(old) = std::str::from_utf8(value).ok().and_then(|text| text.trim_end().parse::<u64>().ok()) else {
        return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned();
    };
    let new = if verb == "incr" { old.wrapping_add(delta) } else { old.saturating_sub(delta) };
    *value = format!("{new:<width$}", width = value.len()).into_bytes();
    format!("{new}\r\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn with_enough_memory_the_store_is_a_map(ops in ops(3000)) {
        let store = Store::new(FlatMemory::new(32 << 20), SMALL).expect("large enough");
        let mut model = Model::new();
        for (step, op) in ops.iter().enumerate() {
            let (reply, expected) = apply(&store, &mut model, step, op);
            prop_assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{:?}", op);
        }
        let evictions = stat(&store, "evictions");
        prop_assert_eq!(evictions, 0);
    }

    #[test]
    fn with_little_memory_values_vanish_but_are_never_wrong(ops in ops(40_000)) {
        let store = Store::new(FlatMemory::new(512 << 10), SMALL).expect("large enough");
        let mut model = Model::new();
        for (step, op) in ops.iter().enumerate() {
            let before = model.clone();
            let (reply, expected) = apply(&store, &mut model, step, op);
            if reply != expected {
                // The only excuse is that the item was evicted: then the store answers as for an item that is not
                // there.
                let key = match *op {
                    Op::Write { key, .. } | Op::CasOf { key, .. } | Op::Get { key } | Op::Delete { key }
                    | Op::Arithmetic { key, .. } | Op::SetNumber { key, .. } => key,
                    Op::Flush => 0,
                };
                prop_assert!(before.contains_key(&key), "{op:?} answered {}", reply.escape_ascii());
                let grown = before[&key].len() + 40_000 > SMALL.value_bytes_max;
                let excuses: &[&[u8]] = &[b"END\r\n", b"NOT_STORED\r\n", b"NOT_FOUND\r\n"];
                let added = matches!(op, Op::Write { verb: "add", .. }) && reply == b"STORED\r\n";
                prop_assert!(excuses.contains(&reply.as_slice()) || added, "{op:?} answered {}", reply.escape_ascii());
                let kept = value(&run(&store, format!("get k{key}\r\n").as_bytes(), NOW_S)).map(<[u8]>::to_vec);
                match kept {
                    Some(kept) if added => prop_assert_eq!(&kept, &pattern(step, kept.len())),
                    // An append that would exceed the limit leaves the item as it is.
                    Some(kept) => prop_assert!(grown && kept == before[&key]),
                    None => {}
                }
            }
            // The model follows what the store has.
            for key in 0..40 {
                let got = run(&store, format!("get k{key}\r\n").as_bytes(), NOW_S);
                match value(&got) {
                    None => drop(model.remove(&key)),
                    Some(bytes) if reply == expected || !matches!(op, Op::Write { .. }) => {
                        prop_assert_eq!(Some(bytes), model.get(&key).map(Vec::as_slice));
                    }
                    Some(bytes) => drop(model.insert(key, bytes.to_vec())),
                }
            }
        }
    }
}
