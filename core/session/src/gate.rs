//! [`Gate`]: one thread's part of a node's doors: datagrams are looked at here before anything is made of them, and
//! answers go out through it.
//!
//! A node that lets plain messages in wants the *cookie* of its address from each datagram, which every answer has: a
//! request without it is answered with the cookie alone, which is no longer than the request, so nothing longer goes
//! where it was not asked for. One that lets messages of sessions in opens them with the key of their lane.
//!
//! Invariant: nothing allocates, and nothing is kept but bounded caches.

use core::net::Ipv6Addr;
use core::ops::Deref;

use yonder_units::Nanos;
use yonder_wire::{ErrorCode, Header, Kind, Message, PROOF_BYTES, split, split_proven};

use crate::counter::AnswerCounter;
use crate::doors::{Doors, Table, Wrap};
use crate::frame::Frame;
use crate::key_cache::{KeyCache, Opened};
use crate::seal::seal;
use crate::secret::NodeSecret;

/// Where a datagram came from.
pub trait Origin: Copy + PartialEq {
    /// The whole address, with its port: what a cookie is a proof of.
    fn as_bytes(&self) -> &[u8];

    /// The address of the host, that of IP version 4 mapped into version 6: what keys are derived from. `None` if it
    /// has none.
    fn ip(&self) -> Option<Ipv6Addr>;
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// A request, or what looks like one, that may be looked at.
    Message(Message<'a>, Wrap),
    /// One that is not looked at: its sender is told why.
    Refused(Header, ErrorCode),
    /// Nothing that is answered.
    Dropped,
}

/// One thread's part.
#[derive(Debug)]
pub struct Gate<O> {
    keys: KeyCache,
    /// Numbers of the thread's answers.
    pub answers: AnswerCounter,
    /// The address that was seen last, and its cookie in a period.
    last: Option<(O, u64, u64)>,
}

impl<O: Origin> Gate<O> {
    /// The part of a thread with this number among those that answer: what it is sent is for it, or a greeting. All
    /// calls are to be made with these doors.
    #[must_use]
    pub fn new<S: Deref<Target = NodeSecret>, T: Table>(doors: &Doors<S, T>, thread: u16) -> Self {
        let keys = KeyCache::new(doors.secret(), doors.rules().cipher, thread);
        Self { keys, answers: AnswerCounter::new(thread), last: None }
    }

    /// Looks at a datagram, and opens it where it is.
    #[inline]
    pub fn open<'a, S: Deref<Target = NodeSecret>, T: Table>(
        &mut self,
        doors: &Doors<S, T>,
        datagram: &'a mut [u8],
        from: &O,
        now: Nanos,
    ) -> Arrived<'a> {
        if Frame::parse(datagram).is_some() {
            return self.open_protected(doors, datagram, from, now);
        }
        let Ok(Some(mut message)) = split(datagram) else { return Arrived::Dropped };
        if message.bytes() != datagram.len() {
            return Arrived::Dropped;
        }
        if doors.are_closed() {
            return Arrived::Refused(message.header, ErrorCode::Unprotected);
        }
        let period = now / doors.rules().cookie_period;
        let cookie = self.cookie(doors.secret(), from, period);
        let claimed = message.header.cookie;
        let is_proven = claimed == cookie || claimed == cookie_before(doors.secret(), from, period);
        // The answer brings the cookie of this period, whichever it was.
        message.header.cookie = cookie;
        // A greeting is as long as its answer.
        if is_proven || message.header.kind == Kind::Hello {
            Arrived::Message(message, Wrap::Plain)
        } else {
            Arrived::Refused(message.header, ErrorCode::Unproven)
        }
    }

    #[inline]
    fn open_protected<'a, S: Deref<Target = NodeSecret>, T: Table>(
        &mut self,
        doors: &Doors<S, T>,
        datagram: &'a mut [u8],
        from: &O,
        now: Nanos,
    ) -> Arrived<'a> {
        let Some(ip) = from.ip() else { return Arrived::Dropped };
        if !doors.are_closed() {
            return Arrived::Dropped;
        }
        let Ok(opened) = self.keys.open_request(doors.secret(), doors.hours(now), ip, datagram) else {
            return Arrived::Dropped;
        };
        let Opened { number, protection, home, .. } = opened;
        if !doors.accept(number, opened.counter, now) {
            return Arrived::Dropped;
        }
        match split_proven(&datagram[..opened.bytes]) {
            // Under the keys for greetings a request would be executed by any thread.
            Ok(Some(message)) if !home.is_door() || message.header.kind == Kind::Hello => {
                Arrived::Message(message, Wrap::Protected { number, protection, ip, home })
            }
            _ => Arrived::Dropped,
        }
    }

    /// Makes the answer of `bytes` at the start of `room` one that goes back as `wrap` says; how long it is then.
    #[inline]
    pub fn close<S: Deref<Target = NodeSecret>, T: Table>(
        &mut self,
        doors: &Doors<S, T>,
        wrap: Wrap,
        room: &mut [u8],
        bytes: usize,
    ) -> usize {
        let Wrap::Protected { number, protection, ip, home } = wrap else { return bytes };
        let key = &self.keys.keys(doors.secret(), number, ip, protection, home).answers;
        seal(key, number, self.answers.next(), &mut room[..bytes + PROOF_BYTES]);
        bytes + PROOF_BYTES
    }

    /// The cookie of an address in a period. Datagrams of one sender follow one another, so the last is remembered.
    fn cookie(&mut self, secret: &NodeSecret, of: &O, period: u64) -> u64 {
        match &self.last {
            Some((address, in_period, cookie)) if *in_period == period && address == of => *cookie,
            _ => {
                let cookie = secret.cookie(of.as_bytes(), period);
                self.last = Some((*of, period, cookie));
                cookie
            }
        }
    }
}

#[cold]
fn cookie_before(secret: &NodeSecret, of: &impl Origin, period: u64) -> u64 {
    secret.cookie(of.as_bytes(), period.wrapping_sub(1))
}
