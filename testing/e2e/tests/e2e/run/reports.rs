//! `yonder run --report`: which function had the faults, also of a program that is killed, of its children, and of code
//! that was loaded late.

use std::path::Path;
use std::process::{Command, Stdio};

use yonder_e2e::{Ended, Program, Yonder};

/// On a busy machine another function may have waited most, for a CPU: how often it is tried.
const TRIES: u32 = 5;

/// Runs the program of these tests with a report, and returns how it ended and the report.
fn reported(yonder: Yonder, program: &Program, ending: &str, args: &[&str]) -> (Ended, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(format!("faults.{ending}"));
    let report = path.to_str().expect("temporary folders have names that can be printed");
    let flags = ["run", "--local", "8MiB", "--memory", "256MiB", "--report", report, "--", program.path()];
    let ended = yonder.run(&[&flags[..], args].concat());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no report: {}", ended.stderr));
    (ended, text)
}

/// The rows of the page's table: name, major faults, line, process.
fn rows(page: &str) -> Vec<[String; 4]> {
    let row = |row: &str| {
        let cells = row.split("</td>").map(|cell| cell.rsplit('>').next().unwrap_or_default().replace('\u{2009}', ""));
        let cells: Vec<String> = cells.collect();
        let name = row.split_once('<').map_or(row, |(name, _)| name).to_owned();
        [name, cells[1].clone(), cells[3].clone(), cells[4].clone()]
    };
    page.split("<th scope=\"row\">").skip(1).map(row).collect()
}

/// Major faults of a function.
fn major(rows: &[[String; 4]], function: &str) -> u64 {
    let of_it = rows.iter().filter(|row| row[0].starts_with(&format!("{function}+0x")));
    of_it.map(|row| row[1].parse::<u64>().unwrap_or_else(|_| panic!("{row:?}"))).sum()
}

#[test]
fn the_function_that_waits_most_is_named_first() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("faults") else { return };
    let mut tries = 0;
    let (page, rows) = loop {
        let (ended, page) = reported(yonder, &program, "html", &["AGAIN"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let rows = rows(&page);
        tries += 1;
        if rows[0][0].starts_with("touches_much+0x") || tries == TRIES {
            break (page, rows);
        }
    };
    assert!(rows[0][0].starts_with("touches_much+0x") && rows[0][0].ends_with("(faults)"), "{:?}", rows[0]);
    let line = rows[0][2].strip_prefix("faults.c:").and_then(|line| line.parse::<u32>().ok());
    assert!(line.is_some_and(|line| (15..25).contains(&line)), "{:?}", rows[0]);
    assert!(rows[0][3].ends_with("faults, 2 processes"), "what it has executed is missing: {:?}", rows[0]);
    let (much, little) = (major(&rows, "touches_much"), major(&rows, "touches_little"));
    assert!(little > 200 && much > 3 * little, "{much} and {little} in {rows:?}");
    for word in ["Faults per second", "Threads waiting", "Major faults by address", "Emulated far memory"] {
        assert!(page.contains(word), "{word} is missing");
    }
}

#[test]
fn a_program_that_is_killed_has_a_report() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("faults") else { return };
    let mut tries = 0;
    loop {
        let (ended, svg) = reported(yonder, &program, "svg", &["KILL"]);
        assert_eq!(ended.code, None, "it was not killed: {}", ended.stderr);
        let (first, second) = (svg.find("touches_much+0x"), svg.find("touches_little+0x"));
        assert!(svg.starts_with("<svg ") && first.is_some(), "its functions have no names: {svg}");
        tries += 1;
        if second.is_none_or(|second| Some(second) > first) {
            return;
        }
        assert!(tries < TRIES, "in the wrong order");
    }
}

#[test]
fn code_that_is_loaded_late_and_unloaded_has_its_name() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("faults") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = library(folder.path());
    let (ended, page) = reported(yonder, &program, "html", &[&library]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let rows = rows(&page);
    assert!(major(&rows, "touches_from_afar") > 1000, "{rows:?}");
    assert!(rows.iter().any(|row| row[0].ends_with("(late.so)")), "{rows:?}");
}

/// A library whose function touches far memory for longer than figures take to be put up.
fn library(folder: &Path) -> String {
    let (source, library) = (folder.join("late.c"), folder.join("late.so"));
    let text = "#include <stddef.h>\n#include <stdint.h>\n#include <time.h>\n\
        uint64_t touches_from_afar(volatile uint8_t *memory, size_t pages)\n{\n\
        uint64_t sum = 0;\n\
        struct timespec began, now;\n\
        clock_gettime(CLOCK_MONOTONIC, &began);\n\
        do {\n\
        for (size_t page = 0; page < pages; page++) sum += memory[page * 4096];\n\
        clock_gettime(CLOCK_MONOTONIC, &now);\n\
        } while (now.tv_sec < began.tv_sec + 2);\n\
        return sum ? 1 : 0;\n}\n";
    std::fs::write(&source, text).expect("the folder is writable");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-O1", "-shared", "-fPIC", "-s"]).arg(&source).arg("-o").arg(&library).stdin(Stdio::null());
    let output = cc.output().expect("there was a compiler a moment ago");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library.to_str().expect("temporary folders have names that can be printed").to_owned()
}

#[test]
fn reports_that_cannot_be_written_are_refused_before_anything_runs() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("temporary folders have plain names").to_owned();
    let (picture, text, nowhere) = (path("faults.svg"), path("faults.png"), path("no/faults.html"));
    for (flags, why) in [
        (vec!["--report", text.as_str()], ".svg or .html"),
        (vec!["--report", nowhere.as_str()], "cannot be written to"),
        (vec!["--report", picture.as_str(), "--faults", "monitor"], "--faults inline"),
    ] {
        let ended = yonder.run(&[&["run"][..], &flags, &["--", "echo", "ran"]].concat());
        let complaint = ended.complaint(2);
        assert!(complaint.starts_with("yonder: ") && complaint.contains(why), "{flags:?}: {complaint}");
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    }
    assert!(!Path::new(&picture).exists());
    let ended = yonder.run(&["run", "--report", &picture, "--", "echo", "ran"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ran\n"), "{}", ended.stderr);
    assert!(std::fs::read_to_string(&picture).is_ok_and(|svg| svg.contains("too little memory")), "{}", ended.stderr);
}

#[test]
fn what_was_touched_is_written_down_and_can_be_replayed() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("advised") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("touches");
    let stem = path.to_str().expect("temporary folders have names that can be printed");
    let flags = ["run", "--local", "4MiB", "--memory", "256MiB", "--trace", stem, "--"];
    let traced = [&flags[..], &[program.path(), "order", "NORMAL"]].concat();
    let ended = yonder.run(&traced);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let trace = format!("{stem}-1");
    assert!(ended.stderr.contains(&format!("trace: {trace}, ")), "{}", ended.stderr);
    // Nothing is written over.
    let again = yonder.run(&traced);
    assert!(again.complaint(2).contains("remove it, or name another file"), "{}", again.stderr);
    let replayed = yonder.run(&["bench", "victims", &trace, "--local", "50%", "--json"]).objects();
    let of = |policy: &str| {
        let found = replayed.iter().find(|result| result["policy"] == policy).unwrap_or_else(|| panic!("{replayed:?}"));
        found["misses"].as_u64().expect("a number")
    };
    let [optimum, lru, yonder] = ["optimum", "lru", "yonder"].map(of);
    assert!(0 < lru && optimum <= lru && optimum <= yonder, "{optimum}, {lru} and {yonder} misses");
}
