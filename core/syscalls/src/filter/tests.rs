//! The program, run by an interpreter, against what the table says.

use proptest::prelude::*;

use super::*;
use crate::rule::ARGS;
use crate::{NUMBER_MAX, syscall};

const STUB: Stub = Stub { start: 0x7fff_1234_5000, end: 0x7fff_1234_5080 };
/// Instructions that a frequent call on local memory may run.
const FREQUENT_STEPS_MAX: usize = 19;
/// Instructions that any call may run.
const STEPS_MAX: usize = 80;

/// What the kernel shows a filter.
#[derive(Clone, Debug)]
struct Data {
    number: u32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; ARGS],
}

impl Data {
    fn new(number: u32, args: [u64; ARGS]) -> Self {
        Self { number, arch: ARCH_X86_64, instruction_pointer: 0x7fff_1234_4fff, args }
    }

    fn by_stub(self) -> Self {
        Self { instruction_pointer: STUB.start, ..self }
    }

    fn load(&self, offset: u32) -> u32 {
        let half = |value: u64, high: bool| if high { (value >> 32) as u32 } else { value as u32 };
        match offset {
            NUMBER => self.number,
            ARCH => self.arch,
            8 | 12 => half(self.instruction_pointer, offset == 12),
            16..64 if offset.is_multiple_of(4) => half(self.args[(offset as usize - 16) / 8], offset % 8 == 4),
            _ => panic!("no data at {offset}"),
        }
    }
}

/// The answer, and how many instructions it took.
fn run(program: &[Instruction], data: &Data) -> (u32, usize) {
    let (mut at, mut accumulator, mut steps) = (0, 0, 0);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        steps += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match code {
            0x20 => accumulator = data.load(k),
            0x54 => accumulator &= k,
            0x74 => accumulator >>= k,
            0x05 => at += k as usize,
            0x15 => branch(accumulator == k),
            0x25 => branch(accumulator > k),
            0x35 => branch(accumulator >= k),
            0x06 => return (k, steps),
            _ => panic!("instruction {code:#x}"),
        }
    }
}

/// What the table says about a call that the stub does not issue.
fn expected(number: u32, args: &[u64; ARGS]) -> u32 {
    match rule(number).select(args) {
        Rule::Refuse(errno) => RET_ERRNO | u32::from(errno.0),
        chosen if chosen.addresses().any_in_window(args) => RET_TRAP,
        _ => RET_ALLOW,
    }
}

/// Values of the arguments that lead to each rule of a number, and to none.
fn selections(chosen: Rule, args: [u64; ARGS]) -> Vec<[u64; ARGS]> {
    let Rule::Command(command) = chosen else { return vec![args] };
    let select = |value: u32, rule: Rule| {
        let mut args = args;
        args[usize::from(command.selector)] = u64::from(value << command.shift);
        selections(rule, args)
    };
    let cases = command.cases.iter().flat_map(|(value, rule)| select(*value, *rule));
    cases.chain(select(0x7b & command.mask, command.other)).collect()
}

#[test]
fn every_number_command_and_argument_is_judged_as_the_table_says() {
    let program = filter(STUB);
    let values = [WINDOW.start - 1, WINDOW.start, WINDOW.end - 1, WINDOW.end, 0x7fff_0000_0000, u64::MAX];
    for number in (0..=NUMBER_MAX + 2).chain([X32 - 1, X32, X32 + 1, u32::MAX]) {
        for args in selections(rule(number), [0x1000; ARGS]) {
            for (index, value) in (0..ARGS).flat_map(|index| values.map(|value| (index, value))) {
                let mut args = args;
                args[index] = value;
                let data = Data::new(number, args);
                let (answer, steps) = run(&program, &data);
                assert_eq!(answer, expected(number, &args), "{data:?}");
                assert!(steps <= STEPS_MAX, "{steps} instructions for {data:?}");
                assert_eq!(run(&program, &data.by_stub()).0, RET_ALLOW);
            }
        }
    }
}

#[test]
fn well_known_calls_are_judged_as_their_manual_says() {
    const FAR: u64 = WINDOW.start + 0x1234;
    let program = filter(STUB);
    let answer = |number: u32, args: [u64; ARGS]| run(&program, &Data::new(number, args)).0;
    // read(3, far, 10), and read(far, local, far): neither a descriptor nor a length is an address.
    assert_eq!(answer(0, [3, FAR, 10, 0, 0, 0]), RET_TRAP);
    assert_eq!(answer(0, [FAR, 0x1000, FAR, FAR, FAR, FAR]), RET_ALLOW);
    // futex: a wake has no timeout and no second word; a wait has a timeout.
    assert_eq!(answer(202, [0x1000, 0x81, 1, FAR, FAR, FAR]), RET_ALLOW);
    assert_eq!(answer(202, [0x1000, 0x80, 1, FAR, 0, 0]), RET_TRAP);
    assert_eq!(answer(202, [0x1000, 0x189, 1, FAR, 0, 0]), RET_TRAP);
    // Asynchronous calls are refused, wherever their buffers are.
    assert_eq!(answer(425, [8, 0x1000, 0, 0, 0, 0]), RET_ERRNO | 38);
    assert_eq!(answer(206, [8, 0x1000, 0, 0, 0, 0]), RET_ERRNO | 38);
    // setsockopt(3, SOL_SOCKET, SO_ZEROCOPY, ..) and SO_REUSEADDR.
    assert_eq!(answer(54, [3, 1, 60, 0x1000, 4, 0]), RET_ERRNO | 92);
    assert_eq!(answer(54, [3, 1, 2, 0x1000, 4, 0]), RET_ALLOW);
    assert_eq!(answer(54, [3, 1, 2, FAR, 4, 0]), RET_TRAP);
    // lseek to a far offset; munmap of far memory; a number of the future.
    assert_eq!(answer(8, [3, FAR, 0, 0, 0, 0]), RET_ALLOW);
    assert_eq!(answer(11, [FAR, 0x1000, 0, 0, 0, 0]), RET_TRAP);
    assert_eq!(answer(NUMBER_MAX + 1, [0, 0, 0, 0, 0, FAR]), RET_TRAP);
    assert_eq!(answer(NUMBER_MAX + 1, [0; ARGS]), RET_ALLOW);
}

#[test]
fn other_architectures_are_allowed_everything() {
    let program = filter(STUB);
    let data = Data { arch: 0x4000_0003, ..Data::new(1, [WINDOW.start; ARGS]) };
    assert_eq!(run(&program, &data).0, RET_ALLOW);
}

#[test]
fn the_stub_is_where_it_says() {
    for stub in [STUB, Stub { start: 0x1_ffff_fff0, end: 0x2_0000_0000 }, Stub { start: 0, end: 1 }] {
        let program = filter(stub);
        let answer = |instruction_pointer: u64, number: u32| {
            let data = Data { instruction_pointer, ..Data::new(number, [WINDOW.start; ARGS]) };
            run(&program, &data).0
        };
        for (number, otherwise) in [(1, RET_TRAP), (425, RET_ERRNO | 38)] {
            for inside in [stub.start, stub.end - 1] {
                assert_eq!(answer(inside, number), RET_ALLOW);
            }
            for outside in [stub.start.wrapping_sub(1), stub.end, stub.start ^ 1 << 32, stub.start ^ 1 << 45] {
                assert_eq!(answer(outside, number), otherwise, "{outside:#x} is not in {stub:x?}");
            }
        }
    }
}

#[test]
fn frequent_calls_on_local_memory_are_quick() {
    let program = filter(STUB);
    for (number, _) in FREQUENT {
        for (place, operation) in [(0x7fff_f7a0_1000, 0x80), (0x5555_5555_1000, 0x81), (0, 0x189)] {
            let mut data = Data::new(number, [place; ARGS]);
            if number == 202 {
                data.args = [0x7fff_f7a0_1000, operation, 1, place, place, 0];
            }
            let (answer, steps) = run(&program, &data);
            assert_eq!(answer, RET_ALLOW);
            let name = syscall(number).unwrap().name;
            assert!(steps <= FREQUENT_STEPS_MAX, "{name} takes {steps} instructions with {data:x?}");
        }
    }
}

#[test]
fn the_kernel_would_take_it() {
    let program = filter(STUB);
    assert!(program.len() <= INSTRUCTIONS_MAX);
    for (at, Instruction { code, jt, jf, k }) in program.iter().enumerate() {
        let targets = match code {
            0x06 => vec![],
            0x05 => vec![at + 1 + *k as usize],
            0x15 | 0x25 | 0x35 => vec![at + 1 + usize::from(*jt), at + 1 + usize::from(*jf)],
            0x20 => {
                assert!(k.is_multiple_of(4) && *k < 64, "instruction {at} loads from {k}");
                vec![at + 1]
            }
            0x54 => vec![at + 1],
            0x74 => {
                assert!(*k < 32);
                vec![at + 1]
            }
            _ => panic!("instruction {at} has code {code:#x}"),
        };
        // Jumps lead forward and stay inside, so every path ends, and it ends in an answer.
        assert!(targets.iter().all(|target| *target < program.len()), "instruction {at} leads to {targets:?}");
    }
    assert_eq!(size_of::<Instruction>(), 8);
}

#[test]
fn long_distances_are_bridged() {
    let mut program = Program::default();
    let far = program.answer(1);
    let near = program.answer(2);
    for _ in 0..300 {
        program.answer(3);
    }
    let branch = program.jump_if_equal(7, far, near);
    program.load(NUMBER, branch);
    let program = program.finish();
    assert_eq!(run(&program, &Data::new(7, [0; ARGS])).0, 1);
    assert_eq!(run(&program, &Data::new(8, [0; ARGS])).0, 2);
}

proptest! {
    #[test]
    fn any_call_is_judged_as_the_table_says(
        number in prop_oneof![0..=NUMBER_MAX, any::<u32>()],
        args in prop::array::uniform6(prop_oneof![
            0..100u64,
            any::<u64>(),
            WINDOW,
            (0x2ff0_0000_0000..0x4010_0000_0000u64),
        ]),
        offset in -64..256i64,
    ) {
        let program = filter(STUB);
        let instruction_pointer = STUB.start.wrapping_add_signed(offset);
        let data = Data { instruction_pointer, ..Data::new(number, args) };
        let inside = (STUB.start..STUB.end).contains(&instruction_pointer);
        let expected = if inside { RET_ALLOW } else { expected(number, &args) };
        prop_assert_eq!(run(&program, &data).0, expected);
    }
}
