//! The bytes of one client: [`Input`] received and not yet understood, [`Output`] not yet sent.
//!
//! Both are idle at no more than [`IDLE_BYTES_MAX`]: a client that once sent or got a large value does not keep the
//! memory. Each says what it has allocated, which is what a client is charged for (`budget`).

use std::io::{self, Read, Write};

/// Size of an input buffer at first, and of the smallest read.
const READ_BYTES_MIN: usize = 4 << 10;
/// What an empty buffer may keep allocated.
pub(super) const IDLE_BYTES_MAX: usize = 16 << 10;

/// Received bytes. Grows by doubling, so that announcing a large value costs nobody memory.
#[derive(Default)]
pub(super) struct Input {
    /// All of it is initialised; `start..end` holds data.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn holding(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), start: 0, end: bytes.len() }
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
        let held = self.end - self.start;
        if self.bytes.len() > IDLE_BYTES_MAX && held <= self.bytes.len() / 4 {
            // The start of the next command does not keep the memory of a large one.
            let mut bytes = if held == 0 { Vec::new() } else { vec![0; (2 * held).max(READ_BYTES_MIN)] };
            bytes[..held].copy_from_slice(self.data());
            (self.bytes, self.start, self.end) = (bytes, 0, held);
        } else if held == 0 {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Bytes that are allocated.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes that [`Input::fill`] would allocate beyond that.
    pub(super) fn growth(&self, wanted: usize) -> usize {
        self.grown(wanted) - self.bytes.len()
    }

    /// Reads once, towards holding `wanted` bytes in total. Returns how many bytes were read, and how many were asked
    /// for.
    pub(super) fn fill(&mut self, source: &mut impl Read, wanted: usize) -> io::Result<(usize, usize)> {
        self.make_room(wanted);
        let asked = self.bytes.len() - self.end;
        let read = source.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok((read, asked))
    }

    fn make_room(&mut self, wanted: usize) {
        let (held, grown) = (self.end - self.start, self.grown(wanted));
        if grown > self.bytes.len() {
            self.bytes.reserve_exact(grown - self.bytes.len());
            self.bytes.resize(grown, 0);
        } else if self.start > 0 && self.bytes.len() - self.start < wanted.max(held + 1) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
    }

    /// How long the buffer is to be for a read. It grows only when all of it is data.
    fn grown(&self, wanted: usize) -> usize {
        let (held, len) = (self.end - self.start, self.bytes.len());
        if held < len {
            return len;
        }
        (2 * len).max(READ_BYTES_MIN).min(wanted.max(READ_BYTES_MIN)).max(held + 1)
    }
}

/// Bytes to be sent.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes that are allocated.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.sent > self.len() {
            self.forget_sent();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a reply, without copying it if it is the only one.
    pub(super) fn push_owned(&mut self, bytes: Vec<u8>) {
        if self.len() == 0 {
            (self.bytes, self.sent) = (bytes, 0);
        } else {
            self.forget_sent();
            self.bytes.reserve_exact(bytes.len());
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// A client that never takes all that waits must not keep what it has taken.
    fn forget_sent(&mut self) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
    }

    /// Takes all bytes out.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.forget_sent();
        std::mem::take(&mut self.bytes)
    }

    /// Sends what the peer takes now. Returns how many bytes that was. `WouldBlock` is no error.
    pub(super) fn flush(&mut self, sink: &mut impl Write) -> io::Result<usize> {
        let before = self.sent;
        while self.len() > 0 {
            match sink.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let written = self.sent - before;
        if self.len() == 0 {
            self.sent = 0;
            self.bytes.clear();
            if self.bytes.capacity() > IDLE_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_grows_with_what_was_received_only() {
        let mut input = Input::default();
        let mut source: &[u8] = &vec![7; 100_000];
        let mut reads = 0;
        while input.data().len() < 100_000 {
            input.fill(&mut source, 1 << 20).expect("a slice can be read");
            reads += 1;
            assert_eq!(
                input.growth(1 << 20),
                if input.data().len() < input.bytes.len() { 0 } else { input.bytes.len() }
            );
            assert!(input.capacity() <= (2 * input.data().len()).max(READ_BYTES_MIN));
        }
        assert!(reads < 10, "{reads} reads");
        input.consume(99_999);
        assert_eq!(input.data(), [7]);
        assert!(input.capacity() <= IDLE_BYTES_MAX, "one byte keeps {} allocated", input.capacity());
        input.consume(1);
        assert!(input.capacity() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn input_never_grows_beyond_what_is_wanted() {
        let mut input = Input::default();
        let mut source: &[u8] = &[7; 100_000];
        for _ in 0..100 {
            let room = 10_000;
            if input.data().len() < room {
                input.fill(&mut source, room).expect("a slice can be read");
            }
        }
        assert_eq!((input.data().len(), input.bytes.len()), (10_000, 10_000));
    }

    /// Takes three bytes, then blocks.
    struct Narrow(Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.len() % 4 == 3 {
                self.0.push(b'|');
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.push(bytes[0]);
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_keeps_what_was_not_taken() {
        let mut output = Output::default();
        let mut sink = Narrow(Vec::new());
        output.push_owned(b"abcd".to_vec());
        assert_eq!(output.flush(&mut sink).expect("blocking is no error"), 3);
        output.push_owned(b"ef".to_vec());
        assert_eq!(output.len(), 3);
        assert_eq!(output.flush(&mut sink).expect("blocking is no error"), 3);
        assert_eq!((sink.0.as_slice(), output.len()), (&b"abc|def"[..], 0));
    }

    /// Takes this many bytes at a time, then blocks.
    struct Sips(usize);

    impl Write for Sips {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match std::mem::take(&mut self.0) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                taken => Ok(taken.min(bytes.len())),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_that_is_never_all_taken_keeps_nothing_that_was() {
        const REPLY: usize = 100_000;
        let mut output = Output::default();
        for _ in 0..100 {
            output.push_owned(vec![1; REPLY]);
            output.push(b"more");
            output.flush(&mut Sips(REPLY)).expect("blocking is no error");
            assert!(output.capacity() <= 4 * REPLY, "{} allocated for {}", output.capacity(), output.len());
        }
        assert_eq!(output.take().len(), 100 * b"more".len());
    }
}
