//! Short names for rows and arguments, so that the tables can be read as tables.
//!
//! A call that may be repeated after EFAULT is a row of [`again`], one that may not of [`once`]; when in doubt,
//! [`once`].

use crate::rule::{Access, Arg, ArgSet, Command, Errno, Extent, Issuer, OnFault, Rule, Syscall};

/// A call that follows none of its arguments.
pub(super) const fn pass(number: u32, name: &'static str) -> Syscall {
    row(number, name, Rule::Pass, OnFault::Repeat)
}

/// A call that has done nothing when it answers EFAULT.
pub(super) const fn again(number: u32, name: &'static str, args: &'static [Arg]) -> Syscall {
    row(number, name, Rule::Direct(args), OnFault::Repeat)
}

/// A call that may have done its work when it answers EFAULT.
pub(super) const fn once(number: u32, name: &'static str, args: &'static [Arg]) -> Syscall {
    row(number, name, Rule::Direct(args), OnFault::Lost)
}

/// A multiplexer that has done nothing when it answers EFAULT.
pub(super) const fn choose_again(number: u32, name: &'static str, command: &'static Command) -> Syscall {
    row(number, name, Rule::Command(command), OnFault::Repeat)
}

/// A multiplexer that may have done its work when it answers EFAULT.
pub(super) const fn choose_once(number: u32, name: &'static str, command: &'static Command) -> Syscall {
    row(number, name, Rule::Command(command), OnFault::Lost)
}

/// A call that changes the address space from these arguments on.
pub(super) const fn memory(number: u32, name: &'static str, starts: &[u8]) -> Syscall {
    let (mut set, mut at) = (ArgSet::EMPTY, 0);
    while at < starts.len() {
        set = set.with(starts[at]);
        at += 1;
    }
    row(number, name, Rule::Memory(set), OnFault::Lost)
}

/// A call that is answered with an error.
pub(super) const fn refuse(number: u32, name: &'static str, errno: Errno) -> Syscall {
    row(number, name, Rule::Refuse(errno), OnFault::Repeat)
}

/// A row that only the interrupted context may issue.
pub(super) const fn by_caller(call: Syscall) -> Syscall {
    Syscall { issuer: Issuer::Caller, ..call }
}

const fn row(number: u32, name: &'static str, rule: Rule, on_fault: OnFault) -> Syscall {
    Syscall { number, name, rule, on_fault, issuer: Issuer::Handler }
}

/// A choice by one whole argument.
pub(super) const fn by(selector: u8, cases: &'static [(u32, Rule)], other: Rule) -> Command {
    Command { selector, shift: 0, mask: u32::MAX, cases, other }
}

/// The argument is read.
pub(super) const fn reads(index: u8, extent: Extent) -> Arg {
    Arg { index, access: Access::In, extent }
}

/// The argument is written, in whole, by a call that succeeds.
pub(super) const fn writes(index: u8, extent: Extent) -> Arg {
    Arg { index, access: Access::Out, extent }
}

/// The argument is read and written, or written in part.
pub(super) const fn updates(index: u8, extent: Extent) -> Arg {
    Arg { index, access: Access::InOut, extent }
}

/// The argument is written as far as the result says.
pub(super) const fn fills(index: u8, extent: Extent) -> Arg {
    Arg { index, access: Access::Result, extent }
}

/// The argument is remembered.
pub(super) const fn keeps(index: u8, extent: Extent) -> Arg {
    Arg { index, access: Access::Kept, extent }
}

/// A path or a name.
pub(super) const fn text(index: u8) -> Arg {
    reads(index, Extent::Text)
}

/// An argument that is an address for some calls.
pub(super) const fn perhaps(index: u8) -> Arg {
    updates(index, Extent::Unknown)
}
