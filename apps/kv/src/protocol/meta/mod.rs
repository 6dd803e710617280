//! memcached's meta commands: [`parse`] reads the line of one. `mg`, `ms`, `md` and `ma` replace the older commands,
//! each with flags of one letter, some followed by a token; `me` is for people, and `mn` is answered at once.
//!
//! Errors are those of memcached 1.6.18, byte for byte, and so is what they leave unread: a `ms` whose flags are wrong
//! takes its data block with it, one whose key or length is wrong does not. Flags that came after 1.6.18 are known:
//! `E`, `x`, `C` of `mg`, `N` and `s` of `ms`.

pub(crate) mod base64;
mod request;
#[cfg(test)]
mod tests;

pub use request::{KeyForm, MetaArithmetic, MetaFlags, MetaRequest, MetaSetMode, MetaStep, MetaVerb};

use super::number::{parse_flags, parse_i32, parse_u64};
use super::{Answer, Direction, Exptime, KeyValue, is_key, reply};

/// Words that a line may have.
const WORDS_MAX: usize = 19;
/// Longest opaque token, its letter included.
const OPAQUE_BYTES_MAX: usize = 32;

/// What the line of a meta command says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MetaLine {
    /// It is answered with these bytes.
    Answer(&'static [u8]),
    /// It is to be executed.
    Whole(MetaRequest),
    /// A `ms`, without the data block of so many bytes that follows.
    Set { value_bytes: usize, head: MetaRequest },
    /// A `ms` with flags that are wrong: the data block that follows is skipped.
    Skip { value_bytes: usize, answer: &'static [u8] },
}

/// Reads a line whose first word may be a meta command; None if it is none.
pub(super) fn parse(line: &[u8]) -> Option<MetaLine> {
    let words = || line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let verb = words().next().filter(|verb| verb.len() == 2 && verb[0] == b'm')?[1];
    if !b"aedgns".contains(&verb) {
        return None;
    }
    let words: Vec<&[u8]> = words().take(WORDS_MAX + 1).collect();
    Some(match parse_words(verb, &words) {
        Ok(line) => line,
        Err(Bad(answer)) => MetaLine::Answer(answer),
    })
}

/// Why a line is no command: the answer.
struct Bad(&'static [u8]);

fn parse_words(verb: u8, words: &[&[u8]]) -> Result<MetaLine, Bad> {
    if verb == b'n' {
        return Ok(MetaLine::Answer(reply::META_NO_OP));
    }
    let Some(key) = words.get(1).copied() else {
        return Err(Bad(if verb == b'e' { reply::BAD_FORMAT } else { reply::ERROR }));
    };
    if !is_key(key) {
        return Err(Bad(reply::BAD_FORMAT));
    }
    match verb {
        b'e' => parse_debug(key, &words[2..]),
        b's' => parse_set(key, &words[2..], words.len()),
        _ if words.len() > WORDS_MAX => {
            Err(Bad(if verb == b'g' { reply::TOO_MANY_GET_FLAGS } else { reply::TOO_MANY_FLAGS }))
        }
        b'g' => {
            let parsed = parse_flags_of(key, &words[2..])?;
            Ok(MetaLine::Whole(parsed.request(MetaVerb::Get)?))
        }
        b'd' => {
            let parsed = parse_flags_of(key, &words[2..]).map_err(|_| Bad(reply::BAD_FLAG))?;
            Ok(MetaLine::Whole(parsed.request(MetaVerb::Delete)?))
        }
        _ => {
            let parsed = parse_flags_of(key, &words[2..]).map_err(|_| Bad(reply::BAD_FLAG))?;
            let direction = match parsed.mode {
                None | Some(b'I' | b'+') => Direction::Up,
                Some(b'D' | b'-') => Direction::Down,
                Some(_) => return Err(Bad(reply::BAD_ARITHMETIC_MODE)),
            };
            let arithmetic =
                MetaArithmetic { direction, delta: parsed.delta.unwrap_or(1), initial: parsed.initial.unwrap_or(0) };
            Ok(MetaLine::Whole(parsed.request(MetaVerb::Arithmetic(arithmetic))?))
        }
    }
}

/// `me <key> [b]`.
fn parse_debug(key: &[u8], flags: &[&[u8]]) -> Result<MetaLine, Bad> {
    let mut parsed = Parsed::new(key);
    if flags.first().is_some_and(|flag| *flag == b"b") {
        parsed.key = base64::decode(key).ok_or(Bad(reply::BAD_FORMAT))?;
        parsed.flags.key_form = KeyForm::Base64;
    }
    Ok(MetaLine::Whole(parsed.request(MetaVerb::Debug)?))
}

/// `ms <key> <bytes> <flags>*`.
fn parse_set(key: &[u8], rest: &[&[u8]], words: usize) -> Result<MetaLine, Bad> {
    let Some((announced, flags)) = rest.split_first() else { return Err(Bad(reply::BAD_FORMAT)) };
    if words > WORDS_MAX {
        return Err(Bad(reply::TOO_MANY_FLAGS));
    }
    let announced = parse_i32(announced).filter(|bytes| (0..=super::ANNOUNCED_BYTES_MAX).contains(bytes));
    let value_bytes = announced.ok_or(Bad(reply::BAD_FORMAT))? as usize;
    let head = parse_flags_of(key, flags).and_then(|parsed| {
        let mode = match parsed.mode {
            None | Some(b'S') => MetaSetMode::Set,
            Some(b'E') => MetaSetMode::Add,
            Some(b'R') => MetaSetMode::Replace,
            Some(b'A') => MetaSetMode::Append,
            Some(b'P') => MetaSetMode::Prepend,
            Some(_) => return Err(Bad(reply::BAD_SET_MODE)),
        };
        parsed.request(MetaVerb::Set(mode))
    });
    Ok(match head {
        Ok(head) => MetaLine::Set { value_bytes, head },
        Err(Bad(answer)) => MetaLine::Skip { value_bytes, answer },
    })
}

/// The flags of a line, as far as they are understood without knowing the command.
struct Parsed {
    key: Vec<u8>,
    flags: MetaFlags,
    mode: Option<u8>,
    delta: Option<u64>,
    initial: Option<u64>,
}

impl Parsed {
    fn new(key: &[u8]) -> Self {
        Self { key: key.to_vec(), flags: MetaFlags::default(), mode: None, delta: None, initial: None }
    }

    fn request(self, verb: MetaVerb) -> Result<MetaRequest, Bad> {
        if self.flags.opaque.len() > OPAQUE_BYTES_MAX {
            return Err(Bad(reply::OPAQUE_TOO_LONG));
        }
        let key_bytes = self.key.len();
        Ok(MetaRequest { verb, item: KeyValue::whole(self.key, key_bytes), flags: self.flags })
    }

    /// Understands one flag. A token that is wrong does not keep those behind it from being read.
    fn take(&mut self, letter: u8, token: &[u8]) -> Result<(), Bad> {
        let flags = &mut self.flags;
        let exptime = || parse_i32(token).map(Exptime).ok_or(Bad(reply::BAD_TOKEN));
        let number = |text: &'static [u8]| parse_u64(token).ok_or(Bad(text));
        match letter {
            b'b' => {
                flags.key_form = KeyForm::Base64;
                self.key = base64::decode(&self.key).ok_or(Bad(reply::BAD_BASE64))?;
            }
            b'N' => flags.steps.push(MetaStep::ExpireNew(exptime()?)),
            b'T' => flags.steps.push(MetaStep::Expire(exptime()?)),
            b'R' => flags.steps.push(MetaStep::Recache(exptime()?)),
            b'l' => flags.steps.push(MetaStep::LastAccess),
            b'h' => flags.steps.push(MetaStep::Fetched),
            b'k' => flags.steps.push(MetaStep::Key),
            b's' => flags.steps.push(MetaStep::Size),
            b't' => flags.steps.push(MetaStep::TimeLeft),
            b'c' => flags.steps.push(MetaStep::Cas),
            b'f' => flags.steps.push(MetaStep::ClientFlags),
            b'O' => {
                flags.steps.push(MetaStep::Opaque);
                flags.opaque = [b"O", token].concat();
            }
            b'v' => flags.shows_value = true,
            b'u' => flags.leaves_no_trace = true,
            b'q' => flags.answer = Answer::Quiet,
            b'x' => flags.empties = true,
            b'I' => flags.invalidates = true,
            b'F' => flags.client_flags = parse_flags(token).ok_or(Bad(reply::BAD_FORMAT))?,
            b'C' => flags.cas = Some(number(reply::BAD_TOKEN)?),
            b'E' => flags.new_cas = Some(number(reply::BAD_TOKEN)?),
            b'M' => {
                let [mode] = token else { return Err(Bad(reply::BAD_MODE_LENGTH)) };
                self.mode = Some(*mode);
            }
            b'J' => self.initial = Some(number(reply::BAD_INITIAL)?),
            b'D' => self.delta = Some(number(reply::BAD_META_DELTA)?),
            // Proxies understand these.
            b'P' | b'L' => {}
            _ => return Err(Bad(reply::UNKNOWN_FLAG)),
        }
        Ok(())
    }
}

/// Reads the flags behind a key. The last token that is wrong is what the client hears of, unless a letter is unknown
/// or there twice.
fn parse_flags_of(key: &[u8], words: &[&[u8]]) -> Result<Parsed, Bad> {
    let mut parsed = Parsed::new(key);
    let (mut seen, mut bad) = (0u128, None);
    for word in words {
        let (letter, token) = (word[0], &word[1..]);
        if letter >= 127 || seen >> letter & 1 == 1 {
            return Err(Bad(reply::DUPLICATE_FLAG));
        }
        seen |= 1 << letter;
        match parsed.take(letter, token) {
            Ok(()) => {}
            Err(Bad(text)) if text == reply::UNKNOWN_FLAG => return Err(Bad(text)),
            // The client's flags have no text of their own, and leave that of another.
            Err(Bad(text)) if text == reply::BAD_FORMAT => bad = bad.or(Some(text)),
            Err(Bad(text)) => bad = Some(text),
        }
    }
    bad.map_or(Ok(parsed), |text| Err(Bad(text)))
}
