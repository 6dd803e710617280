//! [`Lines`]: a stream of bytes as lines of bounded length.

/// Bytes that have arrived and are not yet taken as lines.
#[derive(Clone, Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    bytes_max: usize,
}

/// A line is longer than it may be. Nothing after it can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineTooLong;

impl Lines {
    /// No bytes yet; lines may have `bytes_max` bytes, with their end.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }

    /// Takes bytes that have arrived. What is kept is bounded by what is given between two calls of
    /// [`Lines::next_line`].
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line, without its end; `None` if it is not complete.
    ///
    /// # Errors
    /// If it is longer than it may be, complete or not.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        match self.bytes.iter().take(self.bytes_max).position(|byte| *byte == b'\n') {
            Some(end) => {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                line.pop();
                Ok(Some(line))
            }
            None if self.bytes.len() >= self.bytes_max => Err(LineTooLong),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_may_be_as_long_as_it_may_be_and_no_longer() {
        let mut lines = Lines::new(4);
        lines.push(b"abc\nab");
        assert_eq!(lines.next_line(), Ok(Some(b"abc".to_vec())));
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"cd");
        assert_eq!(lines.next_line(), Err(LineTooLong));
        // It stays so, whatever follows.
        lines.push(b"\nab\n");
        assert_eq!(lines.next_line(), Err(LineTooLong));
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_stream_is_cut(
            stream in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..200),
            cut in 1usize..20,
        ) {
            let taken = |piece: usize| {
                let (mut lines, mut found) = (Lines::new(16), Vec::new());
                for bytes in stream.chunks(piece) {
                    lines.push(bytes);
                    loop {
                        match lines.next_line() {
                            Ok(Some(line)) => found.push(Some(line)),
                            Ok(None) => break,
                            Err(LineTooLong) => {
                                found.push(None);
                                return found;
                            }
                        }
                    }
                }
                found
            };
            let by_split: Vec<_> = stream.split(|byte| *byte == b'\n').collect();
            let whole = &by_split[..by_split.len() - 1];
            let short = whole.iter().take_while(|line| line.len() < 16).count();
            let found = taken(cut);
            prop_assert_eq!(&found, &taken(1000));
            let lines: Vec<_> = found.iter().flatten().map(Vec::as_slice).collect();
            prop_assert_eq!(lines, &whole[..short]);
        }
    }
}
