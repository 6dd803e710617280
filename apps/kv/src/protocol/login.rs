//! What a client says before it is let in: [`LoginParser`].
//!
//! memcached's way (`-Y`): a `set` of any key, flags and expiry, whose value is `user password`. Until one of them is
//! right, nothing else is understood. The parser keeps no copy of the input; invariant: the steps do not depend on how
//! the input was split, and no more than [`LINE_BYTES_MAX`] bytes twice are ever asked for.

use super::number::parse_flags;
use super::{LINE_BYTES_MAX, reply};

/// Longest `user password` that is read.
const CREDENTIALS_BYTES_MAX: usize = LINE_BYTES_MAX;
/// Bytes behind it.
const BLOCK_END: &[u8] = b"\r\n";
/// Words of a `set` before the length of its value, and which word that is.
const LENGTH_WORD: usize = 4;

/// What the input says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginStep<'a> {
    /// Once the unconsumed input has grown to `bytes`, there may be more to say.
    NeedMore {
        /// Length of unconsumed input that is needed, at least.
        bytes: usize,
    },
    /// Somebody says who they are.
    Credentials {
        /// The first word.
        user: &'a [u8],
        /// The second.
        password: &'a [u8],
    },
    /// This is answered; the client may try again.
    Answer(&'static [u8]),
    /// Answer with these bytes, then end the connection.
    Close(&'static [u8]),
}

/// Reads one client's input until it is let in.
#[derive(Clone, Default, Debug)]
pub struct LoginParser {
    /// Length of the value of which the line was consumed.
    announced: Option<usize>,
}

impl LoginParser {
    /// Takes the next step. `input` is everything received and not yet consumed; the number is how much of it is not
    /// needed any more.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> (usize, LoginStep<'a>) {
        let (consumed, length) = match self.announced {
            Some(length) => (0, length),
            None => match Self::line(input) {
                Ok(announced) => announced,
                Err(refused) => return refused,
            },
        };
        self.announced = Some(length);
        let (block, whole) = (&input[consumed..], length + BLOCK_END.len());
        if block.len() < whole {
            return (consumed, LoginStep::NeedMore { bytes: whole });
        }
        self.announced = None;
        let (value, end) = block[..whole].split_at(length);
        let mut words = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let step = match (words.next(), words.next()) {
            _ if end != BLOCK_END => LoginStep::Answer(reply::BAD_TERMINATION),
            (Some(user), Some(password)) => LoginStep::Credentials { user, password },
            _ => LoginStep::Answer(reply::BAD_CREDENTIALS),
        };
        (consumed + whole, step)
    }

    /// The end of the line, and the length that it announces.
    fn line(input: &[u8]) -> Result<(usize, usize), (usize, LoginStep<'static>)> {
        let Some(newline) = input.iter().position(|byte| *byte == b'\n') else {
            return Err(match input.len() {
                LINE_BYTES_MAX.. => (input.len(), LoginStep::Close(b"")),
                held => (0, LoginStep::NeedMore { bytes: held + 1 }),
            });
        };
        let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let length = match words.next() {
            Some(b"set") => words.nth(LENGTH_WORD - 1).and_then(parse_flags),
            _ => None,
        };
        match length.map(|length| length as usize) {
            None => Err((newline + 1, LoginStep::Answer(reply::UNAUTHENTICATED))),
            Some(CREDENTIALS_BYTES_MAX..) => Err((input.len(), LoginStep::Close(reply::UNAUTHENTICATED))),
            Some(length) => Ok((newline + 1, length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything that the input says when it comes in pieces of this size.
    fn said(input: &[u8], piece: usize) -> Vec<String> {
        let (mut parser, mut held, mut said) = (LoginParser::default(), Vec::new(), Vec::new());
        for piece in input.chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let (consumed, step) = parser.step(&held);
                let more = match step {
                    LoginStep::NeedMore { bytes } => {
                        assert!(bytes > held.len() - consumed && bytes <= CREDENTIALS_BYTES_MAX + LINE_BYTES_MAX);
                        false
                    }
                    LoginStep::Close(_) => {
                        said.push(format!("{step:?}"));
                        return said;
                    }
                    _ => {
                        said.push(format!("{step:?}"));
                        true
                    }
                };
                held.drain(..consumed);
                if !more {
                    break;
                }
            }
        }
        said
    }

    fn answer(text: &'static [u8]) -> String {
        format!("{:?}", LoginStep::Answer(text))
    }

    #[test]
    fn a_set_says_who_it_is_and_nothing_else_is_understood() {
        let who = |user: &[u8], password: &[u8]| format!("{:?}", LoginStep::Credentials { user, password });
        let cases: [(&[u8], Vec<String>); 10] = [
            (b"set k 0 0 12\r\nalice secret\r\n", vec![who(b"alice", b"secret")]),
            (b"set k x y 12 noreply\nalice secret\r\n", vec![who(b"alice", b"secret")]),
            (b"  set  k 0  0 16\r\n alice  secret x\r\n", vec![who(b"alice", b"secret")]),
            (b"set k 0 0 5\r\nalice\r\n", vec![answer(reply::BAD_CREDENTIALS)]),
            (b"set k 0 0 0\r\n\r\n", vec![answer(reply::BAD_CREDENTIALS)]),
            (b"set k 0 0 3\r\na bcd", vec![answer(reply::BAD_TERMINATION)]),
            (b"add k 0 0 3\r\nget a\r\n", vec![answer(reply::UNAUTHENTICATED); 2]),
            (b"set k 0 0 -1\r\nmn\r\nmg k v\r\n\r\n", vec![answer(reply::UNAUTHENTICATED); 4]),
            (b"set k 0 0 2048\r\nget a\r\n", vec![format!("{:?}", LoginStep::Close(reply::UNAUTHENTICATED))]),
            (&[b'x'; 3000], vec![format!("{:?}", LoginStep::Close(b""))]),
        ];
        for (input, expected) in cases {
            assert_eq!(said(input, input.len()), expected, "{}", input.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn splitting_the_input_changes_nothing(
            words in prop::collection::vec(prop::sample::select(vec!["set", "k", "0", "3", "5", "\r\n", "\n"]), 0..60),
            piece in 1..9_usize,
        ) {
            let input = words.join(" ").into_bytes();
            if !input.is_empty() {
                prop_assert_eq!(said(&input, piece), said(&input, input.len()));
            }
        }
    }
}
