//! The store against a list of versions for each object, with accesses refused at any point, and the cost of reads.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::fake_memory::FakeMemory;

fn store() -> VersionStore {
    VersionStore::new(CALLER_BYTES_MAX)
}

fn call(
    store: &mut VersionStore,
    memory: &mut FakeMemory,
    pid: u32,
    request: &Request<'_>,
) -> Result<Vec<u8>, ErrorCode> {
    memory.call(store, pid, &request.encode())
}

fn create(store: &mut VersionStore, memory: &mut FakeMemory, pid: u32, versions_kept: u32) -> ObjectId {
    let answer = call(store, memory, pid, &Request::Create { versions_kept }).unwrap();
    let Ok(Answer::Created(object)) = Answer::decode(&answer) else { panic!("nothing was created") };
    object
}

#[derive(Clone, Debug)]
enum Step {
    Create(u32),
    Append(usize),
    Read(Option<u64>),
    Delete,
    Describe,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![8 => 0usize..100, 1 => 0usize..=VALUE_BYTES_MAX];
    let version = prop_oneof![1 => Just(None), 4 => (0u64..12).prop_map(Some), 1 => (0..u64::MAX).prop_map(Some)];
    prop_oneof![
        1 => (1u32..12).prop_map(Step::Create),
        6 => bytes.prop_map(Step::Append),
        4 => version.prop_map(Step::Read),
        1 => Just(Step::Delete),
        1 => Just(Step::Describe),
    ]
}

/// What an object should be: how many versions it keeps, and all that were appended.
struct Model {
    kept: usize,
    versions: Vec<Vec<u8>>,
}

impl Model {
    fn describe(&self) -> Description {
        let next = self.versions.len();
        Description { oldest: next.saturating_sub(self.kept) as u64, next: next as u64 }
    }

    /// Blocks that it should have: its versions, and an array for any.
    fn blocks(&self) -> u64 {
        let Description { oldest, next } = self.describe();
        next - oldest + u64::from(next > 0)
    }

    fn read(&self, version: Option<u64>) -> Answer<'_> {
        let Description { oldest, next } = self.describe();
        let number = version.unwrap_or(next.wrapping_sub(1));
        if (oldest..next).contains(&number) {
            Answer::Value { version: number, value: &self.versions[number as usize] }
        } else {
            Answer::NoVersion(self.describe())
        }
    }
}

type Objects = HashMap<ObjectId, Model>;

/// Nothing leaks: each block is a version, an array or a segment, and free descriptors are used before new ones.
fn check_usage(objects: &super::Objects, model: &Objects, peak: usize) -> Result<(), TestCaseError> {
    let (blocks, segments, descriptors) = objects.usage();
    prop_assert_eq!(blocks, segments + model.values().map(Model::blocks).sum::<u64>());
    prop_assert!(descriptors as usize <= peak, "{} descriptors for {} objects", descriptors, peak);
    Ok(())
}

fn run(steps: Vec<(u32, prop::sample::Index, Step, Option<u32>)>) -> Result<(), TestCaseError> {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let (mut models, mut ids): (HashMap<u32, Objects>, Vec<ObjectId>) = (HashMap::new(), Vec::new());
    let mut peaks = HashMap::new();
    for (count, (pid, index, step, refuse_after)) in steps.into_iter().enumerate() {
        let model = models.entry(pid).or_default();
        // Numbers of deleted objects and of another caller's objects are tried too.
        let object = if ids.is_empty() { ObjectId(0) } else { ids[index.index(ids.len())] };
        let mut call = |request: Request<'_>| memory.call_twice(&mut store, pid, &request.encode(), refuse_after);
        match step {
            Step::Create(versions_kept) => {
                let answer = call(Request::Create { versions_kept });
                let Ok(Answer::Created(object)) = Answer::decode(&answer) else { panic!("nothing was created") };
                let new = Model { kept: versions_kept as usize, versions: Vec::new() };
                prop_assert!(model.insert(object, new).is_none());
                ids.push(object);
            }
            Step::Append(bytes) => {
                let value = vec![count as u8; bytes];
                let answer = call(Request::Append { object, value: &value });
                let expected = model.get_mut(&object).map_or(Answer::NoObject, |model| {
                    model.versions.push(value);
                    Answer::Appended(model.versions.len() as u64 - 1)
                });
                prop_assert_eq!(Answer::decode(&answer), Ok(expected));
            }
            Step::Read(number) => {
                let version = number.map_or(Version::Latest, Version::Number);
                let answer = call(Request::Read { object, version });
                let expected = model.get(&object).map_or(Answer::NoObject, |model| model.read(number));
                prop_assert_eq!(Answer::decode(&answer), Ok(expected));
            }
            Step::Delete => {
                let answer = call(Request::Delete { object });
                let expected = if model.remove(&object).is_some() { Answer::Deleted } else { Answer::NoObject };
                prop_assert_eq!(Answer::decode(&answer), Ok(expected));
            }
            Step::Describe => {
                let answer = call(Request::Describe { object });
                let expected = model.get(&object).map(|model| Answer::Description(model.describe()));
                prop_assert_eq!(Answer::decode(&answer), Ok(expected.unwrap_or(Answer::NoObject)));
            }
        }
        let peak = peaks.entry(pid).or_insert(0);
        *peak = model.len().max(*peak);
        if let Some(objects) = store.callers.get(&pid) {
            check_usage(objects, model, *peak)?;
        }
    }
    check_and_empty(&mut store, &mut memory, &models)
}

/// Every version that the models have is there, and all memory goes back with the last object.
fn check_and_empty(
    store: &mut VersionStore,
    memory: &mut FakeMemory,
    models: &HashMap<u32, Objects>,
) -> Result<(), TestCaseError> {
    for (pid, model) in models {
        for (object, model) in model {
            for number in model.describe().oldest..model.describe().next {
                let request = Request::Read { object: *object, version: Version::Number(number) };
                let answer = call(store, memory, *pid, &request).unwrap();
                prop_assert_eq!(Answer::decode(&answer), Ok(model.read(Some(number))));
            }
        }
        for object in model.keys() {
            let answer = call(store, memory, *pid, &Request::Delete { object: *object }).unwrap();
            prop_assert_eq!(Answer::decode(&answer), Ok(Answer::Deleted));
        }
    }
    prop_assert_eq!(store.pool.spans_in_use(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
    #[test]
    fn the_store_is_a_list_of_versions_for_each_object(
        steps in prop::collection::vec((1u32..3, any::<prop::sample::Index>(), step(), Just(None)), 0..600),
    ) {
        run(steps)?;
    }

    #[test]
    fn a_refused_access_changes_nothing(
        steps in prop::collection::vec(
            (1u32..3, any::<prop::sample::Index>(), step(), prop::option::of(0u32..20)), 0..400),
    ) {
        run(steps)?;
    }

    #[test]
    fn requests_and_answers_come_back(
        object in any::<u64>(), number in 0..u64::MAX, value in prop::collection::vec(any::<u8>(), 0..50),
        cut in any::<prop::sample::Index>(),
    ) {
        let (object, value) = (ObjectId(object), &value[..]);
        let requests = [
            Request::Create { versions_kept: number as u32 },
            Request::Append { object, value },
            Request::Read { object, version: Version::Latest },
            Request::Read { object, version: Version::Number(number) },
            Request::Delete { object },
            Request::Describe { object },
        ];
        for request in requests {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            prop_assert_eq!(Request::decode(&bytes[..cut.index(24)]), Err(crate::Malformed));
        }
        let description = Description { oldest: object.0, next: number };
        let answers = [
            Answer::Created(object),
            Answer::Appended(number),
            Answer::Value { version: number, value },
            Answer::NoVersion(description),
            Answer::Deleted,
            Answer::Description(description),
            Answer::NoObject,
        ];
        for answer in answers {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
            prop_assert_eq!(Answer::decode(&bytes[..cut.index(bytes.len())]), Err(crate::Malformed));
        }
    }
}

#[test]
fn reading_any_version_costs_the_same() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let object = create(&mut store, &mut memory, 1, 1000);
    for number in 0u32..1500 {
        call(&mut store, &mut memory, 1, &Request::Append { object, value: &number.to_le_bytes() }).unwrap();
    }
    for number in (500..1500).step_by(37) {
        let before = memory.accesses;
        let request = Request::Read { object, version: Version::Number(number) };
        let answer = call(&mut store, &mut memory, 1, &request).unwrap();
        let value = &(number as u32).to_le_bytes()[..];
        assert_eq!(Answer::decode(&answer), Ok(Answer::Value { version: number, value }));
        assert_eq!(memory.accesses - before, 4, "descriptor, place, size and value of version {number}");
    }
}

#[test]
fn numbers_of_deleted_objects_are_not_used_again() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let first = create(&mut store, &mut memory, 1, 3);
    call(&mut store, &mut memory, 1, &Request::Delete { object: first }).unwrap();
    let second = create(&mut store, &mut memory, 1, 3);
    assert_ne!(first, second);
    let answer = call(&mut store, &mut memory, 1, &Request::Describe { object: first }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::NoObject));
}

#[test]
fn an_ended_space_gives_its_memory_back_and_no_other() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let objects = [1, 2].map(|pid| create(&mut store, &mut memory, pid, VERSIONS_KEPT_MAX));
    assert_eq!(objects[0], objects[1], "numbers are by caller");
    for (pid, object) in [(1, objects[0]), (2, objects[1])] {
        call(&mut store, &mut memory, pid, &Request::Append { object, value: &[pid as u8; 5000] }).unwrap();
    }
    store.space_ended(1, &mut memory);
    let object = objects[1];
    let request = Request::Read { object, version: Version::Latest };
    let answer = call(&mut store, &mut memory, 1, &request).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::NoObject));
    let answer = call(&mut store, &mut memory, 2, &request).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value { version: 0, value: &[2; 5000] }));
    store.space_ended(2, &mut memory);
    assert_eq!(store.pool.spans_in_use(), 0);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    for versions_kept in [0, VERSIONS_KEPT_MAX + 1] {
        let refused = call(&mut store, &mut memory, 1, &Request::Create { versions_kept });
        assert_eq!(refused, Err(ErrorCode::BadLength));
    }
    let object = create(&mut store, &mut memory, 1, 1);
    let value = vec![0; VALUE_BYTES_MAX + 1];
    let refused = call(&mut store, &mut memory, 1, &Request::Append { object, value: &value });
    assert_eq!(refused, Err(ErrorCode::BadLength));
    let answer = call(&mut store, &mut memory, 1, &Request::Describe { object }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Description(Description { oldest: 0, next: 0 })));
}

#[test]
fn a_version_without_bytes_is_one() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let object = create(&mut store, &mut memory, 1, 2);
    let answer = call(&mut store, &mut memory, 1, &Request::Append { object, value: &[] }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Appended(0)));
    let answer = call(&mut store, &mut memory, 1, &Request::Read { object, version: Version::Latest }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value { version: 0, value: &[] }));
}
