//! The seccomp filter that finds system calls on far memory.
//!
//! [`filter`] makes a program for the kernel's classic BPF machine out of the table. It looks at the number, at the
//! arguments that are addresses for that number, and at nothing else, and answers
//!
//! - TRAP where one of them lies in the window (only the high half need be looked at),
//! - an error where the rule says so,
//! - ALLOW for everything else, and for whatever the stub issues.
//!
//! The filter outlives `execve`, so it also judges programs that have no handler for the trap. Nothing there is at a
//! window address, as the kernel never chooses one, so they are never trapped; the errors are such that a program
//! without far memory lives with them. Other architectures and x32 have addresses of 32 bits, and are allowed
//! everything.
//!
//! Shape: a search tree over ranges of numbers that are treated alike, with frequent calls near the root, down to tails
//! that look at one set of arguments each and are shared by all numbers that need it. The stub is looked for only on
//! the way to a trap or an error, so that a call on local memory never pays for it.
//!
//! Neighbours: `program` places instructions and jumps; the table says what to look at.

mod program;

use std::collections::BTreeMap;
use std::ptr;

use crate::rule::{ArgSet, Command, Errno, Rule};
use crate::{WINDOW, X32, rule, syscalls};

pub use program::Instruction;
use program::{Label, Program};

/// Offsets in `seccomp_data`, little-endian.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const INSTRUCTION_POINTER: u32 = 8;
const ARGUMENTS: u32 = 16;

/// `AUDIT_ARCH_X86_64`.
const ARCH_X86_64: u32 = 0xc000_003e;

/// Answers: `SECCOMP_RET_*`. What is sent back is told apart from what a program's own filter sends back by the low
/// half.
pub const RET_TRAP: u32 = 0x0003_0000 | 0x594f;
/// The low half of an answer, for who made the filter.
pub const RET_DATA: u32 = 0xffff;
/// With the error number in the low half.
pub const RET_ERRNO: u32 = 0x0005_0000;
/// The call goes on.
pub const RET_ALLOW: u32 = 0x7fff_0000;
/// The kernel takes programs of at most so many instructions (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Numbers that programs call all the time, and how many ordinary ranges each weighs when the tree is balanced: read,
/// write; poll, munmap, pread64, pwrite64, readv, writev, madvise, sendto, recvfrom, sendmsg, recvmsg; futex, of which
/// the operation is looked at too; epoll_wait, epoll_pwait.
const FREQUENT: [(u32, u32); 16] = [
    (0, 64),
    (1, 64),
    (7, 32),
    (11, 32),
    (17, 32),
    (18, 32),
    (19, 32),
    (20, 32),
    (28, 32),
    (44, 64),
    (45, 64),
    (46, 64),
    (47, 64),
    (202, 512),
    (232, 64),
    (281, 64),
];

const WINDOW_HIGH: (u32, u32) = ((WINDOW.start >> 32) as u32, (WINDOW.end >> 32) as u32);
const _: () = assert!(WINDOW.start == (WINDOW_HIGH.0 as u64) << 32 && WINDOW.end == (WINDOW_HIGH.1 as u64) << 32);

/// Where calls are issued that the filter must not judge: the addresses that directly follow the `syscall` instructions
/// there, which is what the kernel shows a filter, are in `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

/// The program.
///
/// # Panics
/// The stub is empty, or it crosses a multiple of 4 GiB.
#[must_use]
pub fn filter(stub: Stub) -> Vec<Instruction> {
    assert!(stub.start < stub.end, "the stub is empty");
    assert_eq!(stub.start >> 32, (stub.end - 1) >> 32, "the stub crosses a multiple of 4 GiB");
    let mut builder = Builder::new(stub);
    let ranges = ranges();
    let search = builder.search(&ranges);
    let number = builder.program.load(NUMBER, search);
    let allow = builder.allow;
    let arch = builder.program.jump_if_equal(ARCH_X86_64, number, allow);
    builder.program.load(ARCH, arch);
    let instructions = builder.program.finish();
    assert!(instructions.len() <= INSTRUCTIONS_MAX, "the kernel does not take {} instructions", instructions.len());
    instructions
}

/// What the filter does with a number.
#[derive(Clone, Copy)]
enum Action {
    /// Trap where one of these arguments lies in the window.
    Watch(ArgSet),
    Refuse(Errno),
    Choose(&'static Command),
}

impl Action {
    fn of(rule: Rule) -> Self {
        match rule {
            Rule::Refuse(errno) => Self::Refuse(errno),
            Rule::Command(command) => Self::Choose(command).simplified(),
            rule => Self::Watch(rule.addresses()),
        }
    }

    /// A choice between the same actions is none.
    fn simplified(self) -> Self {
        let Self::Choose(command) = self else { return self };
        let other = Self::of(command.other);
        if command.cases.iter().all(|(_, rule)| Self::of(*rule).is(other)) { other } else { self }
    }

    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Watch(mine), Self::Watch(its)) => mine == its,
            (Self::Refuse(mine), Self::Refuse(its)) => mine == its,
            (Self::Choose(mine), Self::Choose(its)) => ptr::eq(mine, its),
            _ => false,
        }
    }
}

/// Numbers from `first` to the next range's, which are treated alike.
struct Range {
    first: u32,
    action: Action,
    weight: u32,
}

/// All numbers, in ranges.
fn ranges() -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut firsts: Vec<u32> = syscalls().flat_map(|row| [row.number, row.number + 1]).chain([0, X32]).collect();
    firsts.sort_unstable();
    firsts.dedup();
    for first in firsts {
        let weight = FREQUENT.iter().find(|(number, _)| *number == first).map_or(1, |(_, weight)| *weight);
        let action = Action::of(rule(first));
        match ranges.last_mut() {
            Some(last) if last.action.is(action) => last.weight = last.weight.max(weight),
            _ => ranges.push(Range { first, action, weight }),
        }
    }
    ranges
}

/// What has been placed so far. Everything is placed after what it jumps to.
struct Builder {
    stub: Stub,
    program: Program,
    allow: Label,
    trap: Label,
    watches: BTreeMap<ArgSet, Label>,
    refusals: BTreeMap<Errno, Label>,
}

impl Builder {
    fn new(stub: Stub) -> Self {
        let mut program = Program::default();
        let allow = program.answer(RET_ALLOW);
        let watches = BTreeMap::from([(ArgSet::EMPTY, allow)]);
        let mut builder = Self { stub, program, allow, trap: allow, watches, refusals: BTreeMap::new() };
        let trap = builder.program.answer(RET_TRAP);
        builder.trap = builder.unless_from_stub(trap);
        builder
    }

    /// Goes to `label`, but lets the stub's calls go on.
    fn unless_from_stub(&mut self, label: Label) -> Label {
        let Stub { start, end } = self.stub;
        let last = ((end - 1) & 0xffff_ffff) as u32;
        let allow = self.allow;
        let below_end = self.program.jump_if_greater(last, label, allow);
        let inside = self.program.jump_if_at_least((start & 0xffff_ffff) as u32, below_end, label);
        let low = self.program.load(INSTRUCTION_POINTER, inside);
        let high = self.program.jump_if_equal((start >> 32) as u32, low, label);
        self.program.load(INSTRUCTION_POINTER + 4, high)
    }

    /// A tree that finds the range of the loaded number.
    fn search(&mut self, ranges: &[Range]) -> Label {
        let [range] = ranges else {
            let middle = balance(ranges);
            let (lower, upper) = ranges.split_at(middle);
            let above = self.search(upper);
            let below = self.search(lower);
            return self.program.jump_if_at_least(upper[0].first, above, below);
        };
        self.act(range.action)
    }

    fn act(&mut self, action: Action) -> Label {
        match action {
            Action::Watch(set) => self.watch(set),
            Action::Refuse(errno) => self.refuse(errno),
            Action::Choose(command) => self.choose(command),
        }
    }

    /// The tail that looks at these arguments.
    fn watch(&mut self, set: ArgSet) -> Label {
        if let Some(label) = self.watches.get(&set) {
            return *label;
        }
        // A program of its own for each set: its end is near, and what follows in it is only what it needs.
        let mut next = self.program.answer(RET_ALLOW);
        for index in set.iter().rev() {
            let trap = self.trap;
            let inside = self.program.jump_if_at_least(WINDOW_HIGH.0, trap, next);
            let high = self.program.jump_if_at_least(WINDOW_HIGH.1, next, inside);
            next = self.program.load(argument(index) + 4, high);
        }
        self.watches.insert(set, next);
        next
    }

    fn refuse(&mut self, errno: Errno) -> Label {
        if let Some(label) = self.refusals.get(&errno) {
            return *label;
        }
        let answer = self.program.answer(RET_ERRNO | u32::from(errno.0));
        let label = self.unless_from_stub(answer);
        self.refusals.insert(errno, label);
        label
    }

    /// Compares the selector with the cases that are not treated as the rest is.
    fn choose(&mut self, command: &'static Command) -> Label {
        let other = Action::of(command.other);
        let mut next = self.act(other);
        for (value, rule) in command.cases.iter().rev() {
            let action = Action::of(*rule);
            if !action.is(other) {
                let chosen = self.act(action);
                next = self.program.jump_if_equal(*value, chosen, next);
            }
        }
        if command.mask != u32::MAX {
            next = self.program.and(command.mask, next);
        }
        if command.shift != 0 {
            next = self.program.shift_right(command.shift, next);
        }
        self.program.load(argument(command.selector), next)
    }
}

/// Where to cut ranges in two, so that both sides weigh about the same. Not at an end.
fn balance(ranges: &[Range]) -> usize {
    let total: u32 = ranges.iter().map(|range| range.weight).sum();
    let mut lower = 0;
    let cuts = ranges.iter().enumerate().map(|(at, range)| {
        lower += range.weight;
        (lower.abs_diff(total - lower), at + 1)
    });
    let (_, cut) = cuts.take(ranges.len() - 1).min().expect("there are two ranges or more");
    cut
}

/// The offset of an argument's low half; the high half is 4 bytes on.
fn argument(index: u8) -> u32 {
    ARGUMENTS + 8 * u32::from(index)
}

#[cfg(test)]
mod tests;
