//! [`Outbox`]: what a peer is sent and has not taken yet, so that no peer keeps the brain.
//!
//! Lines are handed to a thread of the peer, which is started with the first one and waits for the socket. What waits
//! is bounded by [`OUT_BYTES_MAX`] for a peer. The same thread says that the controller is alive when it has had
//! nothing to say for long ([`SignsOfLife`]), however long the brain waits for the store. For all together [`Outgoing`]
//! counts it, and the brain cuts off the peer that has most of it. One that was closed has [`DRAIN_TIME_MAX`] for what
//! waits, and its connection has its place among all until its thread has ended.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use yonder_identity::Stream;

use crate::peers::Counted;
use crate::store::TenureProbe;

/// Most bytes that wait for one peer: two of the longest lines.
pub(crate) const OUT_BYTES_MAX: usize = 8 << 20;
/// Most bytes that wait for all peers.
pub(crate) const OUT_ALL_BYTES_MAX: usize = 64 << 20;
/// How long all that waits may take to be sent once it is closed.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
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

/// Lines on their way to a peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    stream: Stream,
    state: State,
    waiting: Arc<AtomicUsize>,
    all: Outgoing,
    place: Counted,
}

#[derive(Debug)]
enum State {
    /// Nothing was sent.
    Unused,
    /// A thread writes.
    Open(Sender<Order>),
    /// It writes what waits, and ends the connection.
    Closing(Instant),
    /// The connection has ended; nothing is sent any more.
    Cut,
}

/// What the thread of a peer is to do.
#[derive(Debug)]
enum Order {
    /// Write this.
    Write(Line),
    /// Begin to show signs of life.
    Show(SignsOfLife),
}

/// What is written to a peer to which nothing else is.
pub(crate) struct SignsOfLife {
    /// How long nothing is written before.
    pub(crate) every: Duration,
    /// The line.
    pub(crate) bytes: Vec<u8>,
    /// Whether the controller leads; else it shows none.
    pub(crate) leads: TenureProbe,
}

impl std::fmt::Debug for SignsOfLife {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SignsOfLife every {:?}", self.every)
    }
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
    pub(crate) fn new(stream: Stream, all: Outgoing, place: Counted) -> Self {
        Self { stream, state: State::Unused, waiting: Arc::default(), all, place }
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether lines may be sent: it is neither closed nor cut.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Unused | State::Open(_))
    }

    /// Sends a line, at once or later, if it is open. An error if too much waits, or there is no thread: then the peer
    /// is of no use.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if self.waiting() + bytes.len() > OUT_BYTES_MAX {
            return Err(io::Error::other("it does not read what it is sent"));
        }
        if let State::Unused = self.state {
            self.state = State::Open(start(&self.stream, self.place.clone())?);
        }
        let State::Open(lines) = &self.state else { return Ok(()) };
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        self.all.0.fetch_add(bytes.len(), Ordering::Relaxed);
        let line = Line { bytes, waiting: Arc::clone(&self.waiting), all: self.all.clone() };
        // A thread that has ended has shut the connection down, and its reader says so.
        let _ = lines.send(Order::Write(line));
        Ok(())
    }

    /// From now on shows the peer, which was sent something, that the controller lives.
    pub(crate) fn show(&mut self, signs: SignsOfLife) {
        if let State::Open(orders) = &self.state {
            let _ = orders.send(Order::Show(signs));
        }
    }

    /// Ends the connection now; what waits is lost.
    pub(crate) fn cut(&mut self) {
        let _ = self.stream.shutdown();
        self.state = State::Cut;
    }

    /// Ends the connection when what waits is sent. [`Outbox::drains`] must be asked from then on.
    pub(crate) fn close(&mut self) {
        match self.state {
            State::Unused => self.cut(),
            State::Open(_) => self.state = State::Closing(Instant::now()),
            State::Closing(_) | State::Cut => {}
        }
    }

    /// Whether something still waits after the end; it is cut off once it has waited for too long.
    pub(crate) fn drains(&mut self) -> bool {
        if let State::Closing(since) = self.state
            && since.elapsed() > DRAIN_TIME_MAX
        {
            self.cut();
        }
        self.waiting() > 0
    }
}

fn start(stream: &Stream, place: Counted) -> io::Result<Sender<Order>> {
    let (lines, inbox) = mpsc::channel();
    let stream = stream.clone();
    let writer = thread::Builder::new().name("yonder-write".to_owned()).stack_size(WRITER_STACK_BYTES);
    writer.spawn(move || {
        let _place = place;
        write_lines(&stream, &inbox);
    })?;
    Ok(lines)
}

/// Each write waits for as long as the socket's timeout says.
fn write_lines(mut stream: &Stream, inbox: &Receiver<Order>) {
    let mut shown: Option<SignsOfLife> = None;
    loop {
        let order = match &shown {
            Some(signs) => inbox.recv_timeout(signs.every),
            None => inbox.recv().map_err(RecvTimeoutError::from),
        };
        let written = match (order, &shown) {
            (Ok(Order::Write(line)), _) => stream.write_all(&line.bytes),
            (Ok(Order::Show(signs)), _) => {
                shown = Some(signs);
                Ok(())
            }
            (Err(RecvTimeoutError::Timeout), Some(signs)) if (signs.leads)() => stream.write_all(&signs.bytes),
            (Err(RecvTimeoutError::Timeout), _) => Ok(()),
            (Err(RecvTimeoutError::Disconnected), _) => break,
        };
        if let Err(error) = written {
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
    use crate::desk::Party;
    use crate::peers::Peers;

    fn pair() -> (TcpStream, Stream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, listener.accept().unwrap().0.into())
    }

    fn place(peers: &Peers) -> Counted {
        peers.admit(Party::Member("a".to_owned())).unwrap()
    }

    /// The one who sends is never kept: it is told when too much waits.
    #[test]
    fn a_peer_that_does_not_read_keeps_no_one() {
        let (there, here) = pair();
        let all = Outgoing::default();
        let mut outbox = Outbox::new(here, all.clone(), place(&Peers::default()));
        let line = vec![b'x'; 1 << 20];
        let sent = (0..1000).take_while(|_| outbox.send(line.clone()).is_ok()).count();
        assert!((8..1000).contains(&sent), "{sent}");
        assert!(outbox.waiting() <= OUT_BYTES_MAX && all.0.load(Ordering::Relaxed) <= OUT_BYTES_MAX);
        outbox.cut();
        assert!(!outbox.is_open(), "no line is made for it");
        drop((outbox, there));
        while all.0.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn what_was_sent_before_the_end_arrives() {
        let (mut there, here) = pair();
        let mut outbox = Outbox::new(here, Outgoing::default(), place(&Peers::default()));
        for _ in 0..3 {
            outbox.send(vec![b'x'; 1 << 20]).unwrap();
        }
        outbox.close();
        let mut got = Vec::new();
        there.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 3 << 20);
    }

    /// One that is closed while more waits than sockets have room for, and that nobody reads.
    fn full(all: &Outgoing, peers: &Peers) -> (TcpStream, Outbox) {
        let (there, here) = pair();
        let mut outbox = Outbox::new(here, all.clone(), place(peers));
        while outbox.send(vec![b'x'; 1 << 20]).is_ok() {}
        outbox.close();
        (there, outbox)
    }

    /// Ends of connections once gave back their places while threads still wrote to them.
    #[test]
    fn a_connection_has_its_place_until_nothing_is_written_to_it() {
        let (all, peers) = (Outgoing::default(), Peers::default());
        let (there, outbox) = full(&all, &peers);
        drop(outbox);
        assert_eq!(peers.all(), 1);
        drop(there);
        while peers.all() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_closed_is_sent_within_a_time_and_nothing_more() {
        let (all, peers) = (Outgoing::default(), Peers::default());
        let (_there, mut outbox) = full(&all, &peers);
        assert!(outbox.drains() && !outbox.is_open());
        let waits = outbox.waiting();
        outbox.send(vec![b'x']).unwrap_or(());
        assert!(outbox.waiting() <= waits);
        let State::Closing(since) = &mut outbox.state else { panic!("{outbox:?}") };
        *since = since.checked_sub(2 * DRAIN_TIME_MAX).unwrap();
        let begun = Instant::now();
        while outbox.drains() {
            assert!(begun.elapsed() < 4 * DRAIN_TIME_MAX, "it is not cut off");
            thread::yield_now();
        }
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
