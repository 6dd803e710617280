//! Select and aggregate against iterators over the same rows, in one call and in several.

use proptest::prelude::*;
use yonder_wire::{ErrorCode, PAYLOAD_BYTES_MAX};

use super::*;
use crate::Comparison;
use crate::fake_memory::FakeMemory;

const PID: u32 = 9;
const BASE: u64 = 0x10_0000;
const COLUMN_BYTES: u64 = 1 << 20;
/// Addresses of the columns and of outputs.
const INTEGERS: u64 = BASE;
const REALS: u64 = BASE + COLUMN_BYTES;
const SMALL: u64 = BASE + 2 * COLUMN_BYTES;
const OUTPUT: u64 = BASE + 3 * COLUMN_BYTES;
const BITMAP: u64 = BASE + 4 * COLUMN_BYTES;

fn memory() -> FakeMemory {
    let mut memory = FakeMemory::default();
    (0..5).for_each(|column| memory.caller_allocates(PID, BASE + column * COLUMN_BYTES, COLUMN_BYTES));
    memory
}

/// A table of three columns.
#[derive(Clone, Debug)]
struct Table {
    integers: Vec<i64>,
    reals: Vec<f64>,
    small: Vec<u32>,
}

impl Table {
    /// A table whose values are made from `seed`; few values are special.
    fn new(rows: usize, seed: u64) -> Self {
        let word = |row: usize| (row as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let real = |row: usize| match word(row) % 50 {
            0 => f64::NAN,
            1 => f64::NEG_INFINITY,
            _ => (word(row) % 200) as f64 / 4.0 - 20.0,
        };
        Self {
            integers: (0..rows).map(|row| (word(row) % 100) as i64 - 50).collect(),
            reals: (0..rows).map(real).collect(),
            small: (0..rows).map(|row| (word(row) / 7 % 30) as u32).collect(),
        }
    }

    fn write_to(&self, memory: &mut FakeMemory) {
        let write = |memory: &mut FakeMemory, address, bytes: Vec<u8>| memory.caller_writes(PID, address, &bytes);
        write(memory, INTEGERS, self.integers.iter().flat_map(|value| value.to_le_bytes()).collect());
        write(memory, REALS, self.reals.iter().flat_map(|value| value.to_le_bytes()).collect());
        write(memory, SMALL, self.small.iter().flat_map(|value| value.to_le_bytes()).collect());
    }

    fn passes(&self, row: usize, test: &Test) -> bool {
        match *test {
            Test::I64(condition) => holds(self.integers[row], condition),
            Test::F64(condition) => holds(self.reals[row], condition),
            Test::U32(condition) => holds(self.small[row], condition),
        }
    }
}

fn holds<T: PartialOrd>(value: T, condition: Condition<T>) -> bool {
    match condition {
        Condition::Is(Comparison::NotEqual, operand) => value != operand,
        Condition::Is(comparison, operand) => value.partial_cmp(&operand).is_some_and(|order| comparison.holds(order)),
        Condition::Between(lower, upper) => (lower..=upper).contains(&value),
    }
}

fn condition<T: Copy + std::fmt::Debug>(values: impl Strategy<Value = T>) -> impl Strategy<Value = Condition<T>> {
    (prop::option::of(prop::sample::select(Comparison::ALL.to_vec())), values.prop_map(|value| [value; 2])).prop_map(
        |(comparison, [value, _])| comparison.map_or(Condition::Between(value, value), |is| Condition::Is(is, value)),
    )
}

fn test() -> impl Strategy<Value = Test> {
    let between = (-50i64..50, 0i64..30).prop_map(|(lower, more)| Condition::Between(lower, lower + more));
    prop_oneof![
        condition(-60i64..60).prop_map(Test::I64),
        between.prop_map(Test::I64),
        condition((-80i32..120).prop_map(|quarters| f64::from(quarters) / 4.0)).prop_map(Test::F64),
        condition(0u32..40).prop_map(Test::U32),
    ]
}

fn column_of(test: &Test) -> u64 {
    match test.kind() {
        ColumnKind::I64 => INTEGERS,
        ColumnKind::F64 => REALS,
        ColumnKind::U32 => SMALL,
    }
}

fn filter_of(test: Test) -> Filter {
    Filter::Where { address: column_of(&test), test }
}

fn select(memory: &mut FakeMemory, request: &SelectRequest) -> Result<Vec<u8>, ErrorCode> {
    memory.call(&mut Select::default(), PID, &request.encode())
}

fn aggregate(memory: &mut FakeMemory, request: &AggregateRequest) -> Result<Summary, ErrorCode> {
    let answer = memory.call(&mut Aggregate::default(), PID, &request.encode())?;
    Ok(Summary::decode(&answer).unwrap())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// A table, and a range of its rows.
fn table_and_rows() -> impl Strategy<Value = (Table, Rows)> {
    (1usize..10_000, any::<u64>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |(rows, seed, first, count)| {
            let first = first.index(rows);
            (Table::new(rows, seed), Rows { first: first as u64, count: count.index(rows - first + 1) as u64 })
        },
    )
}

fn matching(table: &Table, rows: Rows, test: &Test) -> Vec<u64> {
    (rows.first..rows.first + rows.count).filter(|row| table.passes(*row as usize, test)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]
    #[test]
    fn rows_are_counted_and_listed_as_an_iterator_does((table, rows) in table_and_rows(), test in test()) {
        let mut memory = memory();
        table.write_to(&mut memory);
        let (filter, expected) = (filter_of(test), matching(&table, rows, &test));
        let bytes = select(&mut memory, &SelectRequest { rows, filter, output: Output::Count }).unwrap();
        let counted = Selected { rows_seen: rows.count, matched: expected.len() as u64, data: &[] };
        prop_assert_eq!(Selected::decode(&bytes), Ok(counted));

        let target = Target::Memory { address: OUTPUT, capacity: u64::MAX };
        let bytes = select(&mut memory, &SelectRequest { rows, filter, output: Output::Rows(target) }).unwrap();
        prop_assert_eq!(Selected::decode(&bytes), Ok(counted));
        prop_assert_eq!(words(&memory.caller_reads(PID, OUTPUT, 8 * expected.len())), expected);
    }

    #[test]
    fn a_list_that_is_full_is_gone_on_with(
        (table, rows) in table_and_rows(), test in test(), capacity in prop::option::of(1u64..3000),
    ) {
        let mut memory = memory();
        table.write_to(&mut memory);
        let column = Column { address: SMALL, kind: ColumnKind::U32 };
        let target = capacity.map_or(Target::Answer, |capacity| Target::Memory { address: OUTPUT, capacity });
        let (mut copied, mut rest) = (Vec::new(), rows);
        loop {
            let request =
                SelectRequest { rows: rest, filter: filter_of(test), output: Output::Values(column, target) };
            let bytes = select(&mut memory, &request).unwrap();
            let answer = Selected::decode(&bytes).unwrap();
            prop_assert!(bytes.len() <= PAYLOAD_BYTES_MAX && capacity.is_none_or(|capacity| answer.matched <= capacity));
            match target {
                Target::Answer => copied.extend(answer.data),
                Target::Memory { .. } => copied.extend(memory.caller_reads(PID, OUTPUT, 4 * answer.matched as usize)),
            }
            rest = Rows { first: rest.first + answer.rows_seen, count: rest.count - answer.rows_seen };
            if rest.count == 0 {
                break;
            }
            prop_assert!(answer.rows_seen > 0);
        }
        let expected = matching(&table, rows, &test);
        let expected: Vec<u8> =
            expected.iter().flat_map(|row| table.small[*row as usize].to_le_bytes()).collect();
        prop_assert_eq!(copied, expected);
    }

    #[test]
    fn bitmaps_combine_and_filter(
        (table, mut rows) in table_and_rows(), tests in [test(), test(), test()],
        combines in [0usize..2, 0usize..2], refuse_after in prop::option::of(0u32..12),
    ) {
        rows = Rows { first: rows.first / 8 * 8, count: rows.count };
        let mut memory = memory();
        table.write_to(&mut memory);
        memory.caller_writes(PID, BITMAP, &[0xa5; 2000]);
        let mut expected = matching(&table, rows, &tests[0]);
        let later = [combines[0], combines[1]].map(|combine| [Combine::And, Combine::Or][combine]);
        for (test, combine) in tests.iter().zip([Combine::Replace, later[0], later[1]]) {
            let matches = |row: &u64| table.passes(*row as usize, test);
            match combine {
                Combine::Replace => {}
                Combine::And => expected.retain(matches),
                Combine::Or => {
                    let all = rows.first..rows.first + rows.count;
                    expected = all.filter(|row| expected.binary_search(row).is_ok() || matches(row)).collect();
                }
            }
            let output = Output::Bitmap { address: BITMAP, combine };
            let request = SelectRequest { rows, filter: filter_of(*test), output };
            memory.refuse_after = refuse_after;
            let first = select(&mut memory, &request);
            memory.refuse_after = None;
            let bytes = first.or_else(|_| select(&mut memory, &request)).unwrap();
            let counted = Selected { rows_seen: rows.count, matched: expected.len() as u64, data: &[] };
            prop_assert_eq!(Selected::decode(&bytes), Ok(counted));
        }
        let (before, end) = ((rows.first / 8) as usize, (rows.first + rows.count).div_ceil(8) as usize);
        let bitmap = memory.caller_reads(PID, BITMAP, 2000);
        let outside = bitmap[..before].iter().chain(&bitmap[end.max(before)..]);
        prop_assert!(outside.copied().all(|byte| byte == 0xa5), "nothing else changes");

        let (filter, column) = (Filter::Bitmap { address: BITMAP }, Column { address: INTEGERS, kind: ColumnKind::I64 });
        let summary = aggregate(&mut memory, &AggregateRequest { rows, filter, column }).unwrap();
        let values = expected.iter().map(|row| table.integers[*row as usize]);
        let mut model = Summary::of_nothing(ColumnKind::I64);
        if let (Some(min), Some(max)) = (values.clone().min(), values.clone().max()) {
            let numbers = Numbers::Integers { sum: values.map(i128::from).sum(), min, max };
            model = Summary { count: expected.len() as u64, numbers };
        }
        prop_assert_eq!(summary, model);
    }

    #[test]
    fn columns_are_summarised_as_an_iterator_does((table, rows) in table_and_rows(), test in test(), cut in any::<prop::sample::Index>()) {
        let mut memory = memory();
        table.write_to(&mut memory);
        let selected = matching(&table, rows, &test);
        let filter = filter_of(test);
        let column = Column { address: REALS, kind: ColumnKind::F64 };
        let summary = aggregate(&mut memory, &AggregateRequest { rows, filter, column }).unwrap();
        let values = || selected.iter().map(|row| table.reals[*row as usize]);
        prop_assert_eq!(summary.count, selected.len() as u64);
        let Numbers::Reals { sum, min, max } = summary.numbers else { panic!("not of reals") };
        let expected = [values().fold(0.0, |sum, value| sum + value), values().fold(f64::NAN, f64::min), values().fold(f64::NAN, f64::max)];
        // What is not a number may have any of many forms.
        let same = |(found, wanted): (f64, f64)| found == wanted || (found.is_nan() && wanted.is_nan());
        prop_assert!([sum, min, max].into_iter().zip(expected).all(same), "{summary:?}, not {expected:?}");

        let column = Column { address: SMALL, kind: ColumnKind::U32 };
        let whole = aggregate(&mut memory, &AggregateRequest { rows, filter, column }).unwrap();
        let first = Rows { count: cut.index(rows.count as usize + 1) as u64, ..rows };
        let second = Rows { first: rows.first + first.count, count: rows.count - first.count };
        let parts = [first, second].map(|rows| aggregate(&mut memory, &AggregateRequest { rows, filter, column }).unwrap());
        prop_assert_eq!(parts[0].merge(parts[1]), Some(whole));
        let sum: u64 = selected.iter().map(|row| u64::from(table.small[*row as usize])).sum();
        let Numbers::Integers { sum: summed, .. } = whole.numbers else { panic!("they are integers") };
        prop_assert_eq!((whole.count, summed), (selected.len() as u64, i128::from(sum)));
    }

    #[test]
    fn requests_come_back(test in test(), numbers in any::<[u64; 4]>(), all in 0usize..3) {
        let [first, count, address, capacity] = numbers;
        let rows = Rows { first, count };
        let filter = [Filter::All, Filter::Bitmap { address }, Filter::Where { address, test }][all];
        let column = Column { address: capacity, kind: test.kind() };
        let outputs = [
            Output::Count,
            Output::Bitmap { address, combine: Combine::And },
            Output::Bitmap { address, combine: Combine::Or },
            Output::Rows(Target::Answer),
            Output::Values(column, Target::Memory { address, capacity }),
        ];
        for output in outputs {
            let request = SelectRequest { rows, filter, output };
            prop_assert_eq!(SelectRequest::decode(&request.encode()), Ok(request));
            prop_assert_eq!(SelectRequest::decode(&request.encode()[1..]), Err(crate::Malformed));
        }
        let request = AggregateRequest { rows, filter, column };
        prop_assert_eq!(AggregateRequest::decode(&request.encode()), Ok(request));
        prop_assert_eq!(AggregateRequest::decode(&request.encode()[1..]), Err(crate::Malformed));
    }
}

#[test]
fn only_asked_rows_are_read() {
    let mut memory = memory();
    // The column's rows from 4 on are the first that are allocated.
    let column = Column { address: BASE - 32, kind: ColumnKind::I64 };
    memory.caller_writes(PID, BASE, &7i64.to_le_bytes());
    let rows = Rows { first: 4, count: 1 };
    let summary = aggregate(&mut memory, &AggregateRequest { rows, filter: Filter::All, column }).unwrap();
    assert_eq!(summary, Summary { count: 1, numbers: Numbers::Integers { sum: 7, min: 7, max: 7 } });
    let rows = Rows { first: 3, count: 2 };
    let refused = aggregate(&mut memory, &AggregateRequest { rows, filter: Filter::All, column });
    assert_eq!(refused, Err(ErrorCode::BadAddress));
}

#[test]
fn wild_requests_are_refused() {
    let mut memory = memory();
    let filter = filter_of(Test::I64(Condition::Is(Comparison::Greater, 5)));
    let count = |rows| SelectRequest { rows, filter, output: Output::Count };
    let wild = [
        (Rows { first: 0, count: ROWS_MAX + 1 }, ErrorCode::BadLength),
        (Rows { first: u64::MAX, count: 2 }, ErrorCode::BadAddress),
        (Rows { first: u64::MAX / 8, count: 2 }, ErrorCode::BadAddress),
        (Rows { first: 1 << 40, count: 2 }, ErrorCode::BadAddress),
    ];
    for (rows, code) in wild {
        assert_eq!(select(&mut memory, &count(rows)), Err(code), "{rows:?}");
    }
    let rows = Rows { first: 0, count: 100 };
    let over_itself = [
        Output::Bitmap { address: INTEGERS + 799, combine: Combine::Replace },
        Output::Rows(Target::Memory { address: INTEGERS - 8, capacity: 2 }),
        Output::Values(
            Column { address: SMALL, kind: ColumnKind::U32 },
            Target::Memory { address: SMALL + 396, capacity: 9 },
        ),
    ];
    for output in over_itself {
        let refused = select(&mut memory, &SelectRequest { rows, filter, output });
        assert_eq!(refused, Err(ErrorCode::OffloadFailed), "{output:?}");
    }
    let output = Output::Bitmap { address: BITMAP, combine: Combine::Replace };
    let rows = Rows { first: 4, count: 100 };
    assert_eq!(select(&mut memory, &SelectRequest { rows, filter, output }), Err(ErrorCode::BadLength));
}

#[test]
fn summaries_of_different_kinds_do_not_merge() {
    let [integers, reals] = [ColumnKind::U32, ColumnKind::F64].map(Summary::of_nothing);
    assert_eq!(integers.merge(reals), None);
}
