//! The hostile caller: arguments that are almost right, for any offload.

use yonder_offload::{chase, frame, kv, mv};
use yonder_wire::PAYLOAD_BYTES_MAX;

use super::memory::{CALLER_ADDRESS, CALLER_BYTES};
use super::{HOSTILE, World, stores};
use crate::script::Step;

/// Does one thing, and says what and what came of it.
pub(super) fn act(world: &mut World, refuse_after: Option<u32>, step: &mut Step<'_>) -> [u64; 3] {
    let what = step.below(8);
    if what == 0 {
        write_memory(world, step);
        return [2, 0, 0];
    }
    let number = [chase::NUMBER, kv::NUMBER, mv::NUMBER, frame::SELECT_NUMBER, frame::AGGREGATE_NUMBER];
    let number = if what == 1 { step.pick(&number) } else { number[(what as usize - 2).min(4)] };
    let mut arguments = match number {
        _ if what == 1 => step.rest().to_vec(),
        chase::NUMBER => walk(step),
        kv::NUMBER => pairs(step),
        mv::NUMBER => objects(step),
        frame::SELECT_NUMBER => select(step),
        _ => aggregate(step),
    };
    if what > 1 && step.once_in(4) && !arguments.is_empty() {
        // A word of the head is another, so lengths and numbers lie.
        let at = step.index(arguments.len().min(96) / 4) * 4;
        let word = (step.number() as u32).to_le_bytes();
        let width = 4.min(arguments.len() - at);
        arguments[at..at + width].copy_from_slice(&word[..width]);
    }
    arguments.truncate(PAYLOAD_BYTES_MAX);
    world.memory.refuse_after = refuse_after;
    let result = world.call(HOSTILE, number, &arguments);
    world.memory.refuse_after = None;
    let leaks = |answer: &Vec<u8>| answer.windows(stores::SECRET.len()).any(|window| window == stores::SECRET);
    assert!(!result.as_ref().is_ok_and(leaks), "one caller sees what another one stores");
    let seen = result.map_or_else(|code| code as u64, |answer| 32 + u64::from(answer.first().copied().unwrap_or(0)));
    [2, number + 8 * u64::from(what == 1), seen]
}

/// The caller's own memory gets pointers, numbers or noise.
fn write_memory(world: &mut World, step: &mut Step<'_>) {
    let memory = world.memory.caller_mut(HOSTILE);
    let at = step.index(memory.len() / 8) * 8;
    let words = 1 + step.index(16);
    for (place, word) in memory[at..].chunks_exact_mut(8).zip((0..words).map(|_| address(step))) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// In the caller's memory, at its edges, or anywhere.
fn address(step: &mut Step<'_>) -> u64 {
    match step.below(6) {
        0 => step.number(),
        1 => CALLER_ADDRESS + CALLER_BYTES - step.below(16),
        2 => CALLER_ADDRESS.wrapping_sub(step.below(1 << 20)),
        _ => CALLER_ADDRESS + step.below(CALLER_BYTES / 8) * 8,
    }
}

fn offset(step: &mut Step<'_>) -> u32 {
    if step.once_in(8) { step.number() as u32 } else { step.below(64) as u32 }
}

fn comparison(step: &mut Step<'_>) -> yonder_offload::Comparison {
    step.pick(&yonder_offload::Comparison::ALL)
}

fn walk(step: &mut Step<'_>) -> Vec<u8> {
    let start = address(step);
    let levels = 1 + step.below(3) as u32;
    let bytes = vec![step.byte(); step.index(9) * levels as usize];
    let mask = vec![step.byte(); step.index(10)];
    let lists = chase::Lists {
        next_offset: offset(step),
        child_offset: offset(step),
        key_offset: offset(step),
        levels,
        order: step.pick(&[chase::Order::Bytes, chase::Order::LittleEndian]),
        comparison: comparison(step),
        take: step.pick(&[chase::Take::Match, chase::Take::Before]),
        mask: &mask,
    };
    let shape =
        if step.once_in(4) { chase::Shape::Tables { table_offset: offset(step) } } else { chase::Shape::Lists(lists) };
    let value = chase::Field { offset: offset(step), bytes: offset(step) };
    let steps_max = if step.once_in(2) { chase::STEPS_MAX } else { step.number() as u32 };
    chase::Request { start, shape, key: &bytes, value, steps_max }.encode()
}

fn pairs(step: &mut Step<'_>) -> Vec<u8> {
    let what = step.below(6);
    let key = vec![step.byte(); if step.once_in(16) { kv::KEY_BYTES_MAX + 1 } else { step.index(4) }];
    let own = [&key[..], &step.below(64).to_le_bytes()[..2]].concat();
    let key = if step.once_in(3) { stores::key(step) } else { own };
    let value = vec![step.byte(); step.pick(&[0, 1, 100, 3000, 65_000])];
    let mode = step.pick(&[kv::PutMode::Always, kv::PutMode::Create, kv::PutMode::Update]);
    match what {
        0 => kv::Request::Get { key: &key }.encode(),
        1 => kv::Request::Delete { key: &key }.encode(),
        2 => kv::Request::Stats.encode(),
        3 => kv::Request::Keys { from: step.number() }.encode(),
        _ => kv::Request::Put { key: &key, value: &value, mode }.encode(),
    }
}

fn objects(step: &mut Step<'_>) -> Vec<u8> {
    let what = step.below(6);
    let object = mv::ObjectId(if step.once_in(8) { step.number() } else { step.below(10) });
    let version = if step.once_in(2) { mv::Version::Latest } else { mv::Version::Number(step.number()) };
    let value = vec![step.byte(); step.pick(&[0, 1, 100, 3000, mv::VALUE_BYTES_MAX])];
    match what {
        0 => mv::Request::Create { versions_kept: step.pick(&[0, 1, 4, mv::VERSIONS_KEPT_MAX, u32::MAX]) }.encode(),
        1 => mv::Request::Delete { object }.encode(),
        2 => mv::Request::Read { object, version }.encode(),
        3 => mv::Request::Describe { object }.encode(),
        _ => mv::Request::Append { object, value: &value }.encode(),
    }
}

fn rows(step: &mut Step<'_>) -> frame::Rows {
    let first = if step.once_in(8) { step.number() } else { step.below(64) * 8 };
    let count =
        if step.once_in(8) { step.pick(&[frame::ROWS_MAX, frame::ROWS_MAX + 1, u64::MAX]) } else { step.below(600) };
    frame::Rows { first, count }
}

fn filter(step: &mut Step<'_>) -> frame::Filter {
    let address = address(step);
    let comparison = comparison(step);
    let word = step.number();
    let test = match step.below(5) {
        0 => return frame::Filter::All,
        1 => return frame::Filter::Bitmap { address },
        2 => frame::Test::I64(frame::Condition::Between(-5, word.cast_signed())),
        3 => frame::Test::F64(frame::Condition::Is(comparison, f64::from_bits(word))),
        _ => frame::Test::U32(frame::Condition::Is(comparison, word as u32)),
    };
    frame::Filter::Where { address, test }
}

fn column(step: &mut Step<'_>) -> frame::Column {
    let kind = step.pick(&[frame::ColumnKind::I64, frame::ColumnKind::F64, frame::ColumnKind::U32]);
    frame::Column { address: address(step), kind }
}

fn select(step: &mut Step<'_>) -> Vec<u8> {
    let (rows, filter) = (rows(step), filter(step));
    let target = if step.once_in(2) {
        frame::Target::Answer
    } else {
        frame::Target::Memory { address: address(step), capacity: step.number() }
    };
    let output = match step.below(4) {
        0 => frame::Output::Count,
        1 => {
            let combine = step.pick(&[frame::Combine::Replace, frame::Combine::And, frame::Combine::Or]);
            frame::Output::Bitmap { address: address(step), combine }
        }
        2 => frame::Output::Rows(target),
        _ => frame::Output::Values(column(step), target),
    };
    frame::SelectRequest { rows, filter, output }.encode()
}

fn aggregate(step: &mut Step<'_>) -> Vec<u8> {
    let (rows, filter) = (rows(step), filter(step));
    frame::AggregateRequest { rows, filter, column: column(step) }.encode()
}
