//! The meta commands: `mg` and `me` in `get`, `ms`, `md` and `ma` in `change`.
//!
//! An item that was invalidated is *stale*: it is still read, and the client that reads it first is told that it has
//! *won*, which means that it should recache the item; those that come later are told that one has. The marks for that
//! are in the header. They, the expiry and the cas unique are changed in place, each with one store, so that a failure
//! leaves a whole item. The answer of a command that finds nothing new may be kept quiet; errors never are.
//!
//! memcached has these marks too; unlike there, an item whose key came in base64 is shown so for as long as it lives.

mod change;
mod get;

use std::io::Write;

use super::item::{Header, Marks};
use super::{Answered, Room, Store};
use crate::memory::ItemMemory;
use crate::protocol::meta::base64;
use crate::protocol::{Answer, KeyForm, MetaFlags, MetaRequest, MetaStep, MetaVerb};

/// What the first line of an answer can have at most: a key in base64, an opaque token and numbers.
const LINE_BYTES_MAX: usize = 640;

impl<M: ItemMemory> Store<M> {
    /// Serves a meta command.
    pub(super) fn meta(&self, request: &MetaRequest, now_s: u32, room: &mut dyn Room) -> Answered<M> {
        match request.verb {
            MetaVerb::Debug => self.meta_debug(request, now_s),
            MetaVerb::Get => self.meta_get(request, now_s, room),
            MetaVerb::Set(mode) => self.meta_set(request, mode, now_s, room),
            MetaVerb::Delete => self.meta_delete(request, now_s, room),
            MetaVerb::Arithmetic(arithmetic) => self.meta_arithmetic(request, arithmetic, now_s, room),
        }
    }
}

/// Where the item of a command comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It was there.
    Found,
    /// It was made, because there was none (`N`).
    Made,
}

/// When an item that a request makes is to expire; None if it makes none.
fn deadline_of_new(flags: &MetaFlags, now_s: u32) -> Option<u32> {
    flags.new_exptime()?;
    // The last one counts.
    flags.steps.iter().rev().find_map(|step| match step {
        MetaStep::Expire(exptime) | MetaStep::ExpireNew(exptime) => Some(exptime.deadline_s(now_s)),
        _ => None,
    })
}

/// The first line of an answer, as it grows.
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    /// A line that starts with a code.
    fn new(code: &[u8]) -> Self {
        Self { bytes: code.to_vec() }
    }

    /// Appends a letter and a number.
    fn number(&mut self, letter: char, number: impl std::fmt::Display) {
        write!(self.bytes, " {letter}{number}").expect("writing to a vector cannot fail");
    }

    /// Appends a letter.
    fn letter(&mut self, letter: u8) {
        self.bytes.extend_from_slice(&[b' ', letter]);
    }

    /// Appends the seconds that are left until `deadline_s`.
    fn time_left(&mut self, deadline_s: u32, now_s: u32) {
        match deadline_s {
            0 => self.number('t', -1),
            _ => self.number('t', deadline_s.saturating_sub(now_s)),
        }
    }

    fn key(&mut self, key: &[u8], form: KeyForm) {
        self.letter(b'k');
        write_key(key, form, &mut self.bytes);
        if form == KeyForm::Base64 {
            self.letter(b'b');
        }
    }

    /// Appends what every answer can show: key and opaque token. Returns whether `step` was one of these.
    fn echo(&mut self, step: MetaStep, request: &MetaRequest) -> bool {
        match step {
            MetaStep::Key => self.key(request.key(), request.flags.key_form),
            MetaStep::Opaque => {
                self.bytes.push(b' ');
                self.bytes.extend_from_slice(&request.flags.opaque);
            }
            _ => return false,
        }
        true
    }

    /// The line, ended.
    fn end(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }

    /// The line, ended, unless it is to be kept quiet.
    fn end_unless(self, answer: Answer) -> Vec<u8> {
        if answer == Answer::Quiet { Vec::new() } else { self.end() }
    }
}

/// A code and what every answer can show.
fn echo(code: &[u8], request: &MetaRequest) -> Line {
    let mut line = Line::new(code);
    for step in &request.flags.steps {
        line.echo(*step, request);
    }
    line
}

fn write_key(key: &[u8], form: KeyForm, into: &mut Vec<u8>) {
    match form {
        KeyForm::Text => into.extend_from_slice(key),
        KeyForm::Base64 => base64::encode(key, into),
    }
}

/// How the key of an item is shown.
fn form_of(header: &Header) -> KeyForm {
    if header.marks.base64_key { KeyForm::Base64 } else { KeyForm::Text }
}

/// The marks of an item that a request makes.
fn new_marks(flags: &MetaFlags) -> Marks {
    Marks { base64_key: flags.key_form == KeyForm::Base64, ..Marks::default() }
}
