//! The table: every system call of x86-64 Linux up to version 6.18, by number.
//!
//! Numbers and names are those of the kernel's `arch/x86/entry/syscalls/syscall_64.tbl`; sizes are those of its
//! interface for programs, which no longer change. The rows stand in files by family; they are put in order when this
//! is compiled, and a number that two families claim does not compile.

mod bytes;
mod files;
mod ioctl;
mod ipc;
mod memory;
mod processes;
mod row;
mod signals;
mod sockets;
mod system;
mod waiting;

use crate::rule::{Rule, Syscall};

/// The highest number that the table knows.
pub const NUMBER_MAX: u32 = 469;
/// Numbers from here on belong to the x32 interface, whose programs have addresses of 32 bits, or to no interface at
/// all.
pub const X32: u32 = 0x4000_0000;

const FAMILIES: [&[Syscall]; 9] = [
    bytes::ROWS,
    files::ROWS,
    sockets::ROWS,
    memory::ROWS,
    processes::ROWS,
    signals::ROWS,
    waiting::ROWS,
    ipc::ROWS,
    system::ROWS,
];
static TABLE: [Option<Syscall>; NUMBER_MAX as usize + 1] = assemble();

/// The row of a number; `None` for a number that the table does not know.
#[must_use]
pub fn syscall(number: u32) -> Option<&'static Syscall> {
    TABLE.get(number as usize)?.as_ref()
}

/// The rule of a number.
#[must_use]
pub fn rule(number: u32) -> Rule {
    if number >= X32 {
        return Rule::Pass;
    }
    syscall(number).map_or(Rule::Unknown, |row| row.rule)
}

/// All rows, by number.
pub fn syscalls() -> impl Iterator<Item = &'static Syscall> {
    TABLE.iter().flatten()
}

const fn assemble() -> [Option<Syscall>; NUMBER_MAX as usize + 1] {
    let mut table = [None; NUMBER_MAX as usize + 1];
    let mut family = 0;
    while family < FAMILIES.len() {
        let rows = FAMILIES[family];
        let mut at = 0;
        while at < rows.len() {
            let place = &mut table[rows[at].number as usize];
            assert!(place.is_none(), "two rows have the same number");
            *place = Some(rows[at]);
            at += 1;
        }
        family += 1;
    }
    table
}

#[cfg(test)]
mod tests;
