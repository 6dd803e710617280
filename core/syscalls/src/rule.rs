//! The words of the table: what one system call does with its arguments.
//!
//! A [`Syscall`] is a row: number, name and [`Rule`]. A rule lists the arguments that are addresses ([`Arg`]): what the
//! kernel does there ([`Access`]) and how far it goes ([`Extent`]). Where one argument says what another one means
//! (`futex`, `ioctl`), the rule is a [`Command`] that chooses between rules.
//!
//! Neighbours: `table` fills in the rows, `plan` turns a rule and values into buffers, `filter` into a program.
//!
//! Invariants: a rule names an argument at most once; choosing ends in a rule that is not a command.

use crate::WINDOW;

/// Number of arguments of a system call.
pub const ARGS: usize = 6;

/// What a system call does with the memory of the program.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Nothing that an argument points to.
    Pass,
    /// It follows these arguments.
    Direct(&'static [Arg]),
    /// One argument says what the others are.
    Command(&'static Command),
    /// It changes the address space: these arguments are the starts of ranges, not buffers.
    Memory(ArgSet),
    /// It would let the kernel or a device use memory after it has returned, so it is answered with an error.
    Refuse(Errno),
    /// The table does not know it.
    Unknown,
}

impl Rule {
    /// The rule for these arguments: never a [`Rule::Command`].
    #[must_use]
    pub fn select(mut self, args: &[u64; ARGS]) -> Self {
        while let Self::Command(command) = self {
            self = command.choose((args[usize::from(command.selector)] & 0xffff_ffff) as u32);
        }
        self
    }

    /// Arguments that may be addresses, whatever a command chooses.
    #[must_use]
    pub fn addresses(self) -> ArgSet {
        match self {
            Self::Pass | Self::Refuse(_) => ArgSet::EMPTY,
            Self::Direct(args) => args.iter().fold(ArgSet::EMPTY, |set, arg| set.with(arg.index)),
            Self::Command(command) => {
                let cases = command.cases.iter().map(|(_, rule)| rule.addresses());
                cases.fold(command.other.addresses(), ArgSet::union)
            }
            Self::Memory(set) => set,
            Self::Unknown => ArgSet::ALL,
        }
    }
}

/// A choice by the value of one argument, of which the kernel looks at the low 32 bits.
#[derive(Debug)]
pub struct Command {
    /// The argument.
    pub selector: u8,
    /// Shifted right by so many bits, and then
    pub shift: u8,
    /// masked with this, it is compared with the cases.
    pub mask: u32,
    /// Values and their rules, the frequent ones first.
    pub cases: &'static [(u32, Rule)],
    /// The rule for all other values.
    pub other: Rule,
}

impl Command {
    /// The rule for this value of the selector.
    #[must_use]
    pub fn choose(&self, selector: u32) -> Rule {
        let value = (selector >> self.shift) & self.mask;
        self.cases.iter().find(|(case, _)| *case == value).map_or(self.other, |(_, rule)| *rule)
    }
}

/// An argument that is an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Which argument, from 0.
    pub index: u8,
    /// What the kernel does with the bytes there.
    pub access: Access,
    /// How many bytes these are.
    pub extent: Extent,
}

/// What the kernel does with the bytes of a buffer, and so what a copy of it must carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads them: copied in.
    In,
    /// Writes all of them if the call succeeds, none if it fails: copied back after success.
    Out,
    /// Reads and writes them, or writes some of them, perhaps also when the call fails: copied in, and back in any
    /// case.
    InOut,
    /// Writes as many as the result says: so many are copied back.
    Result,
    /// Remembers the address, and reads or writes there later: the memory stays where it is, resident, until the thread
    /// or the process ends. Never copied.
    Kept,
}

/// How many bytes of a buffer the kernel uses. Argument numbers count from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// So many bytes.
    Bytes(u16),
    /// At least so many: how many is not known, so the pages are held and not copied.
    AtLeast(u16),
    /// As many bytes as an argument of the kernel's type `size_t` says.
    Count(u8),
    /// As many bytes as an argument of the kernel's type `int` or `unsigned int` says.
    CountInt(u8),
    /// A head of so many bytes, and then as many as an argument says: a System V message.
    Headed {
        /// Bytes of the head.
        head: u16,
        /// The argument.
        count: u8,
    },
    /// An array.
    Elements {
        /// The argument that says how many elements.
        count: u8,
        /// Bytes of one.
        each: u16,
    },
    /// A bit set, in whole words of 64 bits.
    Bits {
        /// The argument that says how many bits.
        count: u8,
        /// How many fewer there really are: 1 for the node masks of memory policies.
        less: u8,
    },
    /// As many bytes as stands where an argument points: the `socklen_t *` of `accept`.
    CountAt(u8),
    /// The buffer itself says how long it is, in 32 bits.
    Inside {
        /// Bytes before these 32 bits.
        offset: u8,
        /// Bytes that they do not count.
        plus: u8,
        /// Bytes that are used even if they say less.
        least: u8,
    },
    /// Text that ends with a zero byte.
    Text,
    /// An array of addresses of texts that ends with a null address: `argv`.
    Strings,
    /// An array of `iovec` (16 bytes each), whose buffers have the access of the argument.
    Iovec(u8),
    /// A `msghdr` (56 bytes): name, buffers and control data. It is updated itself where the access is `Result`.
    Message,
    /// An array of `mmsghdr` (64 bytes each), as many as an argument says. Always updated.
    Messages(u8),
    /// The last argument of `pselect6`: address and size of a signal set, which is read.
    Argpack,
    /// A futex: 32 bits. Touched and tried again, never copied: other threads use the address.
    Word,
    /// As many `futex_waitv` (24 bytes each, the address of a futex at byte 8) as an argument says.
    Waiters(u8),
    /// Two `futex_waitv`.
    WaiterPair,
    /// The argument's number encodes the size, by the rules of `ioctl`; a lower bound, as arrays may follow.
    Encoded(u8),
    /// The address is the end of a stack, which is used below it.
    Stack,
    /// It may be no address at all: if it is, the page is held.
    Unknown,
}

/// A set of arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ArgSet(u8);

impl ArgSet {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// All six.
    pub const ALL: Self = Self((1 << ARGS) - 1);

    /// The same set with one more argument.
    #[must_use]
    pub const fn with(self, index: u8) -> Self {
        assert!((index as usize) < ARGS, "a system call has no such argument");
        Self(self.0 | 1 << index)
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the argument is in it.
    #[must_use]
    pub const fn contains(self, index: u8) -> bool {
        self.0 & 1 << index != 0
    }

    /// The arguments, lowest first.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "there are six")]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u8> {
        (0..ARGS as u8).filter(move |index| self.contains(*index))
    }

    /// Whether one of these arguments lies in the window.
    #[must_use]
    pub fn any_in_window(self, args: &[u64; ARGS]) -> bool {
        self.iter().any(|index| WINDOW.contains(&args[usize::from(index)]))
    }
}

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Errno(pub u16);

impl Errno {
    /// Not enough memory, or more than may be locked.
    pub const ENOMEM: Self = Self(12);
    /// No such command for this file.
    pub const ENOTTY: Self = Self(25);
    /// The kernel does not have this call.
    pub const ENOSYS: Self = Self(38);
    /// The kernel does not have this socket option.
    pub const ENOPROTOOPT: Self = Self(92);
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    /// Its number.
    pub number: u32,
    /// Its name in the kernel's list.
    pub name: &'static str,
    /// What it does with memory.
    pub rule: Rule,
    /// What EFAULT leaves behind.
    pub on_fault: OnFault,
    /// Where it may be issued for a thread that was trapped.
    pub issuer: Issuer,
}

impl Syscall {
    /// Whether nothing has happened when it answers EFAULT, so that its buffers may be touched and the call repeated.
    #[must_use]
    pub const fn retries_on_fault(&self) -> bool {
        matches!(self.on_fault, OnFault::Repeat)
    }
}

/// What a call that answers EFAULT has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFault {
    /// Nothing that a repetition would not do as well.
    Repeat,
    /// Perhaps its work, of which the answer is lost: a datagram taken, a child reaped.
    Lost,
}

/// Who can issue a call for a thread that was trapped in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issuer {
    /// The signal handler.
    Handler,
    /// Only the interrupted context itself, after the handler has returned: a handler's own signal mask and signal
    /// stack are undone by its return, and a new thread would start inside it.
    Caller,
}
