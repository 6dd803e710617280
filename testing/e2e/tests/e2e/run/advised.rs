//! `yonder run`: what a program says of its memory by `madvise`.

use yonder_e2e::{Program, Yonder, alone};

use super::{EMULATED, Run};

/// Pages of the program that are not here when it touches them.
const PAGES: u64 = 8_192;

/// Misses of the program, with so many MiB local.
fn misses(order: &str, advice: &str, local: &str) -> Option<u64> {
    let yonder = Yonder::ready_to_run()?;
    let program = Program::compiled("advised")?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let args = &[order, advice];
    let run = Run { far: EMULATED, local, memory: "256MiB", flags: &[], program: &program, args };
    let (ended, summary) = run.end(yonder, folder.path());
    assert_eq!(ended.code, Some(0), "{order} {advice}: {}\n{}", ended.stdout, ended.stderr);
    let misses = summary["major_faults"].as_u64().expect("a number");
    println!("{order} {advice}: {misses} misses");
    Some(misses)
}

#[test]
fn what_is_said_of_memory_is_heard() {
    let _turn = alone();
    let Some(in_order) = misses("order", "NORMAL", "16MiB") else { return };
    let count = |order, advice, local| misses(order, advice, local).expect("it has run once");
    assert!(count("order", "RANDOM", "16MiB") > PAGES * 9 / 10, "nothing is fetched ahead of random touches");
    assert!(in_order < PAGES / 3, "{in_order} misses of memory that is read in order");
    // A page is fetched with those behind it, though the next touch is elsewhere.
    let out_of_order = count("scattered", "NORMAL", "48MiB");
    let together = count("scattered", "WILLNEED", "48MiB");
    assert!(
        together < out_of_order / 2,
        "{together} misses of what is needed as a whole, {out_of_order} without advice"
    );
    let populated = count("scattered", "POPULATE", "48MiB");
    assert!(populated < out_of_order / 2, "{populated} misses of what was populated, {out_of_order} without advice");
    // What is used again and again stays beside what is read once.
    let unadvised = count("hot", "NORMAL", "10MiB");
    assert!(unadvised < 2_500, "{unadvised} misses beside what is read once");
    // What was used for long makes room at once for something else where it is said to be cold.
    let (unadvised, cold) = (count("phases", "NORMAL", "10MiB"), count("phases", "COLD", "10MiB"));
    assert!(cold < unadvised, "{cold} misses after cold memory, {unadvised} without advice");
}
