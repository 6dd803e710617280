//! The driver against targets with a fault in them: it finds it, makes it small, and finds the same again.

use std::process::Command;
use std::time::{Duration, Instant};

use yonder_fuzz::driver::{Campaign, Found, Limits, Watch, execute, read_corpus, save};
use yonder_fuzz::{Step, TARGETS, Target, Trail, target};

const STEP_BYTES: usize = 4;
/// Enough for the driver to find the door, and far too few for chance alone.
const EXECUTIONS_MAX: u64 = 400_000;

/// A door that opens after the right steps, one by one. Behind it is the fault.
fn door(data: &[u8], trail: &mut Trail) {
    let mut opened = 0;
    for mut step in Step::all(data, STEP_BYTES) {
        let [first, second] = [step.byte(), step.byte()];
        let turned = u8::try_from(opened).is_ok_and(|opened| first == 10 + opened && second < 128);
        opened = if turned { opened + 1 } else { opened };
        trail.note([opened, 0, 0]);
        assert!(opened < 4, "the door is open");
    }
}

const DOOR: Target = Target { name: "door", step_bytes: STEP_BYTES, bytes_max: 40 * STEP_BYTES, run: door };

fn search(target: &'static Target, seed: u64, corpus: &[Vec<u8>]) -> (Result<(), Found>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::new(&folder.path().join("running")).unwrap();
    let mut campaign = Campaign::new(target, seed, &watch);
    let limits = Limits { until: Instant::now() + Duration::from_secs(600), executions_max: EXECUTIONS_MAX };
    let outcome = campaign.run(corpus, &limits);
    (outcome, campaign.executions())
}

#[test]
fn a_fault_behind_several_steps_is_found_and_made_small() {
    let (outcome, executions) = search(&DOOR, 1, &[]);
    let Found { input, fault } = outcome.unwrap_err();
    assert!(fault.message.contains("the door is open") && fault.place.contains("driver.rs"), "{fault:?}");
    let turns: Vec<u8> = input.chunks(STEP_BYTES).map(|step| step[0]).collect();
    assert_eq!(turns, [10, 11, 12, 13], "every other step is taken out: {input:?}");
    assert_eq!(input.len(), 3 * STEP_BYTES + 1, "and what is not needed of the last: {input:?}");
    assert!(input.chunks(STEP_BYTES).all(|step| step[1..].iter().all(|byte| *byte == 0)), "{input:?}");
    assert_eq!(search(&DOOR, 1, &[]), (Err(Found { input, fault }), executions), "the same seed does the same");
}

#[test]
fn the_corpus_is_run_first() {
    let opening: Vec<u8> = (10..14).flat_map(|byte| [byte, 0, 0, 0]).collect();
    let (outcome, executions) = search(&DOOR, 1, &[vec![1, 2, 3], opening]);
    assert_eq!((outcome.is_err(), executions), (true, 2));
}

#[test]
fn a_target_without_a_fault_has_none() {
    fn quiet(_: &[u8], trail: &mut Trail) {
        trail.note([1, 2, 3]);
    }
    const QUIET: Target = Target { name: "quiet", step_bytes: 8, bytes_max: 64, run: quiet };
    assert_eq!(search(&QUIET, 1, &[]), (Ok(()), EXECUTIONS_MAX));
}

#[test]
fn the_last_input_outlives_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("running");
    let watch = Watch::new(&path).unwrap();
    watch.begin(b"a longer input");
    watch.begin(b"short");
    assert_eq!(Watch::last_input(&path).as_deref(), Some(&b"short"[..]));
    assert!(!watch.is_stuck());
    assert_eq!(Watch::last_input(&folder.path().join("nothing")), None);
}

#[test]
fn inputs_are_saved_under_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let saved = [b"one", b"two", b"one"].map(|input| save(folder.path(), "found", input).unwrap());
    assert_eq!(saved[0], saved[2]);
    let mut read = read_corpus(folder.path()).unwrap();
    read.sort();
    assert_eq!(read, [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(read_corpus(&folder.path().join("nothing")).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn every_input_of_every_corpus_passes() {
    for target in &TARGETS {
        let corpus = read_corpus(&yonder_fuzz::driver::corpus_of(target.name)).unwrap();
        assert!(!corpus.is_empty(), "{} has no corpus, so that libFuzzer does not begin", target.name);
        for input in corpus {
            assert_eq!(execute(target, &input, &mut Trail::default()), Ok(()), "{}", target.name);
        }
    }
}

#[test]
fn a_wrong_name_is_told() {
    assert_eq!(target("board").map(|target| target.name), Ok("board"));
    let message = target("bord").unwrap_err();
    assert!(message.starts_with("'bord' is no fuzz target: type one of wire, "), "{message}");
}

#[test]
fn every_target_holds_for_a_second() {
    let seconds = TARGETS.len().to_string();
    let status = Command::new(env!("CARGO_BIN_EXE_yonder-fuzz")).args(["smoke", "--seconds", &seconds]).status();
    assert!(status.unwrap().success(), "an input fails: it is named above");
}
