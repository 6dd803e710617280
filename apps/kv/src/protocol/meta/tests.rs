//! Tests of the lines of meta commands.

use proptest::prelude::*;

use super::*;

fn request(line: &str) -> MetaRequest {
    match parse(line.as_bytes()) {
        Some(MetaLine::Whole(request)) => request,
        other => panic!("{line} gave {other:?}"),
    }
}

#[test]
fn flags_keep_their_order() {
    let flags = request("mg a2V5 s v Oabc T30 t u c k q f h l N-1 R5 b").flags;
    let steps = [
        MetaStep::Size,
        MetaStep::Opaque,
        MetaStep::Expire(Exptime(30)),
        MetaStep::TimeLeft,
        MetaStep::Cas,
        MetaStep::Key,
        MetaStep::ClientFlags,
        MetaStep::Fetched,
        MetaStep::LastAccess,
        MetaStep::ExpireNew(Exptime(-1)),
        MetaStep::Recache(Exptime(5)),
    ];
    assert_eq!(flags.steps, steps);
    assert_eq!((flags.opaque.as_slice(), flags.answer), (&b"Oabc"[..], Answer::Quiet));
    assert_eq!((flags.exptime(), flags.new_exptime()), (Some(Exptime(30)), Some(Exptime(-1))));
    assert!(flags.shows_value && flags.leaves_no_trace && !flags.invalidates && !flags.empties);
}

#[test]
fn keys_may_be_base64() {
    let request = request("mg Zm9vIGJhcg== k b");
    assert_eq!((request.key(), request.flags.key_form), (&b"foo bar"[..], KeyForm::Base64));
    assert_eq!(self::request("me Zm9v b").key(), b"foo");
    assert_eq!(self::request("me Zm9v x").key(), b"Zm9v");
}

#[test]
fn writes_announce_their_value() {
    let Some(MetaLine::Set { value_bytes, head }) = parse(b"ms k 12 MA C7 E9 F5 I c") else { panic!("a write") };
    let MetaFlags { cas, new_cas, client_flags, invalidates, .. } = head.flags;
    assert_eq!((value_bytes, head.verb), (12, MetaVerb::Set(MetaSetMode::Append)));
    assert_eq!((cas, new_cas, client_flags, invalidates), (Some(7), Some(9), 5, true));
    for (mode, verb) in [
        ("", MetaSetMode::Set),
        (" MS", MetaSetMode::Set),
        (" ME", MetaSetMode::Add),
        (" MR", MetaSetMode::Replace),
        (" MP", MetaSetMode::Prepend),
    ] {
        let line = format!("ms k 1{mode}");
        let Some(MetaLine::Set { head, .. }) = parse(line.as_bytes()) else { panic!("{line}") };
        assert_eq!(head.verb, MetaVerb::Set(verb), "{line}");
    }
}

#[test]
fn arithmetic_has_a_direction_a_delta_and_a_start() {
    let arithmetic = |line| match request(line).verb {
        MetaVerb::Arithmetic(MetaArithmetic { direction, delta, initial }) => (direction, delta, initial),
        verb => panic!("{line} is {verb:?}"),
    };
    assert_eq!(arithmetic("ma k"), (Direction::Up, 1, 0));
    assert_eq!(arithmetic("ma k MI D5 J9"), (Direction::Up, 5, 9));
    assert_eq!(arithmetic("ma k M+"), (Direction::Up, 1, 0));
    assert_eq!(arithmetic("ma k MD"), (Direction::Down, 1, 0));
    assert_eq!(arithmetic("ma k M- D18446744073709551615"), (Direction::Down, u64::MAX, 0));
}

#[test]
fn lines_that_are_wrong_are_refused() {
    let long = "k".repeat(251);
    for (line, answer) in [
        ("mn", reply::META_NO_OP),
        ("mn x y", reply::META_NO_OP),
        ("mg", reply::ERROR),
        ("ms", reply::ERROR),
        ("me", reply::BAD_FORMAT),
        ("ms k", reply::BAD_FORMAT),
        ("ms k x", reply::BAD_FORMAT),
        ("ms k -1", reply::BAD_FORMAT),
        ("me ! b", reply::BAD_FORMAT),
        (&format!("mg {long}"), reply::BAD_FORMAT),
        (&format!("ms {long} 1"), reply::BAD_FORMAT),
        ("mg k v v", reply::DUPLICATE_FLAG),
        ("mg k \u{e4}", reply::DUPLICATE_FLAG),
        ("mg k Tx v v", reply::DUPLICATE_FLAG),
        ("mg k ! Tx", reply::UNKNOWN_FLAG),
        ("mg k Tx", reply::BAD_TOKEN),
        ("mg k T", reply::BAD_TOKEN),
        ("mg k C-1", reply::BAD_TOKEN),
        ("mg k b", reply::BAD_BASE64),
        ("mg k b Tx", reply::BAD_TOKEN),
        ("mg k Fx", reply::BAD_FORMAT),
        ("mg k Tx Fx", reply::BAD_TOKEN),
        ("mg k Jx Dx", reply::BAD_META_DELTA),
        ("mg k Mxy", reply::BAD_MODE_LENGTH),
        (&format!("mg k O{}", "x".repeat(32)), reply::OPAQUE_TOO_LONG),
        ("md k v v", reply::BAD_FLAG),
        ("ma k Dx", reply::BAD_FLAG),
        ("ma k MX", reply::BAD_ARITHMETIC_MODE),
        (&format!("mg k{}", " s".repeat(18)), reply::TOO_MANY_GET_FLAGS),
        (&format!("ms k 1{}", " s".repeat(17)), reply::TOO_MANY_FLAGS),
        (&format!("md k{}", " s".repeat(18)), reply::TOO_MANY_FLAGS),
    ] {
        assert_eq!(parse(line.as_bytes()), Some(MetaLine::Answer(answer)), "{line}");
    }
    for line in ["mz k", "m", "mgg k", "MG k", "", " "] {
        assert_eq!(parse(line.as_bytes()), None, "{line}");
    }
}

#[test]
fn a_write_with_flags_that_are_wrong_takes_its_value_along() {
    for (line, answer) in [
        ("ms k 7 MX", reply::BAD_SET_MODE),
        ("ms k 7 S S", reply::UNKNOWN_FLAG),
        ("ms k 7 c c", reply::DUPLICATE_FLAG),
        ("ms k 7 b", reply::BAD_BASE64),
        (&format!("ms k 7 O{}", "x".repeat(32)), reply::OPAQUE_TOO_LONG),
        (&format!("ms k 7 MX O{}", "x".repeat(32)), reply::BAD_SET_MODE),
    ] {
        assert_eq!(parse(line.as_bytes()), Some(MetaLine::Skip { value_bytes: 7, answer }), "{line}");
    }
}

proptest! {
    #[test]
    fn any_line_is_no_panic(line in prop::collection::vec(any::<u8>(), 0..200), verb in "m[adegns]") {
        let line = [verb.as_bytes(), b" ", &line].concat();
        prop_assert!(parse(&line).is_some());
    }

    #[test]
    fn a_key_survives_base64(key in prop::collection::vec(any::<u8>(), 1..180)) {
        let mut line = b"mg ".to_vec();
        base64::encode(&key, &mut line);
        line.extend_from_slice(b" b k");
        let Some(MetaLine::Whole(request)) = parse(&line) else { panic!("{}", line.escape_ascii()) };
        prop_assert_eq!(request.key(), &key);
    }
}
