//! [`Connection`]: one client of the endpoint: the head of a request comes, an answer goes, and that is all. Where
//! names are asked for both are sealed; one who speaks plainly there has a plain answer, which says so.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use rustix::event::PollFlags;
use yonder_identity::{Peer, ServerEnd};

use crate::http::{Head, Request, TLS_LEAD};

/// Bytes asked of the socket at a time.
const PIECE_BYTES: usize = 4 << 10;

/// A client, until it has its answer or `deadline` is over.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) deadline: Instant,
    speech: Speech,
    stage: Stage,
    /// What is to go, and how much of it has gone.
    outgoing: Vec<u8>,
    sent: usize,
}

/// How the client speaks.
enum Speech {
    /// As it is, and no one asks who it is.
    Plain,
    /// Nothing has come, and it is to be sealed.
    Unheard(Box<ServerEnd>),
    /// Sealed.
    Sealed(Box<ServerEnd>),
    /// As it is, where it is to be sealed.
    Nameless,
}

enum Stage {
    /// So much of the request has come.
    Asks(Head),
    /// Its answer goes.
    Answered,
    /// It is not let in, and told why. What it has sent is read, or the system would throw away what it is told.
    Refused,
}

/// Whether there is more to do with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Going {
    On,
    Over,
}

/// Who asks.
#[derive(Debug)]
pub(crate) enum Visitor {
    /// Names are not asked for.
    Anyone,
    /// A member of the server's cluster.
    Member(Peer),
    /// One who shows nothing where names are asked for.
    Nameless,
}

impl Connection {
    /// A client on a socket that does not wait, with an end of TLS if names are asked for.
    pub(crate) fn new(socket: TcpStream, end: Option<ServerEnd>, deadline: Instant) -> Self {
        let speech = end.map_or(Speech::Plain, |end| Speech::Unheard(Box::new(end)));
        Self { socket, deadline, speech, stage: Stage::Asks(Head::default()), outgoing: Vec::new(), sent: 0 }
    }

    /// Whether it has shown who it is.
    pub(crate) fn is_known(&self) -> bool {
        matches!(&self.speech, Speech::Sealed(end) if end.peer().is_some())
    }

    /// What the socket must be ready for.
    pub(crate) fn awaits(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Does what can be done without waiting. The request is answered with `answer` once it is there.
    pub(crate) fn step(&mut self, answer: impl FnOnce(Visitor, Request) -> Vec<u8>) -> io::Result<Going> {
        if self.outgoing.is_empty() {
            let mut piece = [0; PIECE_BYTES];
            match self.socket.read(&mut piece) {
                Ok(0) if matches!(self.stage, Stage::Refused) => return Ok(Going::Over),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.hear(&piece[..count], answer)?,
                Err(error) => return later(error),
            }
        }
        self.send()
    }

    fn hear(&mut self, piece: &[u8], answer: impl FnOnce(Visitor, Request) -> Vec<u8>) -> io::Result<()> {
        let Stage::Asks(head) = &mut self.stage else { return Ok(()) };
        self.speech = match std::mem::replace(&mut self.speech, Speech::Plain) {
            Speech::Unheard(end) if piece[0] == TLS_LEAD => Speech::Sealed(end),
            Speech::Unheard(_) => Speech::Nameless,
            known => known,
        };
        let end = match &mut self.speech {
            Speech::Sealed(end) => end,
            plain => {
                let visitor = if matches!(plain, Speech::Nameless) { Visitor::Nameless } else { Visitor::Anyone };
                if let Some(request) = head.push(piece) {
                    self.outgoing = answer(visitor, request);
                    self.stage = Stage::Answered;
                }
                return Ok(());
            }
        };
        let heard = end.receive(piece).map(|opened| (head.push(&opened), end.peer()));
        match heard {
            Ok((Some(request), Some(peer))) => {
                end.seal_last(&answer(Visitor::Member(peer), request))?;
                self.stage = Stage::Answered;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a client of metrics is not let in");
                self.stage = Stage::Refused;
            }
        }
        end.take_outgoing(&mut self.outgoing);
        Ok(())
    }

    fn send(&mut self) -> io::Result<Going> {
        while self.sent < self.outgoing.len() {
            match self.socket.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) => return later(error),
            }
        }
        if self.sent > 0 && matches!(self.stage, Stage::Refused) {
            self.socket.shutdown(Shutdown::Write)?;
        }
        (self.outgoing, self.sent) = (Vec::new(), 0);
        Ok(if matches!(self.stage, Stage::Answered) { Going::Over } else { Going::On })
    }
}

fn later(error: io::Error) -> io::Result<Going> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Going::On),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A client of the endpoint and the endpoint's side of it.
    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (client, Connection::new(socket, None, Instant::now()))
    }

    /// Steps when the socket is ready, and tells of the request.
    fn step(connection: &mut Connection, asked: &mut Vec<Request>, answer: &[u8]) -> io::Result<Going> {
        let mut events = [rustix::event::PollFd::new(&connection.socket, connection.awaits())];
        rustix::event::poll(&mut events, None).unwrap();
        connection.step(|_, request| {
            asked.push(request);
            answer.to_vec()
        })
    }

    #[test]
    fn a_request_that_drips_is_answered_when_it_is_there() {
        let (mut client, mut connection) = pair();
        let mut asked = Vec::new();
        let never = connection.step(|_, _| panic!("nothing was asked")).unwrap();
        assert_eq!(never, Going::On);
        let request = b"GET /here HTTP/1.1\r\n\r\n";
        for (at, byte) in request.iter().enumerate() {
            assert_eq!((asked.len(), connection.awaits()), (0, PollFlags::IN), "after {at} bytes");
            client.write_all(&[*byte]).unwrap();
            let going = step(&mut connection, &mut asked, b"an answer").unwrap();
            assert_eq!(going, if at + 1 == request.len() { Going::Over } else { Going::On });
        }
        assert_eq!(asked, [Request::Get("/here".to_owned())]);
        drop(connection);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "an answer");
    }

    #[test]
    fn a_slow_reader_gets_the_rest_later() {
        let (mut client, mut connection) = pair();
        // More than both sockets hold.
        let long: Vec<u8> = (0..32 << 20).map(|at| (at % 251) as u8).collect();
        let mut asked = Vec::new();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(step(&mut connection, &mut asked, &long).unwrap(), Going::On);
        assert_eq!(connection.step(|_, _| panic!("asked twice")).unwrap(), Going::On);
        assert_eq!((asked.len(), connection.awaits()), (1, PollFlags::OUT));
        let reader = std::thread::spawn(move || {
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).map(|_| answer)
        });
        while step(&mut connection, &mut asked, b"").unwrap() == Going::On {}
        drop(connection);
        assert!(reader.join().unwrap().unwrap() == long, "another answer");
    }

    #[test]
    fn who_goes_away_is_an_error() {
        let (client, mut connection) = pair();
        client.shutdown(Shutdown::Write).unwrap();
        let gone = step(&mut connection, &mut Vec::new(), b"").unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }
}
