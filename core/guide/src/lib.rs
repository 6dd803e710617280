//! What a [`Guide`] is: code that knows a program's data structures, and says what to fetch before it is touched.
//!
//! DiLOS (section 4.2) calls an application's own prefetcher so. A guide is told of every miss, with the registers of
//! the code that had it, and of the first touch of what it had fetched itself. It answers by what it asks of its
//! [`Reach`]: to fetch bytes ahead as whole pages, which are mapped together when one of them is touched, and to read a
//! few bytes now or soon (a **sub-page** read), so that it can follow a pointer whose page is far.
//!
//! All that a guide learns is a hint, and all that it does is one: what it reads may be older than what the program
//! would see, and what it fetches for nothing costs bandwidth only. It cannot make a program wrong.
//!
//! A guide runs on the fault path, in a signal handler at any instruction of the program: it must not allocate, take
//! locks, make system calls, panic or touch the program's memory but by its [`Reach`]. Each port (a thread, more or
//! less) has a guide of its own, so that none is shared.
//!
//! Neighbours: `core/pager` calls guides and is their [`Reach`]; `sys/plugin` loads them from files.

#![forbid(unsafe_code)]

mod fake;

pub use fake::FakeReach;

use std::sync::Arc;

/// Most bytes of a [`Reach::read`].
pub const READ_BYTES_MAX: usize = 256;
/// Reads of one guide that can be under way at a time.
pub const READS_MAX: usize = 16;
/// Misses that [`Touch::history`] goes back, at most.
pub const HISTORY_MAX: usize = 16;

/// What a guide is told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The page had to be fetched, and is on its way.
    Miss,
    /// The page had been fetched by this guide, and nobody had touched any page of the same batch before.
    Hit,
}

/// A touch of far memory.
#[derive(Clone, Copy, Debug)]
pub struct Touch<'a> {
    /// What happened.
    pub cause: Cause,
    /// The address that was touched.
    pub address: u64,
    /// What the code that touched it works with: its general registers, in no useful order, and then some words from
    /// the top of its stack; none if it had no trap.
    pub registers: &'a [u64],
    /// Addresses of the last misses before this one, the latest first.
    pub history: &'a [u64],
    /// How the guide has done so far.
    pub payoff: Payoff,
}

/// What has become of what a guide has fetched ahead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Payoff {
    /// Pages that it has fetched.
    pub fetched_pages: u64,
    /// Batches of them that were touched.
    pub hits: u64,
    /// Pages that were thrown away, untouched.
    pub unused_pages: u64,
}

/// Whether a guide knows what a touch is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does: nobody else fetches ahead for this touch.
    Known,
    /// It does not, or not all of it: the general prefetcher does what it makes of it too.
    Unknown,
}

/// What became of a [`Reach::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The bytes are there.
    Done,
    /// They are far, and come by [`Guide::arrived`], or not at all if the node does not answer.
    Coming,
    /// They cannot be read now, or never.
    Refused,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Where they are from.
    pub address: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// As given to [`Reach::read`].
    pub note: u64,
}

/// What a guide can reach.
pub trait Reach {
    /// Fetches the pages of `bytes` bytes at `address`, as far as they are far. Those that are asked for until the next
    /// touch are one batch. False if there is no room for all of them; the guide then had better stop.
    fn prefetch(&mut self, address: u64, bytes: u64) -> bool;

    /// Reads bytes at `address`, at most [`READ_BYTES_MAX`] and of one page, if they are here; whether they are.
    fn peek(&mut self, address: u64, into: &mut [u8]) -> bool;

    /// As [`Reach::peek`], and reads what is far too: it comes later, with this `note`.
    fn read(&mut self, address: u64, into: &mut [u8], note: u64) -> Reading;
}

/// Knows a program.
pub trait Guide: Send {
    /// A touch, which may be the beginning of something.
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict;

    /// Bytes that a read had to wait for.
    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach);
}

/// Makes a guide, one for each port.
pub type MakeGuide = Arc<dyn Fn() -> Box<dyn Guide> + Send + Sync>;

/// The word at the beginning of `bytes`, as the machine has it.
///
/// # Panics
/// If there are fewer than eight.
#[must_use]
pub fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}
