//! The buffers of one system call: a rule, and the values of its arguments.
//!
//! [`plan`] is what a signal handler asks first. It reads no memory and allocates nothing; where a length stands in
//! memory ([`Length::InMemory`]) it says where, and [`Buffer::with_length_word`] goes on from there. Lengths that no
//! kernel would accept are cut off, never complained about: the kernel answers them.
//!
//! Invariants: at most one buffer for each argument; no buffer is at address 0 or has 0 bytes.

use std::ops::Deref;

use crate::rule::{ARGS, Access, Arg, Errno, Extent, Rule};
use crate::{WINDOW, rule};

/// The most that one call reads or writes: the kernel's `MAX_RW_COUNT`.
pub const LENGTH_MAX: u64 = 0x7fff_f000;

/// What to do about a call.
#[expect(clippy::large_enum_variant, reason = "made in a signal handler, which cannot allocate")]
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// See to these buffers, as far as they are far, and issue it. There may be none.
    Issue(Buffers),
    /// It changes the address space.
    Memory,
    /// Answer it with this error.
    Refuse(Errno),
}

/// What a call with these arguments reads and writes.
#[must_use]
pub fn plan(number: u32, args: &[u64; ARGS]) -> Plan {
    let mut buffers = Buffers::NONE;
    match rule(number).select(args) {
        Rule::Refuse(errno) => return Plan::Refuse(errno),
        Rule::Memory(_) => return Plan::Memory,
        Rule::Direct(pointers) => pointers.iter().for_each(|arg| buffers.add(*arg, args)),
        Rule::Unknown => (0..)
            .take(ARGS)
            .for_each(|index| buffers.add(Arg { index, access: Access::InOut, extent: Extent::Unknown }, args)),
        Rule::Pass | Rule::Command(_) => {}
    }
    Plan::Issue(buffers)
}

/// The buffers of a call, in the order of its rule.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    items: [Buffer; ARGS],
    count: usize,
}

impl Buffers {
    const NONE: Self = Self { items: [Buffer::NONE; ARGS], count: 0 };

    fn add(&mut self, arg: Arg, args: &[u64; ARGS]) {
        let buffer = Buffer::of(arg, args);
        if buffer.address != 0 && buffer.length != Length::Bytes(0) {
            self.items[self.count] = buffer;
            self.count += 1;
        }
    }
}

impl Deref for Buffers {
    type Target = [Buffer];

    fn deref(&self) -> &[Buffer] {
        &self.items[..self.count]
    }
}

/// Memory that a call uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// The argument that points to it.
    pub index: u8,
    /// Where it is.
    pub address: u64,
    /// What the kernel does there.
    pub access: Access,
    /// How long it is.
    pub length: Length,
    /// With [`Access::Result`]: bytes that are written whenever the call succeeds.
    head: u64,
    /// With [`Access::Result`]: bytes for each unit of the result.
    each: u64,
}

impl Buffer {
    const NONE: Self = Self { index: 0, address: 0, access: Access::In, length: Length::Bytes(0), head: 0, each: 0 };

    /// Whether it lies in far memory.
    #[must_use]
    pub fn is_far(&self) -> bool {
        WINDOW.contains(&self.address)
    }

    /// The buffer, now that the 32 bits at [`Length::InMemory`] have been read: they are `word`.
    #[must_use]
    pub fn with_length_word(self, word: u32) -> Self {
        match self.length {
            Length::InMemory { plus, least, .. } => {
                Self { length: Length::Bytes(least.max(plus + int(u64::from(word)))), ..self }
            }
            _ => self,
        }
    }

    /// How many bytes from its start a copy of it must carry back after a call with this result, negative for an error.
    /// 0 where its length is not known in bytes.
    #[must_use]
    pub fn written(&self, result: i64) -> u64 {
        let Length::Bytes(bytes) = self.length else { return 0 };
        match (self.access, u64::try_from(result)) {
            (Access::InOut, _) | (Access::Out, Ok(_)) => bytes,
            (Access::Result, Ok(units)) => bytes.min(units.saturating_mul(self.each).saturating_add(self.head)),
            _ => 0,
        }
    }

    fn of(arg: Arg, args: &[u64; ARGS]) -> Self {
        let value = |index: u8| args[usize::from(index)];
        let address = value(arg.index);
        let (mut head, mut each) = (0, 1);
        let length = match arg.extent {
            Extent::Bytes(bytes) => Length::Bytes(bytes.into()),
            Extent::AtLeast(bytes) => Length::AtLeast(bytes.into()),
            Extent::Count(count) => Length::Bytes(value(count).min(LENGTH_MAX)),
            Extent::CountInt(count) => Length::Bytes(int(value(count))),
            Extent::Headed { head: bytes, count } => {
                head = bytes.into();
                Length::Bytes(value(count).saturating_add(head).min(LENGTH_MAX))
            }
            Extent::Elements { count, each: bytes } => {
                each = bytes.into();
                Length::Bytes((int(value(count)) * each).min(LENGTH_MAX))
            }
            Extent::Bits { count, less } => {
                Length::Bytes(int(value(count)).saturating_sub(less.into()).div_ceil(64) * 8)
            }
            Extent::CountAt(at) => Length::InMemory { at: value(at), plus: 0, least: 0 },
            Extent::Inside { offset, plus, least } => {
                Length::InMemory { at: address.saturating_add(offset.into()), plus: plus.into(), least: least.into() }
            }
            Extent::Encoded(command) => encoded(value(command)),
            Extent::Text => Length::Text,
            Extent::Strings => Length::Strings,
            Extent::Iovec(count) => Length::Iovec(int(value(count))),
            Extent::Message => Length::Message,
            Extent::Messages(count) => Length::Messages(int(value(count))),
            Extent::Argpack => Length::Argpack,
            Extent::Word => Length::Futex,
            Extent::Waiters(count) => Length::Waiters(int(value(count))),
            Extent::WaiterPair => Length::Waiters(2),
            Extent::Stack => Length::Stack,
            Extent::Unknown => Length::Unknown,
        };
        Self { index: arg.index, address, access: arg.access, length, head, each }
    }
}

/// How long a buffer is, or what it is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many bytes, at most [`LENGTH_MAX`].
    Bytes(u64),
    /// At least so many, perhaps more: its pages are held, never copied.
    AtLeast(u64),
    /// Perhaps it is no buffer: the page is held, if there is one.
    Unknown,
    /// 32 bits of memory tell; see [`Buffer::with_length_word`].
    InMemory {
        /// Where they are. It may be in far memory too, or nowhere.
        at: u64,
        /// Bytes that they do not count.
        plus: u64,
        /// Bytes that are used even if they say less.
        least: u64,
    },
    /// Up to a zero byte.
    Text,
    /// Addresses of texts, up to a null address.
    Strings,
    /// So many `iovec`.
    Iovec(u64),
    /// One `msghdr`.
    Message,
    /// So many `mmsghdr`.
    Messages(u64),
    /// Address and size of a signal set.
    Argpack,
    /// A futex: touched, not copied.
    Futex,
    /// So many `futex_waitv`.
    Waiters(u64),
    /// A stack that ends here.
    Stack,
}

/// A count that the kernel takes as 32 bits with a sign, or that it refuses when it is larger: then nothing is used.
fn int(value: u64) -> u64 {
    u64::try_from(((value & 0xffff_ffff) as u32).cast_signed()).unwrap_or(0)
}

/// The size in the number of an `ioctl` command: 14 bits from bit 16 (`_IOC_SIZE`).
fn encoded(command: u64) -> Length {
    match command >> 16 & 0x3fff {
        0 => Length::Unknown,
        bytes => Length::AtLeast(bytes),
    }
}

#[cfg(test)]
mod tests;
