//! `yonder run`: threads that wait for pages at one time.

use yonder_e2e::{Program, Yonder, alone};

use super::Run;

/// So far that a thread does nothing but wait. On a machine that is busy with something else it also waits for its
/// turn, so there the link is slower.
const LINKS: [&str; 4] = ["5ms", "5ms", "20ms", "80ms"];
/// Threads that touch pages at a time, the first for comparison.
const THREADS: [u64; 4] = [1, 8, 32, 128];

/// Touches a second, by the number of threads, as the program says.
fn rates(stdout: &str) -> Vec<u64> {
    let rate = |line: &str| line.split_once(" threads: ")?.1.strip_suffix(" touches/s")?.parse().ok();
    stdout.lines().filter_map(rate).collect()
}

#[test]
fn twice_the_threads_touch_twice_the_pages() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("touching") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let counts = THREADS.map(|count| count.to_string());
    let args = counts.each_ref().map(String::as_str);
    let _turn = alone();
    for latency in LINKS {
        let far = &format!("emu://?latency={latency}&gbps=100");
        let run = Run { far, local: "16MiB", memory: "256MiB", flags: &[], program: &program, args: &args };
        let (ended, summary) = run.end(yonder, folder.path());
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
        let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
        assert!(number("peak_local_bytes") <= number("local_bytes"), "{summary}");
        let rates = rates(&ended.stdout);
        println!("{THREADS:?} threads touch {rates:?} pages a second, each after {latency}");
        assert_eq!(rates.len(), THREADS.len(), "{}", ended.stdout);
        if THREADS.iter().zip(&rates).all(|(threads, rate)| 10 * rate >= 8 * threads * rates[0]) {
            return;
        }
    }
    panic!("the rate does not grow with the threads within 20 %");
}
