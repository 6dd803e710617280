//! Tests of the parser: single lines, resynchronisation, splitting, random bytes.

use proptest::prelude::*;

use super::*;

const VALUE_BYTES_MAX: usize = 64;

/// All steps of an input that arrives in pieces, as a connection would see them.
fn steps(pieces: &[&[u8]]) -> Vec<Step> {
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    let mut buffer = Vec::new();
    let mut steps = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let parsed = parser.step(&buffer);
            buffer.drain(..parsed.consumed);
            match parsed.step {
                Step::NeedMore { bytes } => {
                    assert!(bytes > buffer.len(), "asks for {bytes} with {} at hand", buffer.len());
                    assert!(bytes <= Parser::input_bytes_max(VALUE_BYTES_MAX));
                    break;
                }
                step => {
                    let ends = matches!(step, Step::Close(_) | Step::Quit);
                    steps.push(step);
                    if ends {
                        return steps;
                    }
                }
            }
        }
    }
    steps
}

fn one(line: &[u8]) -> Step {
    let mut all = steps(&[line]);
    assert_eq!(all.len(), 1, "{} gave {all:?}", line.escape_ascii());
    all.remove(0)
}

fn execute(line: &[u8]) -> Command {
    match one(line) {
        Step::Execute(command) => command,
        step => panic!("{} gave {step:?}", line.escape_ascii()),
    }
}

#[test]
fn commands_are_read() {
    let write = |mode, answer| Command::Write {
        mode,
        item: KeyValue::new(b"k", b"abc"),
        flags: 7,
        exptime: Exptime(-1),
        answer,
    };
    assert_eq!(execute(b"set k 7 -1 3\r\nabc\r\n"), write(WriteMode::Set, Answer::Wanted));
    assert_eq!(execute(b"add k 7 -1 3 noreply\r\nabc\r\n"), write(WriteMode::Add, Answer::Quiet));
    assert_eq!(execute(b"replace k 7 -1 3\nabc\r\n"), write(WriteMode::Replace, Answer::Wanted));
    assert_eq!(execute(b"append  k  7 -1 3 \r\nabc\r\n"), write(WriteMode::Append, Answer::Wanted));
    assert_eq!(execute(b"prepend k 7 -1 3\r\nabc\r\n"), write(WriteMode::Prepend, Answer::Wanted));
    assert_eq!(execute(b"cas k 7 -1 3 99\r\nabc\r\n"), write(WriteMode::Cas(99), Answer::Wanted));
    assert_eq!(execute(b"cas k 7 -1 3 99 noreply\r\nabc\r\n"), write(WriteMode::Cas(99), Answer::Quiet));
    let get = |cas, touch| Command::Get { keys: Keys::new(b" a b"), cas, touch };
    assert_eq!(execute(b"get a b\r\n"), get(CasShown::No, None));
    assert_eq!(execute(b"gats 5 a b\r\n"), get(CasShown::Yes, Some(Exptime(5))));
    let key = b"k".to_vec();
    assert_eq!(execute(b"delete k 0\r\n"), Command::Delete { key: key.clone(), answer: Answer::Wanted });
    let up = Command::Arithmetic { key: key.clone(), direction: Direction::Up, delta: 3, answer: Answer::Wanted };
    assert_eq!(execute(b"incr k 3\r\n"), up);
    assert_eq!(execute(b"touch k 9 noreply\r\n"), Command::Touch { key, exptime: Exptime(9), answer: Answer::Quiet });
    assert_eq!(execute(b"flush_all noreply\r\n"), Command::FlushAll { delay: Exptime(0), answer: Answer::Quiet });
    assert_eq!(execute(b"flush_all 5\r\n"), Command::FlushAll { delay: Exptime(5), answer: Answer::Wanted });
    assert_eq!(one(b"stats settings\r\n"), Step::Stats(StatsKind::Settings));
    assert_eq!(one(b"stats hits\r\n"), Step::Stats(StatsKind::Hits));
    assert_eq!(one(b"version\r\n"), Step::Version);
    assert_eq!(one(b"quit\r\n"), Step::Quit);
    assert_eq!(one(b"verbosity 1\r\n"), Step::Answer(reply::OK));
    assert_eq!((one(b"shutdown\r\n"), one(b"shutdown graceful\r\n")), (Step::Shutdown, Step::Shutdown));
    assert_eq!(one(b"shutdown now\r\n"), Step::Answer(reply::BAD_SHUTDOWN));
    assert_eq!(one(b"cache_memlimit 1024\r\n"), Step::Answer(reply::MEMORY_LIMIT_REFUSED));
    assert_eq!(one(b"cache_memlimit 7\r\n"), Step::Answer(reply::MEMORY_LIMIT_TOO_SMALL));
    assert_eq!(one(b"cache_memlimit 7 noreply\r\n"), Step::Answer(b""));
    assert_eq!(one(b"cache_memlimit x\r\n"), Step::Answer(reply::ERROR));
}

#[test]
fn errors_are_memcacheds() {
    for line in
        ["\r\n", "x\r\n", "get\r\n", "set k 0 0\r\n", "incr k\r\n", "mz k\r\n", "GET k\r\n", "flush_all 1 2 3\r\n"]
    {
        assert_eq!(one(line.as_bytes()), Step::Answer(reply::ERROR), "{line:?}");
    }
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    for line in [
        format!("get a {long}\r\n"),
        format!("delete {long}\r\n"),
        format!("incr {long} 1\r\n"),
        "get a\0b\r\n".to_owned(),
        "set k x 0 1\r\n".to_owned(),
        "set k 0 0 -1\r\n".to_owned(),
        "cas k 0 0 1 -1\r\n".to_owned(),
        "verbosity x\r\n".to_owned(),
    ] {
        assert_eq!(one(line.as_bytes()), Step::Answer(reply::BAD_FORMAT), "{line:?}");
    }
    assert_eq!(execute(b"get a\tb\r\n"), Command::Get { keys: Keys::new(b" a\tb"), cas: CasShown::No, touch: None });
    assert_eq!(one(b"incr k x\r\n"), Step::Answer(reply::BAD_DELTA));
    assert_eq!(one(b"touch k x\r\n"), Step::Answer(reply::BAD_EXPTIME));
    assert_eq!(one(b"delete k 1\r\n"), Step::Answer(reply::BAD_DELETE));
    assert_eq!(one(b"delete k 1 noreply\r\n"), Step::Answer(b""));
    assert_eq!(one(b"GET / HTTP/1.1\r\n"), Step::Close(b""));
}

#[test]
fn a_bad_block_end_resumes_behind_the_announced_length() {
    let expected = [Step::Answer(reply::BAD_CHUNK), Step::Answer(reply::ERROR), Step::Version];
    assert_eq!(steps(&[b"set k 0 0 3\r\nabcde\r\nversion\r\n"]), expected);
}

#[test]
fn a_value_that_is_too_large_is_skipped() {
    let line = b"set k 0 0 65 noreply\r\n";
    let block = [b'x'; 65];
    let refused = refused(WriteRefusal::TooLarge, Answer::Quiet);
    assert_eq!(steps(&[line, &block, b"\r\nversion\r\n"]), [Step::Execute(refused), Step::Version]);
}

#[test]
fn meta_writes_take_their_value_along() {
    let Command::Meta(request) = execute(b"ms YWJj 3 b c\r\nxyz\r\n") else { panic!("a meta command") };
    assert_eq!((request.key(), request.item.value()), (&b"abc"[..], &b"xyz"[..]));
    let bad = [Step::Answer(reply::BAD_CHUNK), Step::Answer(reply::META_NO_OP)];
    assert_eq!(steps(&[b"ms k 3 q\r\nabcdemn\r\n"]), bad);
    let skipped = [Step::Answer(reply::UNKNOWN_FLAG), Step::Answer(reply::META_NO_OP)];
    assert_eq!(steps(&[b"ms k 6 !\r\nmn\r\n", b"mn\r\n mn\r\n"]), skipped);
    let refused = refused(WriteRefusal::TooLarge, Answer::Wanted);
    let large = [b"ms k 65 q MA\r\n", &[b'x'; 65][..], b"\r\nmn\r\n"].concat();
    assert_eq!(steps(&[&large]), [Step::Execute(refused), Step::Answer(reply::META_NO_OP)]);
}

fn refused(refusal: WriteRefusal, answer: Answer) -> Command {
    Command::WriteRefused { mode: WriteMode::Set, key: b"k".to_vec(), refusal, answer }
}

#[test]
fn a_value_without_room_is_skipped_wherever_it_was_cut() {
    let whole = b"set k 0 0 60 noreply\r\n\r\nversion\r\n-----------------------------------------------xx\r\n";
    let line = whole.iter().position(|byte| *byte == b'\n').expect("there is a line") + 1;
    assert_eq!(whole.len() - line, 62);
    for cut in line..whole.len() {
        let mut parser = Parser::new(VALUE_BYTES_MAX);
        assert!(matches!(parser.step(&whole[..cut]).step, Step::NeedMore { .. }));
        let parsed = parser.refuse(&whole[..cut]);
        let expected = Step::Execute(refused(WriteRefusal::NoRoom, Answer::Quiet));
        assert_eq!(parsed, Parsed { consumed: cut, step: expected });
        assert!(parser.is_skipping());
        let rest = [&whole[cut..], b"version\r\n"].concat();
        assert_eq!(parser.step(&rest), Parsed { consumed: rest.len(), step: Step::Version });
        assert!(!parser.is_skipping());
    }
}

#[test]
fn a_line_without_room_is_the_last() {
    let mut parser = Parser::new(VALUE_BYTES_MAX);
    let line = b"get a b c";
    assert!(matches!(parser.step(line).step, Step::NeedMore { .. }));
    assert_eq!(parser.refuse(line), Parsed { consumed: line.len(), step: Step::Close(reply::NO_ROOM_FOR_LINE) });
}

#[test]
fn the_largest_key_and_value_pass() {
    let key = "k".repeat(KEY_BYTES_MAX);
    let value = "v".repeat(VALUE_BYTES_MAX);
    let Command::Write { item, .. } = execute(format!("set {key} 0 0 {VALUE_BYTES_MAX}\r\n{value}\r\n").as_bytes())
    else {
        panic!("no write");
    };
    assert_eq!((item.key(), item.value()), (key.as_bytes(), value.as_bytes()));
}

#[test]
fn line_lengths_are_bounded() {
    let fits = format!("{:width$}\n", "x", width = LINE_BYTES_MAX - 1);
    assert_eq!(one(fits.as_bytes()), Step::Answer(reply::ERROR));
    let long = format!("{:width$}\n", "x", width = LINE_BYTES_MAX);
    assert_eq!(one(long.as_bytes()), Step::Close(reply::LINE_TOO_LONG));
    assert_eq!(one(&[b'x'; LINE_BYTES_MAX]), Step::Close(reply::LINE_TOO_LONG));
    assert!(steps(&[&[b'x'; LINE_BYTES_MAX - 1]]).is_empty());
    let keys = format!("get{}\r\n", " k".repeat(GET_LINE_BYTES_MAX / 2 - 3));
    assert!(matches!(one(keys.as_bytes()), Step::Execute(Command::Get { .. })));
    let keys = format!("get {}", " k".repeat(GET_LINE_BYTES_MAX / 2));
    assert_eq!(one(keys.as_bytes()), Step::Close(reply::LINE_TOO_LONG));
}

/// Bytes that look like commands often enough to reach every branch.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "get",
            "gets",
            "gat",
            "set",
            "add",
            "cas",
            "append",
            "delete",
            "incr",
            "touch",
            "flush_all",
            "stats",
            "verbosity",
            "version",
            "k",
            "0",
            "3",
            "70",
            "-1",
            "noreply",
            "items",
            "abc",
            "\t",
            "mg",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "v",
            "q",
            "T0",
            "Oxy",
            "b",
            "YWJj",
            "MA",
            "HTTP/1.1",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    let end = prop::sample::select(vec![&b" "[..], b" ", b" ", b"\r\n", b"\n", b""]);
    prop::collection::vec((word, end), 0..60)
        .prop_map(|words| words.into_iter().flat_map(|(word, end)| [word, end.to_vec()]).flatten().collect())
}

proptest! {
    #[test]
    fn splitting_changes_nothing(input in input(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        let whole = steps(&[&input]);
        prop_assert_eq!(&steps(&pieces), &whole);
        prop_assert_eq!(&steps(&bytes), &whole);
    }

    #[test]
    fn random_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..6000)) {
        steps(&[&input]);
    }
}
