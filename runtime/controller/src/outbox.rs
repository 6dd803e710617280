//! [`Outbox`]: what a peer is sent and has not taken yet, so that no peer keeps the brain.
//!
//! Lines are handed to a thread of the peer, which is started with the first one and waits for the socket. What waits
//! is bounded by [`OUT_BYTES_MAX`] for a peer. For all together [`Outgoing`] counts it, and the brain cuts off the peer
//! that has most of it.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use yonder_identity::Stream;

/// Most bytes that wait for one peer: two of the longest lines.
pub(crate) const OUT_BYTES_MAX: usize = 8 << 20;
/// Most bytes that wait for all peers.
pub(crate) const OUT_ALL_BYTES_MAX: usize = 64 << 20;
/// Stack of a thread that only writes.
const WRITER_STACK_BYTES: usize = 128 << 10;

/// Bytes that wait for all peers.
#[derive(Clone, Default, Debug)]
pub(crate) struct Outgoing(Arc<AtomicUsize>);

impl Outgoing {
    pub(crate) fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > OUT_ALL_BYTES_MAX
    }
}

/// Lines on their way to a peer. When it is dropped what waits is sent, and the connection ends.
#[derive(Debug)]
pub(crate) struct Outbox {
    stream: Stream,
    lines: Option<Sender<Line>>,
    waiting: Arc<AtomicUsize>,
    all: Outgoing,
}

/// A line that counts for as long as it waits.
#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    waiting: Arc<AtomicUsize>,
    all: Outgoing,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.all.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Outbox {
    pub(crate) fn new(stream: Stream, all: Outgoing) -> Self {
        Self { stream, lines: None, waiting: Arc::default(), all }
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Sends a line, at once or later. An error if too much waits, or there is no thread: then the peer is of no use.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if self.waiting() + bytes.len() > OUT_BYTES_MAX {
            return Err(io::Error::other("it does not read what it is sent"));
        }
        let lines = match &self.lines {
            Some(lines) => lines,
            None => self.lines.insert(start(&self.stream)?),
        };
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        self.all.0.fetch_add(bytes.len(), Ordering::Relaxed);
        let line = Line { bytes, waiting: Arc::clone(&self.waiting), all: self.all.clone() };
        // A thread that has ended has shut the connection down, and its reader says so.
        let _ = lines.send(line);
        Ok(())
    }

    /// Ends the connection now; what waits is lost.
    pub(crate) fn cut(&self) {
        let _ = self.stream.shutdown();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // A thread that writes ends the connection itself, when all is sent.
        if self.lines.is_none() {
            self.cut();
        }
    }
}

fn start(stream: &Stream) -> io::Result<Sender<Line>> {
    let (lines, inbox) = mpsc::channel();
    let stream = stream.clone();
    let writer = thread::Builder::new().name("yonder-write".to_owned()).stack_size(WRITER_STACK_BYTES);
    writer.spawn(move || write_lines(&stream, &inbox))?;
    Ok(lines)
}

/// Each write waits for as long as the socket's timeout says.
fn write_lines(mut stream: &Stream, inbox: &Receiver<Line>) {
    for line in inbox {
        if let Err(error) = stream.write_all(&line.bytes) {
            tracing::warn!(%error, "a peer does not read, and is cut off");
            break;
        }
    }
    let _ = stream.shutdown();
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, Stream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, listener.accept().unwrap().0.into())
    }

    /// The one who sends is never kept: it is told when too much waits.
    #[test]
    fn a_peer_that_does_not_read_keeps_no_one() {
        let (there, here) = pair();
        let all = Outgoing::default();
        let mut outbox = Outbox::new(here, all.clone());
        let line = vec![b'x'; 1 << 20];
        let sent = (0..1000).take_while(|_| outbox.send(line.clone()).is_ok()).count();
        assert!((8..1000).contains(&sent), "{sent}");
        assert!(outbox.waiting() <= OUT_BYTES_MAX && all.0.load(Ordering::Relaxed) <= OUT_BYTES_MAX);
        outbox.cut();
        drop((outbox, there));
        while all.0.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn what_was_sent_before_the_end_arrives() {
        let (mut there, here) = pair();
        let mut outbox = Outbox::new(here, Outgoing::default());
        for _ in 0..3 {
            outbox.send(vec![b'x'; 1 << 20]).unwrap();
        }
        drop(outbox);
        let mut got = Vec::new();
        there.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 3 << 20);
    }
}
