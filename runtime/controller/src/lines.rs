//! JSON Lines over TCP: [`LineReader`] and [`send_line`], both bounded.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line in bytes: a report of some ten thousand regions.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 20;

/// Reads one object a line.
#[derive(Debug)]
pub(crate) struct LineReader {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl LineReader {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new() }
    }

    /// The next object; `None` when the peer has closed. `InvalidData` if a line is none, or too long. After a timeout
    /// the next call goes on where this one stopped.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let room = (LINE_BYTES_MAX + 1).saturating_sub(self.line.len());
        self.stream.by_ref().take(room as u64).read_until(b'\n', &mut self.line)?;
        if self.line.last() == Some(&b'\n') {
            let object = serde_json::from_slice(&self.line);
            self.line.clear();
            return object.map(Some).map_err(|error| wrong(&format!("the line is not one of this protocol ({error})")));
        }
        if self.line.len() > LINE_BYTES_MAX {
            return Err(wrong(&format!("the line has more than {LINE_BYTES_MAX} bytes")));
        }
        if self.line.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    /// Ends the connection for both sides.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Both)
    }
}

/// Sends one object, whole or not at all as far as the peer can tell: after an error the stream is of no use.
pub(crate) fn send_line(mut stream: &TcpStream, object: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(object)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, listener.accept().unwrap().0)
    }

    #[test]
    fn lines_come_back_and_other_text_is_refused() {
        let (there, here) = pair();
        let mut lines = LineReader::new(here);
        send_line(&there, &[1, 2]).unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        (&there).write_all(b"GET / HTTP/1.1\r\n[3]\n[4").unwrap();
        assert_eq!(lines.next::<Vec<u32>>().unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(lines.next::<Vec<u32>>().unwrap(), Some(vec![3]));
        drop(there);
        assert_eq!(lines.next::<Vec<u32>>().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let (there, here) = pair();
        let writer = std::thread::spawn(move || (&there).write_all(&vec![b'['; LINE_BYTES_MAX + 10]));
        assert_eq!(LineReader::new(here).next::<u32>().unwrap_err().kind(), ErrorKind::InvalidData);
        // The reader is gone, so the writer may have been cut off: either end is right.
        let _ = writer.join().unwrap();
    }
}
