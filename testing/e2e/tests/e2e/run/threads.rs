//! `yonder run`: threads that wait for pages at one time, and for far memory that is being made.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
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

/// How long a node that is slow lets each connection wait. A program makes more than ten when its memory becomes far,
/// so that takes many times as long as the program does otherwise.
const SLOW: Duration = Duration::from_millis(20);
/// So that nobody waits for it.
const VERY_SLOW: Duration = Duration::from_millis(300);

/// Lets each connection to `node` wait for so long first; the address to use in its place.
fn slowed(node: SocketAddr, wait: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let begin = move |client: TcpStream| -> io::Result<()> {
        thread::sleep(wait); // tidy: sleep: it is what such a node does, and nothing is waited for
        let node = TcpStream::connect(node)?;
        [&client, &node].into_iter().try_for_each(|stream| stream.set_nodelay(true))?;
        let (requests, responses) = ((client.try_clone()?, node.try_clone()?), (node, client));
        thread::spawn(move || pass(requests.0, requests.1));
        pass(responses.0, responses.1);
        Ok(())
    };
    thread::spawn(move || listener.incoming().flatten().for_each(|client| drop(thread::spawn(move || begin(client)))));
    address
}

/// Runs a part of the program over a node that is so slow, so that its parts are asked for while far memory is made.
/// What the summary says, and what the program has on standard error.
fn while_far_memory_is_made(part: &str, wait: Duration) -> Option<(Value, String)> {
    let yonder = Yonder::ready_to_run()?;
    let program = Program::compiled("starting")?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = yonder.serve(&["node", "--listen", "tcp://127.0.0.1:0", "--memory", "512MiB"]);
    let url = node.url("tcp");
    let address = url.trim_start_matches("tcp://").parse().expect("a node says where it listens");
    let far = &url.replace(&format!("{address}"), &format!("{}", slowed(address, wait)));
    let run = Run { far, local: "16MiB", memory: "256MiB", flags: &[], program: &program, args: &[part] };
    let (ended, summary) = run.end(yonder, folder.path());
    assert_eq!((ended.code, &ended.stdout), (Some(0), &program.run(&[part]).stdout), "{}", ended.stderr);
    assert_eq!(node.stop().code, Some(0));
    Some((summary, ended.stderr))
}

/// It was as local as could be, and nothing said so, where one of its threads lost its CPU while it made far memory.
#[test]
fn what_is_asked_for_while_far_memory_is_made_is_far_too() {
    const ASKED: u64 = 64 << 20;
    /// What is asked for before any is made, and by each thread in one go.
    const BEFORE: u64 = 5 << 20;
    let Some((summary, stderr)) = while_far_memory_is_made("both", SLOW) else { return };
    let far_bytes = summary["peak_far_bytes"].as_u64().expect("the summary has the most that was far");
    assert!(far_bytes >= ASKED - BEFORE, "{far_bytes} bytes of {ASKED} were far\n{stderr}");
}

#[test]
fn who_waits_for_far_memory_is_neither_cancelled_nor_waits_for_who_is_stopped() {
    for part in ["cancelled", "cancelled-maker", "stopped"] {
        let mut was_seen = part == "cancelled-maker";
        // Where it was made while the other thread had no CPU, nothing was tried.
        for _ in 0..10 {
            let Some((_, stderr)) = while_far_memory_is_made(part, SLOW) else { return };
            assert!(!stderr.contains("takes too long"), "{stderr}");
            was_seen |= stderr.contains("asked while far memory was made");
            if was_seen {
                break;
            }
        }
        assert!(was_seen, "{part}: nothing was asked for while far memory was made");
    }
}

/// It says that what it has asked for stays local, which it may not be cancelled in either.
#[test]
fn who_has_waited_for_far_memory_in_vain_is_not_cancelled() {
    let Some((_, stderr)) = while_far_memory_is_made("cancelled", VERY_SLOW) else { return };
    assert!(stderr.contains("stays local: that takes too long"), "{stderr}");
}
