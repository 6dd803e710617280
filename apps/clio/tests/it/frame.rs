//! The data frame against a real node, beside plain loops over the same table.

use yonder::clib::Process;
use yonder_clio::frame::{
    Column, Comparison, Condition, Frame, FrameSettings, Histogram, Numbers, Place, Table, Values, generate, run,
    shuffle,
};
use yonder_clio::{AppError, Meter};
use yonder_node::{Listen, Node, NodeConfig};

use proptest::prelude::*;

fn node() -> (Node, String) {
    let config = NodeConfig {
        page_bytes: Some(64 << 10),
        ..NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 64 << 20)
    };
    let node = Node::start(config).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}

/// A row as a test sees it.
type Row = (i64, f64, u32);

fn table_of(rows: &[Row]) -> Table {
    let names = ["red", "green", "blue"].map(str::to_owned).to_vec();
    let columns = [
        ("number", Values::I64(rows.iter().map(|row| row.0).collect())),
        ("real", Values::F64(rows.iter().map(|row| row.1).collect())),
        ("colour", Values::Text { codes: rows.iter().map(|row| row.2).collect(), names }),
    ];
    Table::new(columns.map(|(name, values)| Column { name: name.to_owned(), values }).to_vec())
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let real = prop_oneof![8 => (-50i32..50).prop_map(|half| f64::from(half) / 2.0), 1 => Just(f64::NAN)];
    prop::collection::vec((-20i64..20, real, 0u32..3), 0..300)
}

fn conditions() -> impl Strategy<Value = Vec<(usize, Comparison, i32)>> {
    prop::collection::vec((0usize..3, prop::sample::select(&Comparison::ALL[..]), -25..25i32), 0..4)
}

/// The condition as people type it, and what it means for a row.
fn condition((column, comparison, operand): (usize, Comparison, i32)) -> (Condition, impl Fn(&Row) -> bool) {
    // Texts have no order, and one of the four is in no row.
    let equal = if matches!(comparison, Comparison::Equal | Comparison::Less) {
        Comparison::Equal
    } else {
        Comparison::NotEqual
    };
    let comparison = if column == 2 { equal } else { comparison };
    let colour = operand.rem_euclid(4) as u32;
    let (name, text) = match column {
        0 => ("number", operand.to_string()),
        1 => ("real", (f64::from(operand) / 2.0).to_string()),
        _ => ("colour", ["red", "green", "blue", "grey"][colour as usize].to_owned()),
    };
    let holds = move |row: &Row| {
        let ordering = match column {
            0 => row.0.partial_cmp(&i64::from(operand)),
            1 => row.1.partial_cmp(&(f64::from(operand) / 2.0)),
            _ => row.2.partial_cmp(&colour),
        };
        ordering.map_or(comparison == Comparison::NotEqual, |ordering| comparison.holds(ordering))
    };
    (Condition { column: name.to_owned(), comparison, operand: text }, holds)
}

#[test]
fn both_places_answer_as_a_loop_over_the_rows_does() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let meter = std::cell::RefCell::new(Meter::new(&process).unwrap());
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(rows in rows(), conditions in conditions())| {
        let mut meter = meter.borrow_mut();
        let frame = Frame::store(&table_of(&rows), &mut meter).unwrap();
        let (wanted, tests): (Vec<Condition>, Vec<_>) = conditions.into_iter().map(condition).unzip();
        let kept: Vec<Row> = rows.into_iter().filter(|row| tests.iter().all(|test| test(row))).collect();
        let expected = table_of(&kept);
        for place in [Place::Node, Place::Client] {
            for column in expected.columns() {
                let values = frame.select(&column.name, &wanted, place, &mut meter).unwrap();
                // As bytes, what is not a number is like itself.
                prop_assert_eq!(values.to_bytes(), column.values.to_bytes());
            }
            let summary = frame.summary("number", &wanted, place, &mut meter).unwrap();
            let numbers = Numbers::Integers {
                sum: kept.iter().map(|row| i128::from(row.0)).sum(),
                min: kept.iter().map(|row| row.0).min().unwrap_or(i64::MAX),
                max: kept.iter().map(|row| row.0).max().unwrap_or(i64::MIN),
            };
            prop_assert_eq!((summary.count, summary.numbers), (kept.len() as u64, numbers));
            // Halves add up exactly, so the order does not matter.
            let Numbers::Reals { sum, .. } = frame.summary("real", &wanted, place, &mut meter).unwrap().numbers else {
                panic!("a column of numbers with a fraction has such a sum");
            };
            let total: f64 = kept.iter().map(|row| row.1).sum();
            prop_assert!(sum == total || sum.is_nan() && total.is_nan());
        }
        frame.free(&mut meter).unwrap();
    });
}

#[test]
fn a_table_of_many_calls_is_summed_alike_at_both_places() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    // More rows than two calls look at, and more values than ten answers hold.
    let table = generate(600_000);
    let frame = Frame::store(&table, &mut meter).unwrap();
    for text in ["distance > 2.08", "distance > 13.8"] {
        let wanted: Vec<Condition> = vec![text.parse().unwrap(), "zone != park".parse().unwrap()];
        let mut moved = Vec::new();
        let mut answers = Vec::new();
        for place in [Place::Node, Place::Client] {
            let before = meter.traffic();
            answers.push(frame.summary("fare", &wanted, place, &mut meter).unwrap());
            moved.push(meter.traffic().since(before));
            answers.push(frame.summary("riders", &wanted, place, &mut meter).unwrap());
        }
        assert_eq!(answers[..2], answers[2..], "not only nearly the same");
        assert_eq!(moved[0].round_trips, 9, "two marks and an aggregate, for each of three spans");
        assert!(moved[0].fetched_bytes < 1000 && moved[1].fetched_bytes == 600_000 * 20, "{moved:?}");
        let values =
            [Place::Node, Place::Client].map(|place| frame.select("fare", &wanted, place, &mut meter).unwrap());
        assert_eq!(values[0], values[1]);
        assert_eq!(Histogram::of(&values[0], 10).counts.iter().sum::<u64>(), answers[0].count);
    }
}

#[test]
fn a_shuffle_keeps_every_row_and_brings_keys_together() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let rows: Vec<Row> = (0..1000i64).map(|row| (row * row % 37, row as f64, (row % 3) as u32)).collect();
    let frame = Frame::store(&table_of(&rows), &mut meter).unwrap();
    for key in ["number", "real", "colour"] {
        let parts = shuffle(&frame, key, 4, &mut meter).unwrap();
        let mut fetch = |part: &Frame, column: &str| part.fetch(column, &mut meter).unwrap();
        let (mut all, mut keys) = (Vec::new(), Vec::new());
        for part in &parts {
            let (Values::I64(numbers), Values::F64(reals)) = (fetch(part, "number"), fetch(part, "real")) else {
                panic!("columns keep their kinds");
            };
            let Values::Text { codes, names } = fetch(part, "colour") else { panic!("columns keep their kinds") };
            assert_eq!(names, ["red", "green", "blue"]);
            assert!(reals.is_sorted(), "rows keep their order");
            all.extend(numbers.into_iter().zip(reals).zip(codes).map(|((number, real), code)| (number, real, code)));
            let width = fetch(part, key).kind().width() as usize;
            let mut own: Vec<Vec<u8>> = fetch(part, key).to_bytes().chunks(width).map(<[u8]>::to_vec).collect();
            own.sort_unstable();
            own.dedup();
            keys.extend(own);
        }
        all.sort_by_key(|row| row.1 as u64);
        assert_eq!(all, rows);
        let different = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), different, "a key of {key} is in two parts");
        for part in parts {
            part.free(&mut meter).unwrap();
        }
    }
}

#[test]
fn a_file_is_loaded_and_asked() {
    let (node, url) = node();
    let before = node.stats().allocated_bytes;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trips.csv");
    std::fs::write(&file, "zone,riders,fare\nnorth,2,3.5\nsouth,1,\nnorth,3,4\nnorth,1,5\n").unwrap();
    let settings = FrameSettings {
        file: Some(file),
        wanted: vec!["zone = north".parse().unwrap(), "riders > 1".parse().unwrap()],
        rounds: 2,
        ..FrameSettings::new(url.clone())
    };
    let results = run(&settings, &mut |_, _| {}).unwrap();
    let queries: Vec<_> = results.iter().map(|result| (result.query, result.place, result.matched)).collect();
    let (node_place, client) = (Place::Node, Place::Client);
    let expected = [
        ("store", client, 4),
        ("aggregate", client, 2),
        ("aggregate", node_place, 2),
        ("histogram", client, 2),
        ("histogram", node_place, 2),
        ("shuffle", client, 4),
    ];
    assert_eq!(queries, expected);
    assert_eq!((results[1].column.as_str(), results[1].wanted.as_str()), ("fare", "zone = north and riders > 1"));
    assert_eq!(results[1].costs.operations, 2);

    let made_up = FrameSettings { rows: 20_000, rounds: 2, ..FrameSettings::new(url) };
    let results = run(&made_up, &mut |_, _| {}).unwrap();
    let fewer: Vec<f64> = results.iter().filter_map(|result| result.times_fewer_bytes).collect();
    assert_eq!(fewer.len(), 6);
    assert!(fewer[0] > 100.0 && fewer[5] > 10.0, "{fewer:?}");
    assert_eq!(node.stats().allocated_bytes, before, "runs leave nothing behind");
}

#[test]
fn what_cannot_be_asked_is_refused_in_one_line() {
    let (_node, url) = node();
    let [alice, bob] = [(); 2].map(|()| Process::create(&url).unwrap());
    let mut meter = Meter::new(&alice).unwrap();
    let frame = Frame::store(&table_of(&[(1, 2.0, 0)]), &mut meter).unwrap();
    let ask = |column: &str, condition: &str, meter: &mut Meter| {
        let wanted: Vec<Condition> = vec![condition.parse().unwrap()];
        frame.summary(column, &wanted, Place::Node, meter).unwrap_err()
    };
    for (column, condition, hint) in [
        ("number", "size > 1", "there is no column 'size': name one of number, real, colour"),
        ("colour", "number > 1", "column 'colour' has texts: summarise a column of numbers"),
        ("number", "number > red", "'number > red': the column has whole numbers: compare it with one"),
        ("number", "colour > red", "'colour > red': the column has texts: compare it with = or !="),
    ] {
        assert_eq!(ask(column, condition, &mut meter).to_string(), hint);
    }
    // Another address space has nothing there.
    let refused = ask("number", "number > 0", &mut Meter::new(&bob).unwrap());
    assert!(matches!(refused, AppError::Node(_)), "{refused}");
    let nothing = FrameSettings { rounds: 0, ..FrameSettings::new(url) };
    assert!(run(&nothing, &mut |_, _| {}).unwrap_err().to_string().contains("type 1 or more"));
}
