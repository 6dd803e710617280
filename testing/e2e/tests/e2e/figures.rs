//! `yonder papers` and `yonder report`: what they print and write, that it is the same each time, and that nothing is
//! left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use yonder_e2e::{Ended, Yonder};

/// How long all simulations may take, of a build that is not optimised, on CPUs that others use too.
const SIMULATIONS: Duration = Duration::from_secs(600);

fn quick(yonder: Yonder, args: &[&str]) -> Ended {
    let ended = yonder.spawn(&[args, &["--quick"]].concat()).end_within(SIMULATIONS);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended
}

/// All figures of one seed, and their pictures by file name.
struct Simulated {
    ended: Ended,
    pictures: BTreeMap<String, String>,
}

impl Simulated {
    fn with_seed(seed: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path().to_str().expect("a plain name");
        let ended = quick(Yonder::found(), &["sim", "all", "--json", "--seed", seed, "--out", out]);
        Self { ended, pictures: contents(folder.path()) }
    }

    /// With seed 7, for all tests that look at it.
    fn once() -> &'static Self {
        static ONCE: OnceLock<Simulated> = OnceLock::new();
        ONCE.get_or_init(|| Self::with_seed("7"))
    }
}

/// The files of a folder.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let text = fs::read_to_string(entry.path()).expect("a text");
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    entries.map(entry).collect()
}

fn texts<'a>(objects: &'a [Value], key: &str) -> Vec<&'a str> {
    objects.iter().filter_map(|object| object[key].as_str()).collect()
}

#[test]
fn every_parameter_says_where_it_comes_from() {
    let ended = quick(Yonder::found(), &["sim", "costs", "--json"]);
    let objects = ended.objects();
    assert!(objects.len() > 3, "{}", ended.stdout);
    for object in &objects {
        assert_eq!((&object["sim"], &object["part"]), (&"costs".into(), &"costs".into()), "{object}");
        let origin = object["origin"].as_str().unwrap_or_default();
        assert!(["paper", "derived", "measured", "calibrated"].contains(&origin), "{object}");
        assert!(
            object["value"].is_number()
                && ["of", "name", "source"].iter().all(|key| object[key].as_str().is_some_and(|word| !word.is_empty())),
            "{object}"
        );
    }
    assert!(ended.stderr.contains("costs: "), "what was simulated is told: {}", ended.stderr);
}

#[test]
fn without_a_name_all_figures_are_listed() {
    let yonder = Yonder::found();
    let listed = yonder.run(&["sim", "list", "--json"]);
    let objects = listed.objects();
    let names = texts(&objects, "sim");
    assert!(names.contains(&"costs") && listed.stderr.is_empty(), "{names:?}: {}", listed.stderr);
    let ended = yonder.run(&["sim"]);
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), names.len()), "{}", ended.stdout);
    for (line, object) in ended.stdout.lines().zip(&objects) {
        let words = [&object["sim"], &object["source"], &object["title"]].map(|word| word.as_str().expect("a word"));
        assert!(line.starts_with(words[0]) && words.iter().all(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn a_name_that_no_figure_has_is_one_line_that_says_what_to_type() {
    let yonder = Yonder::found();
    let ended = yonder.run(&["sim", "costts"]);
    assert!(ended.complaint(2).contains("type `yonder papers costs`"), "{}", ended.stderr);
    let ended = yonder.run(&["sim", "costs", "frobnicate"]);
    let complaint = ended.complaint(2);
    assert!(complaint.contains("'frobnicate'") && complaint.contains("type one of"), "{complaint}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let (first, again) = (Simulated::once(), Simulated::with_seed("7"));
    assert!(first.ended.stdout == again.ended.stdout, "two runs with one seed differ");
    assert!(first.pictures == again.pictures, "two runs with one seed draw other pictures");
    assert!(first.pictures.values().all(|svg| svg.starts_with("<svg ")));
    let other = quick(Yonder::found(), &["sim", "adios-fig2", "--json", "--seed", "8"]);
    assert!(other.stdout.lines().any(|line| !first.ended.stdout.contains(line)), "another seed draws others");
}

#[test]
fn a_table_is_as_its_objects_are() {
    let yonder = Yonder::found();
    let text = quick(yonder, &["sim", "costs"]).stdout;
    for object in quick(yonder, &["sim", "costs", "--json"]).objects() {
        let row = text.lines().find(|line| {
            let mut words = line.split_whitespace();
            words.next() == object["of"].as_str() && words.next() == object["name"].as_str()
        });
        let row = row.unwrap_or_else(|| panic!("{object} has no row in\n{text}"));
        assert!(row.contains(object["source"].as_str().expect("a source")), "{row}");
    }
}

#[test]
fn a_report_of_simulations_has_all_of_them_in_every_file() {
    let yonder = Yonder::found();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("new/report");
    let elsewhere = folder.path().join("docs/FOUND.md");
    let [out_name, elsewhere_name] = [&out, &elsewhere].map(|path| path.to_str().expect("plain"));
    let ended =
        quick(yonder, &["report", "--sets", "sim", "--seed", "7", "--out", out_name, "--results", elsewhere_name]);
    let [page, json] =
        ["report.html", "report.json"].map(|name| fs::read_to_string(out.join(name)).expect("it is written"));
    let document = fs::read_to_string(&elsewhere).expect("it is written where it was asked for");
    assert!(!out.join("RESULTS.md").exists() && ended.stderr.contains(elsewhere_name), "{}", ended.stderr);

    let report: Value = serde_json::from_str(&json).expect("it is JSON");
    let sections = report["sections"].as_array().expect("sections");
    let listed = yonder.run(&["sim", "list", "--json"]).objects();
    assert_eq!(texts(sections, "name"), texts(&listed, "sim"));
    let settings = report["settings"].as_array().expect("settings");
    assert_eq!(texts(settings, "name"), ["version", "commit", "build", "seed", "depth"]);
    for setting in settings {
        let value = setting["value"].as_str().expect("a value");
        assert!(!value.is_empty() && page.contains(value) && document.contains(value), "{setting}");
    }

    // What `yonder papers` prints with the same seed is all there.
    let simulated = Simulated::once().ended.objects();
    let rows: usize = sections
        .iter()
        .flat_map(|section| section["tables"].as_array())
        .flatten()
        .map(|table| table["rows"].as_array().map_or(0, Vec::len))
        .sum();
    let checks = simulated.iter().filter(|object| object["check"].is_string()).count();
    assert_eq!(rows, simulated.len() - checks);
    let compared: usize = sections.iter().map(|section| section["comparisons"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(compared, checks);
    for name in texts(sections, "name") {
        assert!(page.contains(&format!("id=\"{name}\"")) && document.contains(&format!("`{name}`")), "{name}");
        assert!(ended.stdout.lines().any(|line| line.starts_with(name)), "{}", ended.stdout);
    }
    for object in simulated.iter().filter(|object| object["sim"] == "costs") {
        let name = object["name"].as_str().expect("a name");
        assert!(page.contains(name) && document.contains(name), "{name}");
    }
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("href=\"http"),
        "it needs nothing else"
    );
}
