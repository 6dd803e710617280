//! The target `settings`: lines that a process gets from whoever asks it for its settings, and lines that it answers.
//!
//! What is understood is written again as what means the same; how a stream is cut into lines does not depend on how it
//! arrives.

use yonder_settings::{Kind, LineTooLong, Lines, Name, REQUEST_BYTES_MAX, ReplyLine, Request, VERSION, Value};

use crate::{Target, Trail};

pub(crate) const TARGET: Target = Target { name: "settings", step_bytes: 1, bytes_max: 1024, run };

fn run(data: &[u8], trail: &mut Trail) {
    let Some((how, bytes)) = data.split_first() else { return };
    match how % 4 {
        0 => check_request(bytes, trail),
        1 => check_request(&[format!("{VERSION} set ").as_bytes(), bytes].concat(), trail),
        2 => check_reply(bytes, trail),
        _ => check_lines(bytes, trail),
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_words(text, trail);
    }
}

fn check_request(line: &[u8], trail: &mut Trail) {
    match Request::parse(line) {
        Ok(request) => {
            let written = request.to_string();
            assert!(written.len() < REQUEST_BYTES_MAX && !written.contains('\n'));
            assert_eq!(Request::parse(written.as_bytes()), Ok(request));
            let kind = match request {
                Request::About => 1,
                Request::Get(None) => 2,
                Request::Get(Some(_)) => 3,
                Request::Set(name, value) => {
                    assert_eq!(name.kind(), value.kind());
                    4
                }
                Request::Stats => 5,
                Request::Regions => 6,
                Request::Cold => 7,
            };
            trail.note([1, kind, 0]);
        }
        Err(why) => {
            assert!(!why.contains(['\n', '\r', '\u{1b}']), "a complaint of one line: {why:?}");
            trail.note([2, why.len() as u64 % 64, 0]);
        }
    }
}

fn check_reply(line: &[u8], trail: &mut Trail) {
    let Ok(reply) = ReplyLine::parse(line) else { return trail.note([3, 0, 0]) };
    assert_eq!(reply.to_string().as_bytes(), line, "a line is written in one way only");
    let fields = match &reply {
        ReplyLine::Row(row) => row.fields().len() as u64,
        ReplyLine::Done => 100,
        ReplyLine::Not(refusal) => 101 + u64::from(refusal.text().is_empty()),
    };
    trail.note([4, fields, 0]);
}

fn check_words(text: &str, trail: &mut Trail) {
    if let Ok(name) = text.parse::<Name>() {
        assert_eq!(name.to_string(), text);
        trail.note([5, 0, 0]);
    }
    for (number, kind) in [Kind::Size, Kind::Time, Kind::Count].into_iter().enumerate() {
        if let Ok(value) = Value::parse(kind, text) {
            assert_eq!(Value::parse(kind, &value.to_string()), Ok(value));
            trail.note([6, number as u64, value.amount().and_then(u64::checked_ilog2).map_or(0, u64::from)]);
        }
    }
}

/// Longest line here.
const LINE_BYTES_MAX: usize = 24;

fn check_lines(bytes: &[u8], trail: &mut Trail) {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let pieces = |bytes: usize| {
        let (mut lines, mut found) = (Lines::new(LINE_BYTES_MAX), Vec::new());
        for piece in stream.chunks(bytes) {
            lines.push(piece);
            loop {
                match lines.next_line() {
                    Ok(Some(line)) => found.push(line),
                    Ok(None) => break,
                    Err(LineTooLong) => return (found, true),
                }
            }
        }
        (found, false)
    };
    let (whole, is_too_long) = pieces(stream.len().max(1));
    assert_eq!(pieces(1 + usize::from(*cut)), (whole.clone(), is_too_long));
    assert!(whole.iter().all(|line| line.len() < LINE_BYTES_MAX && !line.contains(&b'\n')));
    trail.note([7, whole.len().min(16) as u64, is_too_long.into()]);
}
