//! Plans of well-known calls, and of all calls with any values.

use proptest::prelude::*;

use super::*;

fn buffers(number: u32, args: [u64; ARGS]) -> Vec<Buffer> {
    match plan(number, &args) {
        Plan::Issue(buffers) => buffers.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Argument, access and length of each buffer.
fn outline(number: u32, args: [u64; ARGS]) -> Vec<(u8, Access, Length)> {
    buffers(number, args).iter().map(|buffer| (buffer.index, buffer.access, buffer.length)).collect()
}

const FAR: u64 = WINDOW.start + 0x1000;
const NEAR: u64 = 0x7fff_0000_1000;

#[test]
fn lengths_come_from_other_arguments() {
    assert_eq!(outline(1, [1, FAR, 10, 0, 0, 0]), [(1, Access::In, Length::Bytes(10))]);
    assert_eq!(outline(232, [5, FAR, 64, 0, 0, 0]), [(1, Access::Result, Length::Bytes(64 * 12))]);
    assert_eq!(outline(69, [5, FAR, 100, 0, 0, 0]), [(1, Access::In, Length::Bytes(108))]);
    assert_eq!(outline(19, [5, FAR, 3, 0, 0, 0]), [(1, Access::Result, Length::Iovec(3))]);
    // select(65, in, null, ex, null): 65 bits are two words.
    let sets = [(1, Access::InOut, Length::Bytes(16)), (3, Access::InOut, Length::Bytes(16))];
    assert_eq!(outline(23, [65, FAR, 0, FAR, 0, 0]), sets);
    // The kernel reads 64 bits of a set of nodes of 65.
    assert_eq!(outline(238, [0, FAR, 65, 0, 0, 0]), [(1, Access::In, Length::Bytes(8))]);
}

#[test]
fn lengths_in_memory_are_told() {
    let accept = buffers(43, [5, FAR, NEAR, 0, 0, 0]);
    assert_eq!(accept[0].length, Length::InMemory { at: NEAR, plus: 0, least: 0 });
    assert_eq!(accept[0].with_length_word(16).length, Length::Bytes(16));
    assert_eq!(accept[0].with_length_word(u32::MAX).length, Length::Bytes(0), "the kernel refuses negative lengths");
    assert_eq!(accept[1].length, Length::Bytes(4));
    assert_eq!(accept[1].with_length_word(16).length, Length::Bytes(4));
    // perf_event_open: the size stands at byte 4, and 0 means the first version's.
    let event = buffers(298, [FAR, 0, 0, 0, 0, 0])[0];
    assert_eq!(event.length, Length::InMemory { at: FAR + 4, plus: 0, least: 64 });
    assert_eq!(
        (event.with_length_word(0).length, event.with_length_word(136).length),
        (Length::Bytes(64), Length::Bytes(136))
    );
    // A file handle's size does not count its head.
    let handle = buffers(304, [3, FAR, 0, 0, 0, 0])[0];
    assert_eq!(handle.with_length_word(128).length, Length::Bytes(136));
}

#[test]
fn commands_choose() {
    assert_eq!(outline(16, [0, 0x5401, FAR, 0, 0, 0]), [(2, Access::Out, Length::Bytes(36))]);
    assert_eq!(outline(16, [0, 0x5451, FAR, 0, 0, 0]), []);
    // FS_IOC_FIEMAP: _IOWR('f', 11, 32 bytes), and an array after them.
    assert_eq!(outline(16, [0, 0xc020_660b, FAR, 0, 0, 0]), [(2, Access::InOut, Length::AtLeast(32))]);
    assert_eq!(outline(16, [0, 0x1234, FAR, 0, 0, 0]), [(2, Access::InOut, Length::Unknown)]);
    assert_eq!(outline(72, [0, 7, FAR, 0, 0, 0]), [(2, Access::In, Length::Bytes(32))]);
    assert_eq!(outline(72, [0, 3, FAR, 0, 0, 0]), []);
    assert_eq!(outline(202, [FAR, 0x81, 1, NEAR, NEAR, 0]), [(0, Access::InOut, Length::Futex)]);
    let wait = [(0, Access::InOut, Length::Futex), (3, Access::In, Length::Bytes(16))];
    assert_eq!(outline(202, [FAR, 0x189, 1, NEAR, NEAR, 0]), wait);
    assert!(matches!(plan(54, &[3, 1, 60, FAR, 4, 0]), Plan::Refuse(Errno::ENOPROTOOPT)));
    assert!(matches!(plan(54, &[3, 2, 60, FAR, 4, 0]), Plan::Issue(_)));
    assert!(matches!(plan(28, &[FAR, 4096, 4, 0, 0, 0]), Plan::Memory));
    assert_eq!(outline(9999, [0, FAR, 0, 0, 0, NEAR]).len(), 2, "arguments of an unknown call may be addresses");
}

#[test]
fn as_much_is_copied_back_as_was_written() {
    let back = |number, args, result| buffers(number, args)[0].written(result);
    assert_eq!(back(0, [3, FAR, 100, 0, 0, 0], 7), 7);
    assert_eq!(back(0, [3, FAR, 100, 0, 0, 0], -4), 0);
    // recvfrom with MSG_TRUNC tells the length of the datagram, which may not have fitted.
    assert_eq!(back(45, [3, FAR, 100, 0x20, 0, 0], 1500), 100);
    assert_eq!(back(232, [5, FAR, 64, 0, 0, 0], 3), 36);
    assert_eq!(back(70, [5, FAR, 64, 0, 0, 0], 3), 8 + 3);
    assert_eq!(back(70, [5, FAR, 64, 0, 0, 0], -42), 0);
    assert_eq!(back(1, [3, FAR, 100, 0, 0, 0], 100), 0);
    assert_eq!((back(5, [3, FAR, 0, 0, 0, 0], 0), back(5, [3, FAR, 0, 0, 0, 0], -9)), (144, 0));
    // The rest of an interrupted sleep comes with an error.
    assert_eq!(buffers(35, [NEAR, FAR, 0, 0, 0, 0])[1].written(-4), 16);
    assert_eq!(back(218, [FAR, 0, 0, 0, 0, 0], 1), 0);
}

#[test]
fn absurd_lengths_are_cut_off() {
    assert_eq!(outline(1, [1, FAR, u64::MAX, 0, 0, 0]), [(1, Access::In, Length::Bytes(LENGTH_MAX))]);
    assert_eq!(outline(69, [1, FAR, u64::MAX, 0, 0, 0]), [(1, Access::In, Length::Bytes(LENGTH_MAX))]);
    assert_eq!(outline(279, [1, 0x7fff_ffff, FAR, 0, 0, 0]), [(2, Access::In, Length::Bytes(LENGTH_MAX))]);
    // Negative, as an int.
    assert_eq!(outline(42, [1, FAR, 0xffff_ffff, 0, 0, 0]), []);
    // Only 32 bits of an int count.
    assert_eq!(outline(42, [1, FAR, 0xdead_0000_0010, 0, 0, 0]), [(1, Access::In, Length::Bytes(16))]);
}

proptest! {
    #[test]
    fn any_values_have_a_plan(
        number in prop_oneof![0..=crate::NUMBER_MAX, any::<u32>()],
        args in prop::array::uniform6(prop_oneof![0..100u64, any::<u64>(), WINDOW, 0xffff_ff00..=u64::from(u32::MAX)]),
        word: u32,
        result: i64,
    ) {
        let addresses = rule(number).select(&args).addresses();
        match plan(number, &args) {
            Plan::Issue(buffers) => {
                let mut seen = crate::ArgSet::EMPTY;
                for buffer in buffers.iter() {
                    prop_assert!(addresses.contains(buffer.index) && !seen.contains(buffer.index));
                    seen = seen.with(buffer.index);
                    prop_assert!(buffer.address != 0 && buffer.address == args[usize::from(buffer.index)]);
                    prop_assert_eq!(buffer.is_far(), WINDOW.contains(&buffer.address));
                    let told = buffer.with_length_word(word);
                    if let Length::Bytes(bytes) = told.length {
                        prop_assert!(bytes <= LENGTH_MAX.max(u64::from(word) + 8));
                        prop_assert!(told.written(result) <= bytes);
                    }
                }
                // Nothing far is forgotten, unless no byte of it is used.
                for index in addresses.iter().filter(|index| !seen.contains(*index)) {
                    let near = !WINDOW.contains(&args[usize::from(index)]);
                    prop_assert!(near || has_length_0(number, &args, index));
                }
            }
            Plan::Memory => prop_assert!(addresses != crate::ArgSet::EMPTY),
            Plan::Refuse(_) => prop_assert_eq!(addresses, crate::ArgSet::EMPTY),
        }
    }
}

/// Whether the length of this argument is another one's value, and that is 0 or not valid.
fn has_length_0(number: u32, args: &[u64; ARGS], index: u8) -> bool {
    let Rule::Direct(pointers) = rule(number).select(args) else { return false };
    let arg = pointers.iter().find(|arg| arg.index == index).expect("it is one of the addresses");
    match arg.extent {
        Extent::Count(count) => args[usize::from(count)] == 0,
        Extent::CountInt(count) | Extent::Elements { count, .. } => args[usize::from(count)] as i32 <= 0,
        Extent::Bits { count, less } => args[usize::from(count)] as i32 <= i32::from(less),
        _ => false,
    }
}
