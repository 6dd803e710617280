//! [`Connection`]: one client of the endpoint: the head of a request comes, an answer goes, and that is all.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::PollFlags;

use crate::http::{Head, Request};

/// Bytes asked of the socket at a time.
const PIECE_BYTES: usize = 4 << 10;

/// A client, until it has its answer or `deadline` is over.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) deadline: Instant,
    stage: Stage,
}

enum Stage {
    /// So much of the request has come.
    Asks(Head),
    /// So much of the answer has gone.
    Answered { answer: Vec<u8>, sent: usize },
}

/// Whether there is more to do with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Going {
    On,
    Over,
}

impl Connection {
    /// A client on a socket that does not wait.
    pub(crate) fn new(socket: TcpStream, deadline: Instant) -> Self {
        Self { socket, deadline, stage: Stage::Asks(Head::default()) }
    }

    /// What the socket must be ready for.
    pub(crate) fn awaits(&self) -> PollFlags {
        match self.stage {
            Stage::Asks(_) => PollFlags::IN,
            Stage::Answered { .. } => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting. The request is answered with `answer` once it is there.
    pub(crate) fn step(&mut self, answer: impl FnOnce(Request) -> Vec<u8>) -> io::Result<Going> {
        if let Stage::Asks(head) = &mut self.stage {
            let mut piece = [0; PIECE_BYTES];
            let count = match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) => return later(error),
            };
            let Some(request) = head.push(&piece[..count]) else { return Ok(Going::On) };
            self.stage = Stage::Answered { answer: answer(request), sent: 0 };
        }
        self.send()
    }

    fn send(&mut self) -> io::Result<Going> {
        let Stage::Answered { answer, sent } = &mut self.stage else { return Ok(Going::On) };
        while *sent < answer.len() {
            match self.socket.write(&answer[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) => return later(error),
            }
        }
        Ok(Going::Over)
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
    use std::net::{Shutdown, TcpListener};

    use super::*;

    /// A client of the endpoint and the endpoint's side of it.
    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (client, Connection::new(socket, Instant::now()))
    }

    /// Steps when the socket is ready, and tells of the request.
    fn step(connection: &mut Connection, asked: &mut Vec<Request>, answer: &[u8]) -> io::Result<Going> {
        let mut events = [rustix::event::PollFd::new(&connection.socket, connection.awaits())];
        rustix::event::poll(&mut events, None).unwrap();
        connection.step(|request| {
            asked.push(request);
            answer.to_vec()
        })
    }

    #[test]
    fn a_request_that_drips_is_answered_when_it_is_there() {
        let (mut client, mut connection) = pair();
        let mut asked = Vec::new();
        let never = connection.step(|_| panic!("nothing was asked")).unwrap();
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
        assert_eq!(connection.step(|_| panic!("asked twice")).unwrap(), Going::On);
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
