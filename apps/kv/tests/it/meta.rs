//! The meta commands on a store: what `testing/e2e` cannot compare with memcached 1.6.18, because it came later or is
//! answered differently on purpose, and memory that fails.

use proptest::prelude::*;
use yonder_kv::{Store, StoreConfig};

use crate::memory::{Faults, FlatMemory, run, stat};

const NOW_S: u32 = 1_700_000_000;

fn store() -> Store<FlatMemory> {
    store_with(StoreConfig { access_times: true, ..StoreConfig::default() })
}

fn store_with(config: StoreConfig) -> Store<FlatMemory> {
    Store::new(FlatMemory::new(8 << 20), config).expect("the memory is large enough")
}

/// Runs pairs of input and expected reply at one moment.
fn script_at(store: &Store<FlatMemory>, now_s: u32, steps: &[(&str, &str)]) {
    for (input, expected) in steps {
        let reply = run(store, input.as_bytes(), now_s);
        assert_eq!(String::from_utf8_lossy(&reply), *expected, "{input:?}");
    }
}

fn script(store: &Store<FlatMemory>, steps: &[(&str, &str)]) {
    script_at(store, NOW_S, steps);
}

#[test]
fn one_client_wins_the_right_to_recache() {
    let store = store();
    script(
        &store,
        &[
            ("mg k v N30 t\r\n", "VA 0 t30 W\r\n\r\n"),
            ("mg k v N30 t\r\n", "VA 0 t30 Z\r\n\r\n"),
            ("ms k 3 T90\r\nabc\r\n", "HD\r\n"),
            ("mg k v N30\r\n", "VA 3\r\nabc\r\n"),
            ("mg k R60 t\r\n", "HD t90\r\n"),
            ("mg k R100 t\r\n", "HD t90 W\r\n"),
            ("mg k R100 t\r\n", "HD t90 Z\r\n"),
        ],
    );
    script_at(&store, NOW_S + 90, &[("mg k v\r\n", "EN\r\n"), ("mg k q\r\n", "")]);
}

#[test]
fn what_is_invalidated_is_stale_until_it_is_recached() {
    script(
        &store(),
        &[
            ("ms k 3 T90 c\r\nold\r\n", "HD c1\r\n"),
            ("md k I T30\r\n", "HD\r\n"),
            ("mg k v c t s\r\n", "VA 3 c2 t30 s3 X W\r\nold\r\n"),
            ("mg k v\r\n", "VA 3 Z X\r\nold\r\n"),
            ("ms k 3 C9\r\nbad\r\n", "EX\r\n"),
            // An older cas unique is taken with I: the value is new, and stale all the same.
            ("ms k 4 C1 I T900 c\r\nmore\r\n", "HD c3\r\n"),
            ("mg k v t\r\n", "VA 4 t30 Z X\r\nmore\r\n"),
            ("ms k 3 C3\r\nnew\r\n", "HD\r\n"),
            ("mg k v t\r\n", "VA 3 t-1\r\nnew\r\n"),
            ("md k C1\r\n", "EX\r\n"),
            ("md k C4 q\r\n", ""),
            ("md k q k Oz\r\n", "NF kk Oz\r\n"),
        ],
    );
}

#[test]
fn clients_may_choose_cas_uniques() {
    let store = store();
    script(
        &store,
        &[
            ("ms k 1 E1000 c\r\n1\r\n", "HD c1000\r\n"),
            ("gets k\r\n", "VALUE k 0 1 1000\r\n1\r\nEND\r\n"),
            ("ma k E7 v c\r\n", "VA 1 c7\r\n2\r\n"),
            ("md k I E5\r\n", "HD\r\n"),
            ("mg k c\r\n", "HD c5 X W\r\n"),
            ("ms k 1 C5 E6 MA c s\r\n2\r\n", "HD c6 s2\r\n"),
            ("mg new N0 E77 c\r\n", "HD c77 W\r\n"),
            ("ma count N0 J5 E9 c v\r\n", "VA 1 c9\r\n5\r\n"),
            // Those of others go on where they were.
            ("ms other 1 c\r\n1\r\n", "HD c1\r\n"),
            ("flush_all\r\nmg k c\r\nmg new c\r\nms k 1 E1\r\nx\r\nmg k c\r\n", "OK\r\nEN\r\nEN\r\nHD\r\nHD c1\r\n"),
        ],
    );
    assert_eq!(stat(&store, "curr_items"), 3, "what was flushed and not asked for is there until it is found");
}

#[test]
fn a_value_goes_and_its_item_stays() {
    script(
        &store(),
        &[
            ("ms k 5 F9 T90\r\nvalue\r\n", "HD\r\n"),
            ("md k x\r\n", "HD\r\n"),
            ("mg k v f c t\r\n", "VA 0 f0 c1 t-1\r\n\r\n"),
            ("ms k 5\r\nvalue\r\n", "HD\r\n"),
            ("md k x I T30 F3\r\n", "HD\r\n"),
            ("mg k v f c t\r\n", "VA 0 f3 c3 t30 X W\r\n\r\n"),
            ("md k x E50 C3\r\nmg k c\r\n", "HD\r\nHD c50\r\n"),
            ("md k x C3\r\n", "EX\r\n"),
            ("md absent x\r\n", "NF\r\n"),
        ],
    );
}

#[test]
fn values_come_only_if_they_are_new() {
    script(
        &store(),
        &[
            ("ms k 2\r\nhi\r\n", "HD\r\n"),
            ("mg k v c C1\r\n", "HD c1\r\n"),
            ("mg k v c C2\r\n", "VA 2 c1\r\nhi\r\n"),
            ("mg k v C1 T30 t\r\n", "HD t30\r\n"),
        ],
    );
}

#[test]
fn appending_may_make_an_item() {
    script(
        &store(),
        &[
            ("ms k 1 MA\r\n1\r\n", "NS\r\n"),
            ("ms k 1 MA s\r\n1\r\n", "NS s1\r\n"),
            ("ms k 1 MA N60 T5 F4 s\r\n1\r\n", "HD s1\r\n"),
            ("ms k 2 MP N90 s k\r\nab\r\n", "HD s3 kk\r\n"),
            ("mg k v f t\r\n", "VA 3 f4 t60\r\nab1\r\n"),
        ],
    );
}

#[test]
fn numbers_are_counted_quietly_or_not() {
    script(
        &store(),
        &[
            ("ma n\r\n", "NF\r\n"),
            ("ma n q N60 J13 v t\r\n", ""),
            ("ma n v t T90 c Ox k\r\n", "VA 2 t60 c2 Ox kn\r\n14\r\n"),
            ("ma n MD D100 v q\r\n", ""),
            ("mg n v t\r\n", "VA 2 t90\r\n0 \r\n"),
            ("ma n C1\r\n", "EX\r\n"),
            (
                "set n 0 0 1\r\nx\r\nma n q Oz\r\n",
                "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
        ],
    );
}

#[test]
fn keys_in_base64_are_shown_so() {
    script(
        &store(),
        &[
            ("ms AAEgDQo= 1 b k\r\n1\r\n", "HD kAAEgDQo= b\r\n"),
            ("ms AAEgDQo= 1 b MA\r\n2\r\n", "HD\r\n"),
            ("mg AAEgDQo= b k v\r\n", "VA 2 kAAEgDQo= b\r\n12\r\n"),
            ("ma AAEgDQo= b D999999\r\n", "HD\r\n"),
            ("mg AAEgDQo= b k v\r\n", "VA 7 kAAEgDQo= b\r\n1000011\r\n"),
            ("mg /w== b k N0\r\n", "HD k/w== b W\r\n"),
            ("mg /w== b k\r\n", "HD k/w== b Z\r\n"),
            ("me /w== b x\r\n", "ME /w== exp=-1 la=0 cas=4 fetch=yes cls=1 size=37\r\n"),
        ],
    );
}

#[test]
fn reads_leave_no_trace_in_far_memory() {
    let memory = FlatMemory::new(8 << 20);
    let config = StoreConfig { access_times: true, ..StoreConfig::default() };
    let store = Store::new(memory.clone(), config).expect("the memory is large enough");
    script(&store, &[("set k 0 0 1\r\n1\r\n", "STORED\r\n"), ("mg k h u\r\n", "HD h0\r\n")]);
    let before = memory.writes();
    script(&store, &[("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n"), ("mg k h\r\n", "HD h1\r\n")]);
    script(&store, &[("mg k l\r\n", "HD l0\r\n")]);
    script_at(&store, NOW_S + 40, &[("mg k l u\r\n", "HD l40\r\n"), ("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")]);
    script_at(&store, NOW_S + 50, &[("mg k l h\r\n", "HD l10 h1\r\n")]);
    assert_eq!(memory.writes(), before);
    script_at(&store, NOW_S + 60, &[("set k 0 0 1\r\n1\r\n", "STORED\r\n"), ("mg k h l\r\n", "HD h0 l0\r\n")]);
}

#[test]
fn last_accesses_take_local_memory_and_no_client_has_it_taken() {
    let bytes = [true, false].map(|access_times| {
        let store = store_with(StoreConfig { access_times, ..StoreConfig::default() });
        script(&store, &[("set k 0 0 1\r\n1\r\n", "STORED\r\n"), ("mg k h v\r\n", "VA 1 h0\r\n1\r\n")]);
        let before = stat(&store, "local_metadata_bytes");
        let seconds = if access_times { 50 } else { 0 };
        script_at(&store, NOW_S + 50, &[("mg k l\r\n", &format!("HD l{seconds}\r\n")), ("me absent\r\n", "EN\r\n")]);
        assert_eq!(stat(&store, "local_metadata_bytes"), before);
        before
    });
    assert!(bytes[0] > bytes[1], "{bytes:?}");
}

/// A meta command on one of two keys; values name the key.
fn command() -> impl Strategy<Value = String> {
    let flags =
        prop::sample::subsequence(vec!["v", "c", "t", "I", "N60", "T90", "R95", "q", "x", "E5", "k", "h", "l"], 0..6);
    (prop::sample::select(vec!["mg", "ms", "md", "ma", "me"]), "[ab]", flags, 1..200_usize, "[EARPS]").prop_map(
        |(verb, key, flags, len, mode)| {
            let flags: String = flags.iter().map(|flag| format!(" {flag}")).collect();
            match verb {
                "ms" => format!("ms {key} {len} M{mode}{flags}\r\n{}\r\n", key.repeat(len)),
                "me" => format!("me {key}\r\n"),
                _ => format!("{verb} {key}{flags}\r\n"),
            }
        },
    )
}

proptest! {
    #[test]
    fn memory_that_fails_leaves_whole_items(commands in prop::collection::vec(command(), 1..80), one_in in 2..12_u64) {
        let memory = FlatMemory::new(8 << 20);
        let store = Store::new(memory.clone(), StoreConfig::default()).expect("the memory is large enough");
        memory.fail(Faults::OneIn(one_in));
        for command in &commands {
            let reply = run(&store, command.as_bytes(), NOW_S);
            prop_assert!(reply.is_empty() || reply.ends_with(b"\r\n"), "{}", reply.escape_ascii());
        }
        memory.fail(Faults::Never);
        for key in ["a", "b"] {
            let reply = String::from_utf8(run(&store, format!("mg {key} v s\r\n").as_bytes(), NOW_S)).expect("text");
            let Some((line, value)) = reply.split_once("\r\n") else { panic!("{reply}") };
            let value = value.strip_suffix("\r\n").unwrap_or_default();
            if line != "EN" {
                prop_assert!(line.starts_with(&format!("VA {0} s{0}", value.len())), "{line} and {}", value.len());
                // What was stored, and numbers.
                let is_its = |byte: u8| byte == key.as_bytes()[0] || byte.is_ascii_digit() || byte == b' ';
                prop_assert!(value.bytes().all(is_its), "{value}");
            }
        }
    }
}
