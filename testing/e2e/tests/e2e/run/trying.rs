//! `yonder try`, and `yonder` alone: what a newcomer types first.

use yonder_e2e::{Yonder, busy};

/// A program that sorts twice as much as the smallest local memory that is tried.
const SORT: [&str; 5] = ["workload", "quicksort", "--size", "64MiB", "--check"];

#[test]
fn a_program_is_tried_with_less_memory_and_what_to_type_is_said() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _turn = busy();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = folder.path().join("sort.svg");
    let flags = ["try", "--local", "100%,50%", "--picture", picture.to_str().expect("text"), "--json", "--"];
    let ended = yonder.run(&[&flags[..], &[yonder.path()], &SORT].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = ended.object();
    let variants = result["variants"].as_array().expect("variants");
    let of = |leg: &str| variants.iter().filter(|variant| variant["leg"] == leg).collect::<Vec<_>>();
    let (alone, under) = (of("native")[0], of("yonder"));
    let peak = alone["native_peak_bytes"].as_u64().expect("bytes");
    assert!(peak > 64 << 20, "{peak}");
    assert_eq!(under.len(), 2, "{result}");
    for (variant, local) in under.iter().zip([peak, peak / 2]) {
        assert_eq!(variant["local_bytes"].as_u64(), Some(local), "{variant}");
        assert_eq!((variant["is_right"].as_bool(), variant["errors"].as_u64()), (Some(true), Some(0)), "{variant}");
    }
    assert_eq!(of("zram").is_empty(), result["no_swap"].is_string(), "{result}");
    assert!(ended.stderr.contains("type `yonder run --far"), "{}", ended.stderr);
    let svg = std::fs::read_to_string(&picture).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.contains("yonder with less local memory"), "{svg:.200}");
}

#[test]
fn what_cannot_be_tried_is_one_line() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let _turn = busy();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = folder.path().join("none.svg");
    let picture = picture.to_str().expect("text");
    for (words, says) in [
        (&["--picture", "try.png", "--", "sort"][..], "ends with .svg"),
        (&["--picture", picture, "--", "quake"], "'quake' is not installed"),
        (&["--picture", picture, "--", "sh", "-c", "echo no level >&2; exit 3"], "'sh' fails alone: exit status: 3"),
        (&["--picture", picture, "--far", "http://x", "--", "sort"], "http://x"),
    ] {
        let ended = yonder.run(&[&["try"], words].concat());
        let complaint = ended.complaint(1);
        assert!(complaint.contains(says), "{words:?}: {complaint}");
    }
}

#[test]
fn without_a_command_it_says_what_to_do_next() {
    let yonder = Yonder::found();
    let ended = yonder.run(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for words in ["This machine: ", "Next:\n", "yonder --help"] {
        assert!(ended.stdout.contains(words), "{}", ended.stdout);
    }
}
