//! As much HTTP as a scrape needs: a request is one GET, an answer ends with the connection.
//!
//! Both sides are bounded in bytes and by a deadline for the whole exchange, so a peer that sends nothing, too much or
//! one byte at a time costs no more than that. Bodies of requests are never read, whatever length they claim.
//!
//! The server's side is bytes alone, [`Head`], [`answer`] and [`page()`], for `connection`, which does not wait;
//! [`get`] is the client's, and waits. What it asks over is for `dial` to say.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use yonder_identity::Stream;

use crate::page;

/// Longest head of a request in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Longest answer in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bytes asked of the socket at a time.
const PIECE_BYTES: usize = 4 << 10;
/// First byte of a handshake of TLS, which no request begins with.
pub(crate) const TLS_LEAD: u8 = 0x16;

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// GET of a path, without its query.
    Get(String),
    /// Another method.
    Other,
    /// It is not HTTP, or too long.
    Bad,
}

/// How a server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
        }
    }
}

/// The head of a request, as far as it has come.
#[derive(Default, Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
}

impl Head {
    /// Takes what comes next. The request, once its head is whole or too long.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<Request> {
        // What ends a head may have begun in the piece before.
        let start = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(piece);
        if self.bytes.first() == Some(&TLS_LEAD) {
            // It never ends as a head does, and who says it is to know soon that this is not understood.
            return Some(Request::Bad);
        }
        if ends_head(&self.bytes[start..]) {
            return Some(parse_request(&self.bytes).unwrap_or(Request::Bad));
        }
        (self.bytes.len() > HEAD_BYTES_MAX).then_some(Request::Bad)
    }
}

/// An answer in plain text.
pub(crate) fn answer(status: Status, body: &str) -> Vec<u8> {
    let head = [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")];
    with_head(status, head, body)
}

/// A file of the page, with what browsers must not do with it.
pub(crate) fn page(file: &page::File) -> Vec<u8> {
    let head = [("Content-Type", file.kind)].into_iter().chain(page::HEADERS);
    with_head(Status::Ok, head, file.text)
}

fn with_head<'a>(status: Status, head: impl IntoIterator<Item = (&'a str, &'a str)>, body: &str) -> Vec<u8> {
    let (line, length) = (status.line(), body.len());
    let head: String = head.into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {line}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

/// Gets `path` from the server at the other end, until a time. `InvalidData` if what answers is not HTTP, does not have
/// the path, or says too much; `PermissionDenied` if it does not answer this client, with its reason.
pub(crate) fn get(stream: &Stream, host: SocketAddr, path: &str, deadline: Instant) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n");
    write_all(stream, request.as_bytes(), deadline)?;
    let mut answer = Vec::new();
    while read_piece(stream, &mut answer, deadline)? > 0 {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(wrong("the answer is too long"));
        }
    }
    parse_answer(answer)
}

fn ends_head(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

fn parse_request(head: &[u8]) -> Option<Request> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let [method, target, version] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    if !version.starts_with("HTTP/1.") {
        return None;
    }
    let path = target.split('?').next()?;
    Some(if method == "GET" { Request::Get(path.to_owned()) } else { Request::Other })
}

fn parse_answer(answer: Vec<u8>) -> io::Result<String> {
    let answer = String::from_utf8(answer).map_err(|_| wrong("the answer is not text"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| wrong("the answer is not HTTP"))?;
    let status = head.lines().next().unwrap_or("");
    match status.strip_prefix("HTTP/1.").and_then(|rest| rest.get(1..)) {
        Some(rest) if rest.starts_with(" 200") => Ok(body.to_owned()),
        Some(rest) if rest.starts_with(" 403") => {
            let reason = body.lines().next().unwrap_or("it does not say why");
            let reason = reason.replace(char::is_control, "\u{fffd}");
            Err(io::Error::new(ErrorKind::PermissionDenied, reason))
        }
        Some(rest) => Err(wrong(&format!("the answer is{}", rest.get(..4).unwrap_or(" an error")))),
        None => Err(wrong("the answer is not HTTP")),
    }
}

/// Reads what has arrived, and returns its length: 0 at the end.
fn read_piece(mut stream: &Stream, into: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        stream.socket().set_read_timeout(Some(remaining(deadline)?))?;
        match stream.read(&mut piece) {
            Ok(length) => {
                into.extend_from_slice(&piece[..length]);
                return Ok(length);
            }
            Err(error) => passing(error)?,
        }
    }
}

fn write_all(mut stream: &Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.socket().set_write_timeout(Some(remaining(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) => passing(error)?,
        }
    }
    Ok(())
}

/// Errors after which the same call is made again; the deadline ends that.
fn passing(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
        _ => Err(error),
    }
}

/// Time until the deadline: never zero, which sockets take for "wait forever".
fn remaining(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(time) if !time.is_zero() => Ok(time),
        _ => Err(ErrorKind::TimedOut.into()),
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let get = |path: &str| Some(Request::Get(path.to_owned()));
        assert_eq!(parse_request(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), get("/metrics"));
        assert_eq!(parse_request(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), get("/metrics"));
        assert_eq!(parse_request(b"POST /metrics HTTP/1.0\r\n\r\n"), Some(Request::Other));
        for garbage in
            [&b"\r\n\r\n"[..], b"GET /metrics\r\n\r\n", b"\xff\xfe\n\n", b"GET / SMTP\n\n", b"GET  / HTTP/1.1\n\n"]
        {
            assert_eq!(parse_request(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_head_comes_in_pieces_and_is_not_waited_for_without_end() {
        for end in ["\r\n\r\n", "\n\n"] {
            let request = format!("GET /metrics HTTP/1.1{end}and a body");
            let head = request.len() - "and a body".len();
            for piece in 1..=request.len() {
                let mut head_so_far = Head::default();
                let mut pieces = request.as_bytes().chunks(piece).enumerate();
                let (at, found) = pieces.find_map(|(at, bytes)| Some((at, head_so_far.push(bytes)?))).unwrap();
                assert_eq!(found, Request::Get("/metrics".to_owned()));
                assert_eq!(at, (head - 1) / piece, "in pieces of {piece}");
            }
        }
        let mut endless = Head::default();
        let pieces = (0..1000).take_while(|_| endless.push(&[b'x'; 100]).is_none()).count();
        assert_eq!(pieces, HEAD_BYTES_MAX / 100);
        assert_eq!(endless.push(b"x"), Some(Request::Bad));
    }

    #[test]
    fn answers() {
        let parse = |text: &str| parse_answer(text.as_bytes().to_vec()).map_err(|error| error.to_string());
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\n\r\nx 1\n"), Ok("x 1\n".to_owned()));
        assert_eq!(parse("HTTP/1.0 404 Not Found\r\n\r\n"), Err("the answer is 404".to_owned()));
        assert_eq!(parse("HTTP/1.1\r\n\r\n"), Err("the answer is an error".to_owned()));
        let refused = parse_answer(b"HTTP/1.1 403 Forbidden\r\n\r\nnot you\nnever\n".to_vec()).unwrap_err();
        assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::PermissionDenied, "not you".to_owned()));
        for garbage in ["", "\r\n\r\n", "ERROR\r\n\r\n", "HTTP/1.\r\n\r\n", "HTTP/1.é 200\r\n\r\n"] {
            assert_eq!(parse(garbage), Err("the answer is not HTTP".to_owned()), "{garbage}");
        }
        assert_eq!(parse_answer(vec![0xff; 8]).unwrap_err().to_string(), "the answer is not text");
    }

    #[test]
    fn a_deadline_in_the_past_is_an_error() {
        assert_eq!(remaining(Instant::now()).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
