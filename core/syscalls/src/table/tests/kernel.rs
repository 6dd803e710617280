//! The table against the running kernel, which describes the types of its own functions (BTF).
//!
//! Of each system call whose body the compiler kept as a function of its own, `__do_sys_NAME`, the parameters that are
//! pointers must be addresses in the table. Kernels differ in which these are; one without the description is a SKIP.

use std::collections::BTreeMap;

use super::*;

const DESCRIPTION: &str = "/sys/kernel/btf/vmlinux";

/// Kinds of types, as the kernel numbers them.
const POINTER: u32 = 2;
const CONSTANT: u32 = 10;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;

/// One type: its kind, the offset of its name, the type it refers to, and the types of a prototype's parameters.
struct Type {
    kind: u32,
    name: usize,
    refers_to: u32,
    parameters: Vec<u32>,
}

#[test]
#[cfg_attr(miri, ignore = "the kernel's description of its types has megabytes")]
fn no_pointer_of_the_running_kernel_is_missed() {
    let Ok(description) = std::fs::read(DESCRIPTION) else {
        println!("SKIP: this kernel does not describe its types in {DESCRIPTION}");
        return;
    };
    let kernel = pointers(&description);
    let rows = syscalls().filter(|row| !matches!(row.rule, Rule::Refuse(_)));
    let both: Vec<_> = rows.filter_map(|row| Some((row, kernel.get(row.name)?))).collect();
    println!("{} of {} calls are described", both.len(), syscalls().count());
    for (row, pointers) in both {
        let missed: Vec<_> = pointers.iter().filter(|index| !row.rule.addresses().contains(**index)).collect();
        assert!(missed.is_empty(), "{}: arguments {missed:?} are pointers", row.name);
    }
}

/// The parameters that are pointers, by the name of the call.
fn pointers(description: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let word = |at: usize| u32::from_le_bytes(description[at..at + 4].try_into().unwrap());
    let header = word(4) as usize;
    let (types_at, types_end) = (header + word(8) as usize, header + (word(8) + word(12)) as usize);
    let names = &description[header + word(16) as usize..];
    let name = |at: usize| names[at..].split(|byte| *byte == 0).next().map(String::from_utf8_lossy).unwrap();

    let types = types(&|at| word(types_at + at), types_end - types_at);
    let refers_to = |index: u32| types[index as usize - 1].refers_to;
    let kind = |index: u32| index.checked_sub(1).map_or(0, |place| types[place as usize].kind);
    // A call without arguments is shown the saved registers.
    let is_pointer = |index: u32| {
        let mut to = index;
        while matches!(kind(to), POINTER | CONSTANT) {
            to = refers_to(to);
        }
        kind(index) == POINTER && (to == 0 || name(types[to as usize - 1].name) != "pt_regs")
    };
    let bodies = types.iter().filter(|kind| kind.kind == FUNCTION).filter_map(|function| {
        let call = name(function.name).strip_prefix("__do_sys_")?.to_owned();
        let parameters = &types[function.refers_to as usize - 1].parameters;
        let pointers = (0u8..).zip(parameters).filter(|(_, kind)| is_pointer(**kind)).map(|(index, _)| index);
        Some((call, pointers.collect()))
    });
    bodies.collect()
}

/// All types, numbered from 1.
fn types(word: &impl Fn(usize) -> u32, length: usize) -> Vec<Type> {
    let (mut types, mut at) = (Vec::new(), 0);
    while at < length {
        let (info, refers_to) = (word(at + 4), word(at + 8));
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let rest = at + 12;
        let parameters =
            if kind == PROTOTYPE { (0..count).map(|index| word(rest + 8 * index + 4)).collect() } else { vec![] };
        types.push(Type { kind, name: word(at) as usize, refers_to, parameters });
        // What follows each kind: integers, variables and tags have one word, arrays three, the rest so much for each
        // member.
        at = rest
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * count,
                6 | PROTOTYPE => 8 * count,
                _ => 0,
            };
    }
    types
}
