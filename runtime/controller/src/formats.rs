//! Tests: lines and records as other releases have written them are read, and say what they said.
//!
//! Each file of `formats` has the lines of one version: those of a version that a release had are never changed. What
//! is added is added to the file of the version that this release speaks.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yonder_placement::{
    Answer, Command, Config, Controller, Outcome, RECORDS_FORMAT_READ_MAX, Record, Refusal, Request,
};

use crate::messages::{FromController, ToController, VERSION, VERSION_MIN};
use crate::store::{self, MemoryStore, Store as _, Write};
use crate::unknown::variants;

const TO_CONTROLLER: &[&str] =
    &[include_str!("../formats/to-controller-1.jsonl"), include_str!("../formats/to-controller-2.jsonl")];
const FROM_CONTROLLER: &[&str] =
    &[include_str!("../formats/from-controller-1.jsonl"), include_str!("../formats/from-controller-2.jsonl")];
const RECORDS: &[&str] = &[include_str!("../formats/records-1.jsonl")];

/// Each version that is understood has a file.
const _: () = assert!(VERSION_MIN == 1 && TO_CONTROLLER.len() == VERSION as usize);
const _: () = assert!(FROM_CONTROLLER.len() == VERSION as usize && RECORDS.len() == RECORDS_FORMAT_READ_MAX as usize);

fn values(files: &[&'static str]) -> Vec<Value> {
    let lines = files.iter().flat_map(|file| file.lines());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// Whether all that `said` has is in `again` too, as it was.
fn has_all(again: &Value, said: &Value) -> bool {
    match (again, said) {
        (Value::Object(again), Value::Object(said)) => {
            said.iter().all(|(name, said)| again.get(name).is_some_and(|again| has_all(again, said)))
        }
        (Value::Array(again), Value::Array(said)) => {
            again.len() == said.len() && again.iter().zip(said).all(|(again, said)| has_all(again, said))
        }
        (again, said) => again == said,
    }
}

/// Reads a value, which says the same when it is written again.
fn read<T: DeserializeOwned + Serialize>(said: &Value) -> T {
    let read: T = serde_json::from_value(said.clone()).unwrap_or_else(|error| panic!("{said}: {error}"));
    let again = serde_json::to_value(&read).unwrap();
    assert!(has_all(&again, said), "{said} has become {again}");
    read
}

/// The names of variants in these values.
fn names<'value>(values: impl IntoIterator<Item = &'value Value>) -> BTreeSet<&'value str> {
    let name = |value: &'value Value| match value {
        Value::Object(object) => object.keys().next().map(String::as_str),
        other => other.as_str(),
    };
    values.into_iter().filter(|value| !value.is_null()).filter_map(name).collect()
}

/// Each variant of an enum is among those that are read.
fn are_all<T: DeserializeOwned>(read: &BTreeSet<&str>) {
    let missing: Vec<_> = variants::<T>().iter().filter(|name| !read.contains(**name)).collect();
    assert!(missing.is_empty(), "no file of formats has {missing:?}: add lines to those of version {VERSION}");
}

#[test]
fn lines_to_a_controller_are_read_that_other_releases_have_written() {
    let lines = values(TO_CONTROLLER);
    lines.iter().for_each(|line| drop(read::<ToController>(line)));
    are_all::<ToController>(&names(&lines));
    are_all::<Request>(&names(lines.iter().map(|line| &line["ask"]["request"])));
    are_all::<Outcome>(&names(lines.iter().map(|line| &line["outcome"])));
}

#[test]
fn lines_of_a_controller_are_read_that_other_releases_have_written() {
    let lines = values(FROM_CONTROLLER);
    lines.iter().for_each(|line| drop(read::<FromController>(line)));
    let answers = || lines.iter().map(|line| &line["answer"]["answer"]);
    are_all::<FromController>(&names(&lines));
    are_all::<Command>(&names(lines.iter().map(|line| &line["do"])));
    are_all::<Answer>(&names(answers()));
    are_all::<Refusal>(&names(answers().map(|answer| &answer["refused"])));
}

#[test]
fn a_controller_begins_with_the_records_of_another_release() {
    let lines = values(RECORDS);
    are_all::<Record>(&names(lines.iter().map(|line| &line["record"])));
    let mut store = MemoryStore::default();
    for line in &lines {
        let record = read::<Record>(&line["record"]);
        assert_eq!(line["key"], record.key().to_string().as_str());
        let (key, value) = (record.key().to_string(), serde_json::to_vec(&line["record"]).unwrap());
        store.commit(&[Write::Put { key, value }]).unwrap();
    }
    let records = store::load(&mut store, "here").unwrap();
    let Some(Record::Cluster(cluster)) = records.iter().find(|record| matches!(record, Record::Cluster(_))) else {
        panic!("no cluster in {records:?}")
    };
    let config = Config { region_bytes: cluster.region_bytes, ..Config::default() };
    let restored = Controller::restore(config, yonder_placement::ClusterId(1), records.clone(), 0).unwrap();
    assert_eq!(restored.cluster(), cluster.id);
}

#[test]
fn a_field_that_a_later_release_has_added_is_passed_over() {
    fn with_more(value: &mut Value) {
        match value {
            Value::Object(object) => {
                let has_fields = object.len() > 1;
                object.values_mut().for_each(with_more);
                if has_fields {
                    object.insert("sung".to_owned(), Value::from("loud"));
                }
            }
            Value::Array(values) => values.iter_mut().for_each(with_more),
            _ => {}
        }
    }
    for mut line in values(TO_CONTROLLER) {
        let before = read::<ToController>(&line);
        with_more(&mut line);
        assert_eq!(serde_json::from_value::<ToController>(line).unwrap(), before);
    }
    for mut line in values(FROM_CONTROLLER) {
        let before = read::<FromController>(&line);
        with_more(&mut line);
        assert_eq!(serde_json::from_value::<FromController>(line).unwrap(), before);
    }
}
