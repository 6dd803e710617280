//! The table against what can be known without it: the C library's numbers and structures, and rules about rules.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod numbers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sizes;

mod prototypes;

use std::collections::BTreeSet;

use super::*;
use crate::rule::{ARGS, ArgSet, Command, Extent, Issuer};

/// All rules, those that commands choose between included.
fn rules() -> Vec<(&'static Syscall, Rule)> {
    fn add(row: &'static Syscall, rule: Rule, rules: &mut Vec<(&'static Syscall, Rule)>) {
        if let Rule::Command(command) = rule {
            command.cases.iter().for_each(|(_, rule)| add(row, *rule, rules));
            add(row, command.other, rules);
        }
        rules.push((row, rule));
    }
    let mut rules = Vec::new();
    syscalls().for_each(|row| add(row, row.rule, &mut rules));
    rules
}

/// The argument that says how long another is.
fn count_of(extent: Extent) -> Option<u8> {
    match extent {
        Extent::Count(count)
        | Extent::CountInt(count)
        | Extent::Headed { count, .. }
        | Extent::Elements { count, .. }
        | Extent::Bits { count, .. }
        | Extent::CountAt(count)
        | Extent::Iovec(count)
        | Extent::Messages(count)
        | Extent::Waiters(count)
        | Extent::Encoded(count) => Some(count),
        _ => None,
    }
}

#[test]
fn every_number_of_the_kernel_has_a_row() {
    for number in 0..=NUMBER_MAX + 1 {
        let known = matches!(number, 0..=336 | 424..=NUMBER_MAX);
        assert_eq!(syscall(number).map(|row| row.number), known.then_some(number));
        assert_eq!(matches!(rule(number), Rule::Unknown), !known, "number {number}");
    }
    assert_eq!(syscalls().map(|row| row.name).collect::<BTreeSet<_>>().len(), syscalls().count());
    assert!(matches!(rule(X32), Rule::Pass) && matches!(rule(u32::MAX), Rule::Pass));
}

#[test]
fn rules_name_arguments_once_and_lengths_are_other_arguments() {
    for (row, rule) in rules() {
        let Rule::Direct(args) = rule else { continue };
        let mut seen = ArgSet::EMPTY;
        for arg in args {
            assert!(!seen.contains(arg.index), "{} names an argument twice", row.name);
            seen = seen.with(arg.index);
        }
        for (arg, count) in args.iter().filter_map(|arg| Some((arg, count_of(arg.extent)?))) {
            assert!(usize::from(count) < ARGS && count != arg.index, "{}", row.name);
            // A length behind an address is a buffer itself; all others are numbers.
            assert_eq!(seen.contains(count), matches!(arg.extent, Extent::CountAt(_)), "{}", row.name);
        }
    }
}

#[test]
fn commands_name_values_once_and_choose_by_numbers() {
    for (row, rule) in rules() {
        let Rule::Command(Command { selector, shift, mask, cases, other }) = rule else { continue };
        let values: BTreeSet<u32> = cases.iter().map(|(value, _)| *value).collect();
        assert_eq!(values.len(), cases.len(), "{} names a value twice", row.name);
        assert!(values.iter().all(|value| value & mask == *value && value << shift >> shift == *value), "{}", row.name);
        let chosen = cases.iter().map(|(_, rule)| rule.addresses()).chain([other.addresses()]);
        assert_eq!(rule.addresses(), chosen.reduce(ArgSet::union).unwrap(), "{}", row.name);
        assert!(!rule.addresses().contains(*selector), "{} chooses by an address", row.name);
    }
}

#[test]
fn what_a_handler_cannot_do_is_left_to_the_caller() {
    let names: Vec<_> = syscalls().filter(|row| row.issuer == Issuer::Caller).map(|row| row.name).collect();
    assert_eq!(names, ["rt_sigprocmask", "clone", "sigaltstack", "clone3"]);
}

#[test]
fn what_takes_something_is_not_repeated() {
    let lost =
        ["read", "readv", "recvfrom", "recvmsg", "accept", "accept4", "wait4", "epoll_wait", "sendfile", "select"];
    let repeated = ["write", "futex", "open", "openat", "stat", "newfstatat", "execve", "poll", "sendto", "connect"];
    for row in syscalls() {
        assert!(!(lost.contains(&row.name) && row.retries_on_fault()), "{}", row.name);
        assert!(!repeated.contains(&row.name) || row.retries_on_fault(), "{}", row.name);
    }
}

#[test]
fn refusals_are_the_ones_that_were_argued_for() {
    let refused: Vec<_> =
        rules().into_iter().filter(|(_, rule)| matches!(rule, Rule::Refuse(_))).map(|(row, _)| row.name).collect();
    let expected = [
        "ioctl",
        "ioctl",
        "setsockopt",
        "setsockopt",
        "mlockall",
        "io_setup",
        "io_submit",
        "vmsplice",
        "process_vm_writev",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ];
    assert_eq!(refused, expected);
}
