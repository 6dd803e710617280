//! The incremental parser: [`Parser::step`] looks at the bytes received so far and says what to do next.
//!
//! The parser keeps no copy of the input. It remembers only how far it looked for the line's end, and how much of a
//! refused data block is still to be skipped. Invariants: the steps do not depend on how the input was split; a caller
//! that offers [`Parser::input_bytes_max`] bytes never gets [`Step::NeedMore`] without bytes being consumed.

use super::command::{
    Answer, CasShown, Command, Direction, Exptime, KeyValue, Keys, StatsKind, WriteMode, WriteRefusal,
};
use super::meta::{self, MetaLine, MetaRequest};
use super::number::{parse_flags, parse_i32, parse_u64};
use super::{ANNOUNCED_BYTES_MAX, is_key, reply};

/// Longest command line, line end included. Only the lines of the `get` family may be longer.
pub const LINE_BYTES_MAX: usize = 2048;
/// Longest line of the `get` family, line end included.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes of the line end after a data block.
const BLOCK_END: &[u8] = b"\r\n";
/// More tokens than any command but the `get` family takes.
const TOKENS_MAX: usize = 8;

/// What the input says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// No complete command yet. Once the unconsumed input has grown to `bytes`, there may be one.
    NeedMore {
        /// Length of unconsumed input that is needed, at least.
        bytes: usize,
    },
    /// A command for the store.
    Execute(Command),
    /// `stats`.
    Stats(StatsKind),
    /// `version`.
    Version,
    /// `shutdown`.
    Shutdown,
    /// `refresh_certs`.
    RefreshCertificates,
    /// The command is answered with these bytes, which may be none. Errors arrive this way.
    Answer(&'static [u8]),
    /// `quit`.
    Quit,
    /// Answer with these bytes, then end the connection: the input cannot be understood any further.
    Close(&'static [u8]),
}

/// A step and the number of input bytes it used up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// Bytes at the start of the input that are not needed any more.
    pub consumed: usize,
    /// What they, or the lack of more, say.
    pub step: Step,
}

/// Reads commands from one client's input.
#[derive(Clone, Debug)]
pub struct Parser {
    value_bytes_max: usize,
    scanned_bytes: usize,
    skip_bytes: usize,
}

impl Parser {
    /// A parser that refuses values of more than `value_bytes_max` bytes.
    #[must_use]
    pub fn new(value_bytes_max: usize) -> Self {
        Self { value_bytes_max, scanned_bytes: 0, skip_bytes: 0 }
    }

    /// Length of input that always suffices for a step other than [`Step::NeedMore`].
    #[must_use]
    pub fn input_bytes_max(value_bytes_max: usize) -> usize {
        GET_LINE_BYTES_MAX.max(LINE_BYTES_MAX + value_bytes_max + BLOCK_END.len())
    }

    /// Takes the next step. `input` is everything received and not yet consumed.
    pub fn step(&mut self, input: &[u8]) -> Parsed {
        let skipped = self.skip_bytes.min(input.len());
        self.skip_bytes -= skipped;
        let input = &input[skipped..];
        if self.skip_bytes > 0 {
            return Parsed { consumed: skipped, step: Step::NeedMore { bytes: 1 } };
        }
        let parsed = self.step_at_command(input);
        if !matches!(parsed.step, Step::NeedMore { .. }) {
            self.scanned_bytes = 0;
        }
        Parsed { consumed: skipped + parsed.consumed, step: parsed.step }
    }

    /// Takes the step that ends a command for which [`Parser::step`] has just asked for more than `input`, for want of
    /// memory: a write is refused and the rest of its data block will be skipped, a line ends the connection.
    pub fn refuse(&mut self, input: &[u8]) -> Parsed {
        let Some(newline) = input.iter().position(|byte| *byte == b'\n') else {
            return Parsed { consumed: input.len(), step: Step::Close(reply::NO_ROOM_FOR_LINE) };
        };
        self.scanned_bytes = 0;
        let line = &input[..newline];
        match parse_line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Line::Write(write) => {
                let whole = newline + 1 + write.value_bytes + BLOCK_END.len();
                let consumed = whole.min(input.len());
                self.skip_bytes = whole - consumed;
                Parsed { consumed, step: write.refused(WriteRefusal::NoRoom) }
            }
            Line::Skip { value_bytes, answer } => self.skip_block(newline + 1, value_bytes, answer),
            Line::Whole(step) => Parsed { consumed: newline + 1, step },
        }
    }

    /// Whether what comes next is the rest of a data block that was refused.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skip_bytes > 0
    }

    fn step_at_command(&mut self, input: &[u8]) -> Parsed {
        let unseen = &input[self.scanned_bytes..];
        let Some(newline) = unseen.iter().position(|byte| *byte == b'\n').map(|at| self.scanned_bytes + at) else {
            self.scanned_bytes = input.len();
            return match line_bytes_max(input) {
                max if input.len() >= max => Parsed { consumed: input.len(), step: Step::Close(reply::LINE_TOO_LONG) },
                _ => Parsed { consumed: 0, step: Step::NeedMore { bytes: input.len() + 1 } },
            };
        };
        self.scanned_bytes = newline;
        let consumed = newline + 1;
        if consumed > line_bytes_max(input) {
            return Parsed { consumed, step: Step::Close(reply::LINE_TOO_LONG) };
        }
        let line = &input[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match parse_line(line) {
            Line::Whole(step) => Parsed { consumed, step },
            Line::Skip { value_bytes, answer } => self.skip_block(consumed, value_bytes, answer),
            Line::Write(write) => self.step_at_block(input, consumed, write),
        }
    }

    /// The line ends at `consumed`, and what it announces is not to be read.
    fn skip_block(&mut self, consumed: usize, value_bytes: usize, answer: &'static [u8]) -> Parsed {
        self.skip_bytes = value_bytes + BLOCK_END.len();
        Parsed { consumed, step: Step::Answer(answer) }
    }

    /// The line announces a data block, which starts at `block`.
    fn step_at_block(&mut self, input: &[u8], block: usize, write: WriteLine<'_>) -> Parsed {
        let whole = block + write.value_bytes + BLOCK_END.len();
        if write.value_bytes > self.value_bytes_max {
            self.skip_bytes = whole - block;
            return Parsed { consumed: block, step: write.refused(WriteRefusal::TooLarge) };
        }
        if input.len() < whole {
            return Parsed { consumed: 0, step: Step::NeedMore { bytes: whole } };
        }
        let (value, end) = input[block..whole].split_at(write.value_bytes);
        if end != BLOCK_END {
            return Parsed { consumed: whole, step: Step::Answer(write.bad_end()) };
        }
        Parsed { consumed: whole, step: Step::Execute(write.with_value(value)) }
    }
}

/// How long the line at the start of `input` may be.
fn line_bytes_max(input: &[u8]) -> usize {
    let head = &input[..input.len().min(LINE_BYTES_MAX)];
    let verb = head.trim_ascii_start().split(|byte| *byte == b' ').next().unwrap_or_default();
    match verb {
        b"get" | b"gets" | b"gat" | b"gats" => GET_LINE_BYTES_MAX,
        _ => LINE_BYTES_MAX,
    }
}

/// What a line says: everything, or the head of a write whose data block follows.
enum Line<'a> {
    Whole(Step),
    Write(WriteLine<'a>),
    /// The data block that follows is not to be read.
    Skip {
        value_bytes: usize,
        answer: &'static [u8],
    },
}

struct WriteLine<'a> {
    head: WriteHead<'a>,
    value_bytes: usize,
}

/// A write without its value.
enum WriteHead<'a> {
    Classic { mode: WriteMode, key: &'a [u8], flags: u32, exptime: Exptime, answer: Answer },
    Meta(MetaRequest),
}

impl WriteLine<'_> {
    fn refused(&self, refusal: WriteRefusal) -> Step {
        Step::Execute(match &self.head {
            WriteHead::Classic { mode, key, answer, .. } => {
                Command::WriteRefused { mode: *mode, key: key.to_vec(), refusal, answer: *answer }
            }
            WriteHead::Meta(request) => Command::meta_refused(request.key(), refusal),
        })
    }

    /// What is answered when the data block does not end where it should.
    fn bad_end(&self) -> &'static [u8] {
        match &self.head {
            WriteHead::Classic { answer, .. } => unless_quiet(*answer, reply::BAD_CHUNK),
            WriteHead::Meta(_) => reply::BAD_CHUNK,
        }
    }

    fn with_value(self, value: &[u8]) -> Command {
        match self.head {
            WriteHead::Classic { mode, key, flags, exptime, answer } => {
                Command::Write { mode, item: KeyValue::new(key, value), flags, exptime, answer }
            }
            WriteHead::Meta(request) => {
                let item = KeyValue::new(request.key(), value);
                Command::Meta(Box::new(MetaRequest { item, ..request }))
            }
        }
    }
}

/// The words of a line: the verb first, at most [`TOKENS_MAX`] kept.
struct Tokens<'a> {
    words: [&'a [u8]; TOKENS_MAX],
    count: usize,
    answer: Answer,
}

impl<'a> Tokens<'a> {
    fn new(line: &'a [u8]) -> Self {
        let mut tokens = Self { words: [&[]; TOKENS_MAX], count: 0, answer: Answer::Wanted };
        let mut last: &[u8] = &[];
        for word in line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
            if let Some(place) = tokens.words.get_mut(tokens.count) {
                *place = word;
            }
            tokens.count += 1;
            last = word;
        }
        if last == b"noreply" {
            tokens.answer = Answer::Quiet;
        }
        tokens
    }

    fn counted(&self, least: usize, most: usize) -> Result<(), Refusal> {
        if (least..=most).contains(&self.count) { Ok(()) } else { Err(Refusal(reply::ERROR, Answer::Wanted)) }
    }

    fn refuse(&self, text: &'static [u8]) -> Refusal {
        Refusal(text, self.answer)
    }

    fn key(&self) -> Result<&'a [u8], Refusal> {
        if is_key(self.words[1]) { Ok(self.words[1]) } else { Err(self.refuse(reply::BAD_FORMAT)) }
    }
}

/// Why a line is no command: the error, and whether the client wants to see it.
struct Refusal(&'static [u8], Answer);

fn parse_line(line: &[u8]) -> Line<'_> {
    if let Some(line) = meta::parse(line) {
        return match line {
            MetaLine::Answer(bytes) => Line::Whole(Step::Answer(bytes)),
            MetaLine::Whole(request) => Line::Whole(Step::Execute(Command::Meta(Box::new(request)))),
            MetaLine::Set { value_bytes, head } => Line::Write(WriteLine { head: WriteHead::Meta(head), value_bytes }),
            MetaLine::Skip { value_bytes, answer } => Line::Skip { value_bytes, answer },
        };
    }
    let tokens = Tokens::new(line);
    match parse_verb(line, &tokens) {
        Ok(line) => line,
        Err(Refusal(text, answer)) => Line::Whole(Step::Answer(unless_quiet(answer, text))),
    }
}

fn parse_verb<'a>(line: &'a [u8], tokens: &Tokens<'a>) -> Result<Line<'a>, Refusal> {
    let execute = |command| Line::Whole(Step::Execute(command));
    match tokens.words[0] {
        b"get" => parse_get(line, tokens, CasShown::No).map(execute),
        b"gets" => parse_get(line, tokens, CasShown::Yes).map(execute),
        b"gat" => parse_gat(line, tokens, CasShown::No).map(execute),
        b"gats" => parse_gat(line, tokens, CasShown::Yes).map(execute),
        b"set" => parse_write(tokens, WriteMode::Set),
        b"add" => parse_write(tokens, WriteMode::Add),
        b"replace" => parse_write(tokens, WriteMode::Replace),
        b"append" => parse_write(tokens, WriteMode::Append),
        b"prepend" => parse_write(tokens, WriteMode::Prepend),
        b"cas" => parse_cas(tokens),
        b"delete" => parse_delete(tokens).map(execute),
        b"incr" => parse_arithmetic(tokens, Direction::Up).map(execute),
        b"decr" => parse_arithmetic(tokens, Direction::Down).map(execute),
        b"touch" => parse_touch(tokens).map(execute),
        b"flush_all" => parse_flush(tokens).map(execute),
        b"stats" => parse_stats(tokens).map(Line::Whole),
        b"verbosity" => parse_verbosity(tokens).map(Line::Whole),
        b"cache_memlimit" => parse_memory_limit(tokens).map(Line::Whole),
        b"shutdown" => parse_shutdown(tokens).map(Line::Whole),
        b"refresh_certs" => Ok(Line::Whole(Step::RefreshCertificates)),
        b"version" => Ok(Line::Whole(Step::Version)),
        b"quit" => Ok(Line::Whole(Step::Quit)),
        // A browser that was led here must not get its headers executed.
        _ if line.rsplit(|byte| *byte == b' ').next().is_some_and(|word| word.starts_with(b"HTTP/")) => {
            Ok(Line::Whole(Step::Close(b"")))
        }
        _ => Err(Refusal(reply::ERROR, Answer::Wanted)),
    }
}

fn parse_get(line: &[u8], tokens: &Tokens<'_>, cas: CasShown) -> Result<Command, Refusal> {
    tokens.counted(2, usize::MAX)?;
    Ok(Command::Get { keys: keys_behind(line, 1)?, cas, touch: None })
}

fn parse_gat(line: &[u8], tokens: &Tokens<'_>, cas: CasShown) -> Result<Command, Refusal> {
    tokens.counted(2, usize::MAX)?;
    let exptime = parse_i32(tokens.words[1]).ok_or(Refusal(reply::BAD_EXPTIME, Answer::Wanted))?;
    Ok(Command::Get { keys: keys_behind(line, 2)?, cas, touch: Some(Exptime(exptime)) })
}

/// The keys behind the first `words` words of the line.
fn keys_behind(line: &[u8], words: usize) -> Result<Keys, Refusal> {
    let mut rest = line;
    for _ in 0..words {
        let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
        let len = rest[start..].iter().position(|byte| *byte == b' ').unwrap_or(rest.len() - start);
        rest = &rest[start + len..];
    }
    if rest.split(|byte| *byte == b' ').all(|key| key.is_empty() || is_key(key)) {
        Ok(Keys::new(rest))
    } else {
        Err(Refusal(reply::BAD_FORMAT, Answer::Wanted))
    }
}

fn parse_write<'a>(tokens: &Tokens<'a>, mode: WriteMode) -> Result<Line<'a>, Refusal> {
    tokens.counted(5, 6)?;
    write_line(tokens, |_| Some(mode))
}

fn parse_cas<'a>(tokens: &Tokens<'a>) -> Result<Line<'a>, Refusal> {
    tokens.counted(6, 7)?;
    write_line(tokens, |tokens| parse_u64(tokens.words[5]).map(WriteMode::Cas))
}

fn write_line<'a>(
    tokens: &Tokens<'a>,
    mode: impl FnOnce(&Tokens<'a>) -> Option<WriteMode>,
) -> Result<Line<'a>, Refusal> {
    let bad = || tokens.refuse(reply::BAD_FORMAT);
    let key = tokens.key()?;
    let flags = parse_flags(tokens.words[2]).ok_or_else(bad)?;
    let exptime = Exptime(parse_i32(tokens.words[3]).ok_or_else(bad)?);
    let announced =
        parse_i32(tokens.words[4]).filter(|bytes| (0..=ANNOUNCED_BYTES_MAX).contains(bytes)).ok_or_else(bad)?;
    let mode = mode(tokens).ok_or_else(bad)?;
    let head = WriteHead::Classic { mode, key, flags, exptime, answer: tokens.answer };
    Ok(Line::Write(WriteLine { head, value_bytes: announced as usize }))
}

/// `delete <key> [0] [noreply]`: the number is a relic of old clients.
fn parse_delete(tokens: &Tokens<'_>) -> Result<Command, Refusal> {
    tokens.counted(2, 4)?;
    let quiet = tokens.answer == Answer::Quiet;
    let zero = tokens.words[2] == b"0";
    let valid = match tokens.count {
        2 => true,
        3 => zero || quiet,
        _ => zero && quiet,
    };
    if !valid {
        return Err(tokens.refuse(reply::BAD_DELETE));
    }
    Ok(Command::Delete { key: tokens.key()?.to_vec(), answer: tokens.answer })
}

fn parse_arithmetic(tokens: &Tokens<'_>, direction: Direction) -> Result<Command, Refusal> {
    tokens.counted(3, 4)?;
    let key = tokens.key()?.to_vec();
    let delta = parse_u64(tokens.words[2]).ok_or(tokens.refuse(reply::BAD_DELTA))?;
    Ok(Command::Arithmetic { key, direction, delta, answer: tokens.answer })
}

fn parse_touch(tokens: &Tokens<'_>) -> Result<Command, Refusal> {
    tokens.counted(3, 4)?;
    let key = tokens.key()?.to_vec();
    let exptime = parse_i32(tokens.words[2]).ok_or(tokens.refuse(reply::BAD_EXPTIME))?;
    Ok(Command::Touch { key, exptime: Exptime(exptime), answer: tokens.answer })
}

fn parse_flush(tokens: &Tokens<'_>) -> Result<Command, Refusal> {
    tokens.counted(1, 3)?;
    let bare = if tokens.answer == Answer::Quiet { 2 } else { 1 };
    let delay = match tokens.count {
        count if count == bare => 0,
        _ => parse_i32(tokens.words[1]).ok_or(tokens.refuse(reply::BAD_EXPTIME))?,
    };
    Ok(Command::FlushAll { delay: Exptime(delay), answer: tokens.answer })
}

fn parse_stats(tokens: &Tokens<'_>) -> Result<Step, Refusal> {
    let kind = match tokens.words[1] {
        b"" => StatsKind::General,
        b"settings" => StatsKind::Settings,
        b"items" => StatsKind::Items,
        b"slabs" => StatsKind::Slabs,
        b"sizes" => StatsKind::Sizes,
        b"conns" => StatsKind::Connections,
        b"hits" => StatsKind::Hits,
        b"reset" => StatsKind::Reset,
        b"detail" => return Ok(Step::Answer(reply::STATS_DETAIL)),
        b"cachedump" => return Ok(Step::Answer(reply::BAD_STATS)),
        _ => return Err(Refusal(reply::ERROR, Answer::Wanted)),
    };
    Ok(Step::Stats(kind))
}

fn parse_verbosity(tokens: &Tokens<'_>) -> Result<Step, Refusal> {
    tokens.counted(2, 3)?;
    if tokens.count == 2 && tokens.answer == Answer::Quiet {
        return Ok(Step::Answer(b""));
    }
    parse_flags(tokens.words[1]).ok_or(tokens.refuse(reply::BAD_FORMAT))?;
    Ok(Step::Answer(unless_quiet(tokens.answer, reply::OK)))
}

/// `cache_memlimit <MiB> [noreply]`: the memory of items is what the server was started with.
fn parse_memory_limit(tokens: &Tokens<'_>) -> Result<Step, Refusal> {
    const LEAST_MIB: u32 = 8;
    tokens.counted(2, 3)?;
    let mib = parse_flags(tokens.words[1]).ok_or(tokens.refuse(reply::ERROR))?;
    let answer = if mib < LEAST_MIB { reply::MEMORY_LIMIT_TOO_SMALL } else { reply::MEMORY_LIMIT_REFUSED };
    Ok(Step::Answer(unless_quiet(tokens.answer, answer)))
}

/// `shutdown [graceful]`: what is under way is answered either way.
fn parse_shutdown(tokens: &Tokens<'_>) -> Result<Step, Refusal> {
    match tokens.words[1] {
        b"" | b"graceful" if tokens.count <= 2 => Ok(Step::Shutdown),
        _ => Err(Refusal(reply::BAD_SHUTDOWN, Answer::Wanted)),
    }
}

fn unless_quiet(answer: Answer, text: &'static [u8]) -> &'static [u8] {
    match answer {
        Answer::Wanted => text,
        Answer::Quiet => b"",
    }
}
