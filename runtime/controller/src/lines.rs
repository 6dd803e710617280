//! JSON Lines over a connection: [`LineReader`] and [`send_line`], both bounded, also by what all peers hold together.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use yonder_board::Share;
use yonder_identity::Stream;

use crate::desk::{Party, Standing};
use crate::pool::{Part, Pool};
use crate::unknown::Line;

/// Longest line in bytes: a report of some ten thousand regions.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;
/// Longest line of those who are no nodes: more than ten times what any request needs.
pub(crate) const CLIENT_LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a line that count nowhere: nearly all lines have less.
const LINE_BYTES_FREE: usize = 4 << 10;
/// What longer lines of nodes have together, from their first byte until they are handled; and as much those of others,
/// who so keep no report of a node out. One party has half of either at most, and the last quarter is for those with
/// little.
const LONG_LINES_SHARE: Share = Share { places_max: 64 << 20, of_one_max: 32 << 20, few_max: 1 << 20 };
/// How long a line may take from its first byte to its last.
pub(crate) const LINE_TIME_MAX: Duration = Duration::from_secs(10);
/// How a node begins, which may say much in its first line.
const REGISTER: &[u8] = b"{\"register\":";
/// Bytes that are read ahead.
const BUFFER_BYTES: usize = 2048;

/// What all long lines have; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LongLines {
    of_nodes: Pool,
    of_others: Pool,
}

/// What lines of one connection may have of that.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    pub(crate) long_lines: LongLines,
    pub(crate) party: Party,
    pub(crate) standing: Standing,
}

impl Default for LongLines {
    fn default() -> Self {
        let [of_nodes, of_others] = [(); 2].map(|()| Pool::new(LONG_LINES_SHARE));
        Self { of_nodes, of_others }
    }
}

impl Allowance {
    /// What a line that has become long has: as a node's by its certificate, or once it was admitted. What it says says
    /// nothing.
    fn part_for(&self, speaker: Speaker) -> Part {
        let LongLines { of_nodes, of_others } = &self.long_lines;
        let is_node = speaker == Speaker::Long || self.standing.is_node();
        let pool = if is_node { of_nodes } else { of_others };
        pool.part_of(self.party.clone())
    }
}

/// Whose lines are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// A node, or a controller: says much.
    Long,
    /// A client: says little.
    Short,
    /// One of the two. It may say much if it begins like a node.
    Unknown,
    /// One that has begun so.
    LikeNode,
}

/// Reads one object a line.
#[derive(Debug)]
pub(crate) struct LineReader {
    stream: BufReader<Stream>,
    line: Vec<u8>,
    /// When the line was begun.
    begun: Option<Instant>,
    speaker: Speaker,
    allowance: Option<Allowance>,
    /// What the line has of that, once it is long.
    part: Option<Part>,
}

impl LineReader {
    /// Reads what a controller says.
    pub(crate) fn new(stream: Stream) -> Self {
        Self::bounded(stream, Speaker::Long, None)
    }

    /// Reads what a peer of a controller says. A line that is not short counts in what it is allowed.
    pub(crate) fn bounded(stream: Stream, speaker: Speaker, allowance: Option<Allowance>) -> Self {
        let stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        Self { stream, line: Vec::new(), begun: None, speaker, allowance, part: None }
    }

    /// The next object; `None` when the peer has closed. `InvalidData` if a line is none, too long, or took too long.
    /// After a timeout the next call goes on where this one stopped.
    pub(crate) fn next<T: Line>(&mut self) -> io::Result<Option<T>> {
        loop {
            if self.begun.is_some_and(|begun| begun.elapsed() > LINE_TIME_MAX) {
                return Err(wrong(&format!("the line was not ended within {} seconds", LINE_TIME_MAX.as_secs())));
            }
            let available = match self.stream.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                return if self.line.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
            self.begun.get_or_insert_with(Instant::now);
            let end = available.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(available.len(), |end| end + 1);
            self.line.extend_from_slice(&available[..count]);
            self.stream.consume(count);
            self.check_length()?;
            if end.is_some() {
                return self.take().map(Some);
            }
        }
    }

    /// Whether the peer is silent: no line is begun.
    pub(crate) fn is_between_lines(&self) -> bool {
        self.line.is_empty()
    }

    /// What the last line had of what is allowed: it is kept for as long as what the line said is.
    pub(crate) fn take_part(&mut self) -> Option<Part> {
        self.part.take()
    }

    /// Ends the connection for both sides.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.stream.get_ref().shutdown()
    }

    fn check_length(&mut self) -> io::Result<()> {
        let length = self.line.len();
        if length <= LINE_BYTES_FREE {
            return Ok(());
        }
        self.learn();
        let says_much = matches!(self.speaker, Speaker::Long | Speaker::LikeNode);
        let most = if says_much { LINE_BYTES_MAX } else { CLIENT_LINE_BYTES_MAX };
        if length > most {
            return Err(wrong(&format!("the line has more than {most} bytes")));
        }
        let Some(allowance) = &self.allowance else { return Ok(()) };
        let part = self.part.get_or_insert_with(|| allowance.part_for(self.speaker));
        part.grow_to(length).map_err(|_full| wrong("too many long lines come at a time: try again later"))
    }

    /// How the first line begins says whose lines they are.
    fn learn(&mut self) {
        if self.speaker == Speaker::Unknown {
            self.speaker = if self.line.starts_with(REGISTER) { Speaker::LikeNode } else { Speaker::Short };
        }
    }

    fn take<T: Line>(&mut self) -> io::Result<T> {
        self.learn();
        let read = serde_json::from_slice(&self.line);
        let object = read.or_else(|error| T::of_later_release(&self.line).ok_or(error));
        self.line.clear();
        self.line.shrink_to(LINE_BYTES_FREE);
        self.begun = None;
        object.map_err(|error| wrong(&format!("the line is not one of this protocol ({error})")))
    }
}

/// An object as its line.
pub(crate) fn line_of(object: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(object).expect("messages have only text keys");
    line.push(b'\n');
    line
}

/// Sends one object, whole or not at all as far as the peer can tell: after an error the stream is of no use.
pub(crate) fn send_line(mut stream: &Stream, object: &impl Serialize) -> io::Result<()> {
    stream.write_all(&line_of(object))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Whether nothing came, or went, for as long as a stream waits.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use yonder_identity::Host;

    use super::*;
    use crate::brain::PeerId;
    use crate::desk::{Desk, Inbox};

    const PEER: PeerId = PeerId(1);

    impl Line for u32 {}
    impl Line for Vec<u32> {}
    impl Line for String {}
    impl Line for serde_json::Value {}

    fn pair() -> (Stream, Stream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there.into(), listener.accept().unwrap().0.into())
    }

    #[test]
    fn lines_come_back_and_other_text_is_refused() {
        let (there, here) = pair();
        let mut lines = LineReader::new(here);
        send_line(&there, &[1, 2]).unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        { &there }.write_all(b"GET / HTTP/1.1\r\n[3]\n[4").unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![3]));
        drop(there);
        assert_eq!(lines.next::<Vec<u32>>().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    /// Writes a line that never ends, and says what becomes of who reads it.
    fn endless(begins: &[u8], speaker: Speaker, allowance: Option<Allowance>) -> String {
        let (there, here) = pair();
        let text = [begins, &vec![b'['; LINE_BYTES_MAX + 10]].concat();
        let writer = std::thread::spawn(move || { &there }.write_all(&text));
        let error = LineReader::bounded(here, speaker, allowance).next::<u32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        // The reader is gone, so the writer may have been cut off: either end is right.
        let _ = writer.join().unwrap();
        error.to_string()
    }

    #[test]
    fn an_endless_line_is_cut_and_a_clients_early() {
        assert!(endless(b"", Speaker::Long, None).contains(&LINE_BYTES_MAX.to_string()));
        assert!(endless(REGISTER, Speaker::Unknown, None).contains(&LINE_BYTES_MAX.to_string()));
        assert!(endless(b"", Speaker::Unknown, None).contains(&CLIENT_LINE_BYTES_MAX.to_string()));
        assert!(endless(REGISTER, Speaker::Short, None).contains(&CLIENT_LINE_BYTES_MAX.to_string()));
    }

    /// What a host is allowed where long lines have a MiB, until its connection is admitted.
    fn allowed(of_one_max: usize) -> (Allowance, Inbox) {
        let pool = || Pool::new(Share { places_max: 1 << 20, of_one_max, few_max: 1 << 20 });
        let party = Party::of(None, Host::of(Ipv4Addr::LOCALHOST.into()));
        let desk = Desk::default();
        let (long_lines, standing) = (LongLines { of_nodes: pool(), of_others: pool() }, desk.standing(PEER));
        (Allowance { long_lines, party, standing }, desk.inbox())
    }

    impl LongLines {
        /// Bytes of nodes' lines, and of others'.
        pub(crate) fn taken(&self) -> [usize; 2] {
            [self.of_nodes.taken(), self.of_others.taken()]
        }
    }

    fn taken(allowance: &Allowance) -> [usize; 2] {
        allowance.long_lines.taken()
    }

    #[test]
    fn all_long_lines_together_have_a_budget() {
        let (allowance, _inbox) = allowed(1 << 20);
        assert!(endless(REGISTER, Speaker::Unknown, Some(allowance.clone())).contains("too many long lines"));
        assert_eq!(taken(&allowance), [0, 0], "what is cut gives back what it had");
        let (there, here) = pair();
        let text = "x".repeat(CLIENT_LINE_BYTES_MAX);
        let mut lines = LineReader::bounded(here, Speaker::Long, Some(allowance.clone()));
        let sent = text.clone();
        let writer = std::thread::spawn(move || send_line(&there, &sent));
        assert_eq!(lines.next::<String>().unwrap(), Some(text));
        writer.join().unwrap().unwrap();
        let part = lines.take_part().expect("it is not short");
        assert_eq!(taken(&allowance), [CLIENT_LINE_BYTES_MAX + 3, 0]);
        drop((part, lines));
        assert_eq!(taken(&allowance), [0, 0]);
    }

    /// Those who only began a line once had all that reports of nodes need, and then those whose first line began like
    /// that of a node.
    #[test]
    fn a_line_counts_among_those_of_nodes_once_its_connection_was_admitted() {
        let (allowance, inbox) = allowed(1 << 19);
        let long = |begins: &str| [begins, &"x".repeat(LINE_BYTES_FREE), "\"}\n"].concat();
        let (there, here) = pair();
        let mut lines = LineReader::bounded(here, Speaker::Unknown, Some(allowance.clone()));
        for (begins, of_nodes) in [("{\"register\":\"", false), ("{\"report\":\"", false), ("{\"report\":\"", true)] {
            if of_nodes {
                inbox.admit(PEER);
            }
            let text = long(begins);
            { &there }.write_all(text.as_bytes()).unwrap();
            lines.next::<serde_json::Value>().unwrap().unwrap();
            assert_eq!(taken(&allowance), if of_nodes { [text.len(), 0] } else { [0, text.len()] });
            drop(lines.take_part());
        }
        // A tenant that begins so is none.
        let (allowance, _inbox) = allowed(1 << 19);
        let (there, here) = pair();
        let mut lines = LineReader::bounded(here, Speaker::Short, Some(allowance.clone()));
        for _ in 0..2 {
            let text = long("{\"register\":\"");
            { &there }.write_all(text.as_bytes()).unwrap();
            lines.next::<serde_json::Value>().unwrap().unwrap();
            assert_eq!(taken(&allowance), [0, text.len()]);
            drop(lines.take_part());
        }
        // Half of them is the most for one host, however it begins.
        assert!(endless(REGISTER, Speaker::Unknown, Some(allowance.clone())).contains("too many long lines"));
        assert!(endless(b"", Speaker::Long, Some(allowance.clone())).contains("too many long lines"));
        assert_eq!(taken(&allowance), [0, 0]);
    }
}
