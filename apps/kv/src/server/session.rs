//! One client's conversation, without its socket: [`Session`] holds its input and output and says what to do next.
//!
//! At most one command of a session is being executed at a time; later ones wait in the input, so replies keep the
//! order of the requests. Cheap commands (`version`, `quit`, `verbosity`, `stats`, errors) are answered right here.
//! A client that does not take its replies is not listened to until it does. What a session holds is known at any time,
//! the command that is being executed included; when there is no room for more input, the command that needs it is
//! refused.

use std::sync::Arc;

use super::buffers::{Input, Output};
use super::passwords::Passwords;
use crate::protocol::{Command, LoginParser, LoginStep, Parser, StatsKind, Step, reply};

/// What the server calls itself. Clients look at the leading numbers for what they may use.
pub(super) const VERSION: &str = concat!("1.6.18-yonder-", env!("CARGO_PKG_VERSION"));
const VERSION_REPLY: &[u8] = concat!("VERSION 1.6.18-yonder-", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes();

/// Commands answered in one go before other clients get their turn.
const INLINE_COMMANDS_MAX: usize = 64;

/// What a session asks of its server, which answers into the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inquiry {
    /// `stats`.
    Stats(StatsKind),
    /// `refresh_certs`.
    RefreshCertificates,
    /// `shutdown`.
    Shutdown,
}

/// What a session does next.
#[derive(Debug)]
pub(super) enum Next {
    /// This is to be executed, then [`Session::executed`].
    Execute(Command),
    /// More input is needed: `bytes` in total.
    Input {
        /// As [`Step::NeedMore`] says.
        bytes: usize,
    },
    /// The connections are to be listed: a session knows none but its own.
    List,
    /// Output must be sent first.
    Output,
    /// It has more to do, but others first.
    Turn,
    /// Nothing more, once the output is sent.
    End,
}

/// A client that has not said who it is.
struct Stranger {
    parser: LoginParser,
    passwords: Arc<Passwords>,
}

/// Whether more input may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The client sends no more; what it has sent is still served.
    HalfClosed,
    /// Nothing more is served.
    Ended,
    /// Nothing more is served, because what the client sends cannot be understood.
    Refused,
}

/// One client's conversation.
pub(super) struct Session {
    parser: Parser,
    /// Until it is let in, if anything is asked of it.
    stranger: Option<Stranger>,
    pub(super) input: Input,
    pub(super) output: Output,
    output_bytes_max: usize,
    rest: Option<Command>,
    /// Of the command that is being executed, or of the rest that will be.
    command_bytes: usize,
    /// There is no room for the input that was asked for.
    refused_input: bool,
    phase: Phase,
}

impl Session {
    /// A session that stops to listen while more than `output_bytes_max` bytes of output wait.
    pub(super) fn new(value_bytes_max: usize, output_bytes_max: usize, input: Input) -> Self {
        Self {
            parser: Parser::new(value_bytes_max),
            stranger: None,
            input,
            output: Output::default(),
            output_bytes_max,
            rest: None,
            command_bytes: 0,
            refused_input: false,
            phase: Phase::Open,
        }
    }

    /// Nothing is done for the client until it has said one of these.
    pub(super) fn ask_who_it_is(&mut self, passwords: Arc<Passwords>) {
        self.stranger = Some(Stranger { parser: LoginParser::default(), passwords });
    }

    /// Whether the client has still to say who it is.
    pub(super) fn is_strange(&self) -> bool {
        self.stranger.is_some()
    }

    /// What to do next, when nothing is being executed. `ask` is answered at once.
    pub(super) fn next(&mut self, ask: &mut dyn FnMut(Inquiry, &mut Output)) -> Next {
        for _ in 0..INLINE_COMMANDS_MAX {
            if self.output.len() > self.output_bytes_max {
                return Next::Output;
            }
            if let Some(rest) = self.rest.take() {
                return Next::Execute(rest);
            }
            if self.is_ended() {
                return Next::End;
            }
            match self.parse() {
                Step::Execute(command) => {
                    self.command_bytes = command.allocated_bytes();
                    return Next::Execute(command);
                }
                Step::NeedMore { .. } if self.phase == Phase::HalfClosed => self.end(),
                Step::NeedMore { bytes } => return Next::Input { bytes },
                Step::Stats(StatsKind::Connections) => return Next::List,
                Step::Stats(kind) => ask(Inquiry::Stats(kind), &mut self.output),
                Step::RefreshCertificates => ask(Inquiry::RefreshCertificates, &mut self.output),
                Step::Shutdown => ask(Inquiry::Shutdown, &mut self.output),
                Step::Version => self.output.push(VERSION_REPLY),
                Step::Answer(bytes) => self.output.push(bytes),
                Step::Quit => self.end(),
                Step::Close(bytes) => {
                    self.output.push(bytes);
                    self.phase = Phase::Refused;
                }
            }
        }
        Next::Turn
    }

    fn parse(&mut self) -> Step {
        if let Some(stranger) = &mut self.stranger {
            let (consumed, step) = stranger.parser.step(self.input.data());
            let step = match step {
                LoginStep::NeedMore { .. } if self.refused_input => Step::Close(reply::NO_ROOM_FOR_LINE),
                LoginStep::NeedMore { bytes } => Step::NeedMore { bytes },
                LoginStep::Answer(answer) => Step::Answer(answer),
                LoginStep::Close(answer) => Step::Close(answer),
                LoginStep::Credentials { user, password } if stranger.passwords.accept(user, password) => {
                    self.stranger = None;
                    Step::Answer(reply::STORED)
                }
                LoginStep::Credentials { .. } => Step::Answer(reply::AUTHENTICATION_FAILURE),
            };
            self.input.consume(consumed);
            return step;
        }
        let mut parsed = self.parser.step(self.input.data());
        if self.refused_input && matches!(parsed.step, Step::NeedMore { .. }) {
            parsed = self.parser.refuse(self.input.data());
        }
        self.refused_input = false;
        self.input.consume(parsed.consumed);
        parsed.step
    }

    /// A command was executed.
    pub(super) fn executed(&mut self, reply: Vec<u8>, rest: Option<Command>) {
        self.output.push_owned(reply);
        self.command_bytes = rest.as_ref().map_or(0, Command::allocated_bytes);
        self.rest = rest;
    }

    /// What was handed out is executed in this place, or nothing is.
    pub(super) fn replace_command(&mut self, by: Option<&Command>) {
        self.command_bytes = by.map_or(0, Command::allocated_bytes);
    }

    /// There is no room for the input that [`Next::Input`] has just asked for.
    pub(super) fn refuse_input(&mut self) {
        self.refused_input = true;
    }

    /// Bytes that are allocated for it.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.command_bytes
    }

    /// Whether the client has neither begun a command without ending it nor left a reply untaken.
    pub(super) fn is_between_commands(&self) -> bool {
        self.input.data().is_empty() && !self.parser.is_skipping() && self.output.len() == 0 && !self.is_refused()
    }

    /// No input will come any more.
    pub(super) fn input_ended(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::HalfClosed;
        }
    }

    /// What the client sends cannot be understood.
    pub(super) fn refuse(&mut self) {
        self.phase = Phase::Refused;
    }

    /// Nothing more is read or executed.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Ended;
    }

    /// Whether only output is left, if anything.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::Refused) && self.rest.is_none()
    }

    /// Whether it ended because of what the client sent, of which there may be more.
    pub(super) fn is_refused(&self) -> bool {
        self.phase == Phase::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Answer, WriteRefusal};

    fn session(input: &[u8]) -> Session {
        Session::new(1 << 20, 100, Input::holding(input))
    }

    fn next(session: &mut Session) -> Next {
        session.next(&mut |_, _| {})
    }

    #[test]
    fn commands_wait_for_the_one_under_way() {
        let mut session = session(b"version\r\nget a\r\nget b\r\nbad\r\nquit\r\nversion\r\n");
        assert!(matches!(next(&mut session), Next::Execute(Command::Get { .. })));
        session.executed(b"A".to_vec(), None);
        assert!(matches!(next(&mut session), Next::Execute(Command::Get { .. })));
        session.executed(b"B".to_vec(), None);
        assert!(matches!(next(&mut session), Next::End));
        let expected = [VERSION_REPLY, b"AB", b"ERROR\r\n"].concat();
        assert_eq!(session.output.take(), expected);
    }

    #[test]
    fn the_rest_of_a_command_comes_first_and_waits_for_room() {
        let mut session = session(b"get a\r\nversion\r\n");
        let Next::Execute(command) = next(&mut session) else { panic!("a command is there") };
        session.executed(vec![b'x'; 101], Some(command.clone()));
        assert!(matches!(next(&mut session), Next::Output));
        session.output.take();
        let Next::Execute(rest) = next(&mut session) else { panic!("the rest is there") };
        assert_eq!(rest, command);
    }

    #[test]
    fn cheap_commands_let_others_have_their_turn() {
        let mut session = session(&b"verbosity 1 noreply\r\n".repeat(INLINE_COMMANDS_MAX + 1));
        assert!(matches!(next(&mut session), Next::Turn));
        assert!(matches!(next(&mut session), Next::Input { .. }));
    }

    #[test]
    fn half_closed_clients_are_served() {
        let mut session = session(b"get a\r\nge");
        session.input_ended();
        assert!(matches!(next(&mut session), Next::Execute(_)));
        assert!(!session.is_ended());
        assert!(matches!(next(&mut session), Next::End));
        assert!(session.is_ended());
    }

    #[test]
    fn without_room_a_write_is_refused_and_what_follows_is_served() {
        for (noreply, expected) in [(" noreply", Answer::Quiet), ("", Answer::Wanted)] {
            let mut session = session(format!("set k 0 0 50{noreply}\r\nhalf").as_bytes());
            assert!(matches!(next(&mut session), Next::Input { .. }));
            session.refuse_input();
            let Next::Execute(Command::WriteRefused { refusal, answer, .. }) = next(&mut session) else {
                panic!("the write is refused");
            };
            assert_eq!((refusal, answer), (WriteRefusal::NoRoom, expected));
            session.executed(Vec::new(), None);
            assert!(!session.is_between_commands(), "the rest of the block is to come");
            let rest = [&[b'x'; 48][..], b"version\r\n"].concat();
            let mut source = &rest[..];
            while !source.is_empty() {
                session.input.fill(&mut source, 1).expect("a slice can be read");
                assert!(matches!(next(&mut session), Next::Input { .. }));
            }
            assert_eq!(session.output.take(), VERSION_REPLY);
            assert!(session.is_between_commands());
        }
    }

    #[test]
    fn what_a_command_holds_counts_until_it_is_over() {
        let line = format!("get{}\r\n", " k".repeat(10_000));
        let mut session = session(line.as_bytes());
        let Next::Execute(command) = next(&mut session) else { panic!("a command is there") };
        assert!((20_000..30_000).contains(&session.allocated_bytes()), "{}", session.allocated_bytes());
        session.executed(vec![0; 1000], Some(command));
        assert!((21_000..31_000).contains(&session.allocated_bytes()), "{}", session.allocated_bytes());
        session.output.take();
        assert!(matches!(next(&mut session), Next::Execute(_)));
        session.executed(Vec::new(), None);
        assert_eq!(session.allocated_bytes(), 0);
    }
}
