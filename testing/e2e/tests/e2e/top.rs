//! `yonder top` on a terminal, attached to a server under load.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_e2e::{Client, Content, Left, Process, Yonder};

/// 20 MiB of items, five times the local memory.
const CONTENT: Content = Content { name: "top", keys: 20_000, value_bytes: 1024 };

fn serve(yonder: Yonder) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB", "--metrics", "127.0.0.1:0"];
    yonder.serve(&flags)
}

/// Reads keys until told to stop, so that there is something to see.
fn read_on(server: SocketAddr, stop: &AtomicBool) {
    let mut client = Client::connect(server);
    for first in (0..CONTENT.keys).step_by(100).cycle() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        client.verify(&CONTENT, first..first + 100, 1);
    }
}

/// Runs `look` while a client reads.
fn under_load(server: SocketAddr, look: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_on(server, &stop));
        // Told also when looking fails, so that the failure is seen.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        stop.store(true, Ordering::Release);
        reader.join().expect("the server answers");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The words of the screen's line that begins with these words, without frames.
fn row<'a>(screen: &'a str, begins: &str) -> Option<Vec<&'a str>> {
    let cells = screen.lines().flat_map(|line| line.split('│'));
    cells.map(str::trim).find_map(|cell| cell.strip_prefix(begins)).map(|rest| rest.split_whitespace().collect())
}

/// Whether a row has a rate that is not zero.
fn has_rate(screen: &str, name: &str) -> bool {
    row(screen, name).is_some_and(|words| words[0].parse::<f64>().is_ok_and(|rate| rate > 0.0))
}

/// Whether a row has four percentiles, in order of size.
fn has_percentiles(screen: &str, of: &str, stage: &str) -> bool {
    let in_us = |pair: &[&str]| {
        let scale = match *pair.get(1)? {
            "ns" => 1e-3,
            "us" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return None,
        };
        Some(pair[0].parse::<f64>().ok()? * scale)
    };
    let rows = screen.lines().flat_map(|line| line.split('│')).map(|cell| cell.split_whitespace().collect::<Vec<_>>());
    let times = rows.filter_map(|words| Some(words.strip_prefix(&[of, stage])?.to_vec())).next().unwrap_or_default();
    let times: Option<Vec<f64>> = times.chunks(2).map(in_us).collect();
    times.is_some_and(|times| times.len() == 4 && times.is_sorted())
}

fn assert_restored(left: &Left) {
    assert!(left.settings_restored && !left.alternate_screen && !left.cursor_hidden, "{left:?}");
}

#[test]
fn rates_and_percentiles_are_shown_and_q_restores_the_terminal() {
    let Some(yonder) = Yonder::ready() else { return };
    let mut server = serve(yonder);
    let metrics = server.metrics_address().to_string();
    Client::connect(server.address()).fill(&CONTENT, 0..CONTENT.keys, 1);
    for quit in [&b"q"[..], b"\x03"] {
        under_load(server.address(), || {
            let mut top = yonder.on_a_terminal(&["top", "--attach", &metrics, "--interval", "200ms"]);
            top.wait_until("the address", |screen| screen.contains(&metrics) && screen.contains("q quits"));
            top.wait_until("rates", |screen| has_rate(screen, "requests") && has_rate(screen, "major faults"));
            top.wait_until("times of faults and requests", |screen| {
                has_percentiles(screen, "fault", "fetch")
                    && has_percentiles(screen, "fault", "total")
                    && has_percentiles(screen, "request", "total")
            });
            top.wait_until("local memory", |screen| {
                screen.contains("local memory: limit 4 MiB") && screen.contains('█')
            });
            assert!(top.is_taken_over());
            top.press(quit);
            let left = top.end();
            assert_eq!((left.code, left.text.as_str()), (Some(0), ""));
            assert_restored(&left);
        });
    }
}

#[test]
fn a_server_that_goes_away_is_reported_in_the_view() {
    let Some(yonder) = Yonder::ready() else { return };
    let mut server = serve(yonder);
    let metrics = server.metrics_address().to_string();
    let mut top = yonder.on_a_terminal(&["top", "--attach", &metrics, "--interval", "100ms"]);
    top.wait_until("the view", |screen| screen.contains("q quits"));
    server.kill();
    top.wait_until("what is wrong", |screen| screen.contains(&format!("nothing serves metrics at {metrics}")));
    top.press(b"q");
    let left = top.end();
    assert_eq!(left.code, Some(0));
    assert_restored(&left);
}

#[test]
fn an_address_that_does_not_answer_is_one_line() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let silent_address = silent.local_addr().expect("it is bound").to_string();
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        listener.local_addr().expect("it is bound").to_string()
    };
    for (address, says) in [(&nobody, "nothing serves metrics at"), (&silent_address, "no answer from")] {
        let left = Yonder::found().on_a_terminal(&["top", "--attach", address]).end();
        // The line is longer than the screen is wide.
        let line = left.text.replace('\n', "");
        assert_eq!(left.code, Some(1), "{line}");
        assert!(line.starts_with(&format!("yonder: {says} {address}")), "{line}");
        assert_restored(&left);
        let complaint = Yonder::found().run(&["top", "--attach", address, "--once"]);
        assert_eq!(complaint.complaint(1), line);
    }
}
