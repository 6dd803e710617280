//! [`Watch`]: what the server counts, looked at again and again; [`Rebuild`]: what that says of pages that got new
//! places after a node was gone, and of the commands meanwhile.
//!
//! It asks for the server's metrics, as `yonder top` does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use yonder_units::PAGE_BYTES;

use crate::pause;

/// How often it is looked: often enough for a rebuild of a quarter of a second, and rarely enough to cost nothing.
const LOOK_EACH: Duration = Duration::from_millis(20);
/// How long the server is left alone before what it answers counts: the load makes its connections first.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What the server had counted at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    at: Instant,
    commands: u64,
    mended_pages: u64,
    pages_below: u64,
}

/// A thread that looks, until it is told to end or dropped.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    looks: Option<JoinHandle<Vec<Look>>>,
}

/// How pages came to be at as many nodes as was asked for again.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rebuild {
    /// Bytes of the pages that got a new place. Of a page in shares, one share went there.
    pub rebuild_bytes: u64,
    /// From the first of them until no page was at too few nodes.
    pub rebuild_s: f64,
    /// Both in one.
    pub rebuild_bytes_per_s: f64,
    /// Commands that the server answered in a second before the fault, but for the first second.
    pub before_per_s: f64,
    /// The same, during the rebuild.
    pub during_per_s: f64,
    /// What part of the commands it did not answer during the rebuild. In an open loop that is nothing, unless the
    /// server falls behind: the load does not ask for more. None if some answers of the turn were errors: those are
    /// counted as others are.
    pub foreground_cost: Option<f64>,
}

impl Watch {
    /// Looks at the server with these metrics from now on.
    pub(crate) fn start(metrics: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let looks = thread::spawn(move || {
            let mut looks = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                // A server that does not answer for once is missed by the load first.
                looks.extend(look(metrics));
                pause(LOOK_EACH);
            }
            looks
        });
        Self { is_over, looks: Some(looks) }
    }

    /// All that it has seen.
    pub(crate) fn end(mut self) -> Vec<Look> {
        self.is_over.store(true, Ordering::Relaxed);
        let looks = self.looks.take().expect("it ends once");
        looks.join().expect("looking does not panic")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Rebuild {
    /// Of what was seen from before the fault until after all was protected again; none if no page got a new place.
    pub(crate) fn of(looks: &[Look], failed_at: Instant, protected_at: Instant) -> Option<Self> {
        let before = &looks[..looks.partition_point(|look| look.at < failed_at)];
        let after = &looks[before.len()..];
        let settled_at = before.first()?.at + SETTLES_WITHIN;
        let (quiet, failed) = (before.iter().find(|look| look.at >= settled_at)?, before.last()?);
        let first = after.iter().position(|look| look.mended_pages > failed.mended_pages)?;
        let begins = first.checked_sub(1).map_or(failed, |begins| &after[begins]);
        let is_below = |look: &Look| look.at <= protected_at && look.pages_below > 0;
        let over = after.iter().rposition(is_below).map_or(first, |last| (last + 1).max(first));
        let ends = after.get(over).or(after.last())?;
        let rebuild_s = (ends.at - begins.at).as_secs_f64();
        let rebuild_bytes = (ends.mended_pages - begins.mended_pages) * PAGE_BYTES as u64;
        let before_per_s = commands_per_s(quiet, failed).filter(|before| *before > 0.0)?;
        let during_per_s = commands_per_s(begins, ends)?;
        Some(Self {
            rebuild_bytes,
            rebuild_s,
            rebuild_bytes_per_s: rebuild_bytes as f64 / rebuild_s,
            before_per_s,
            during_per_s,
            foreground_cost: Some(1.0 - during_per_s / before_per_s),
        })
    }
}

/// Bytes of the pages that got a new place after a fault.
pub(crate) fn mended_bytes(looks: &[Look], failed_at: Instant) -> Option<u64> {
    let failed = looks[..looks.partition_point(|look| look.at < failed_at)].last()?;
    Some((looks.last()?.mended_pages - failed.mended_pages) * PAGE_BYTES as u64)
}

fn commands_per_s(from: &Look, to: &Look) -> Option<f64> {
    let seconds = to.at.duration_since(from.at).as_secs_f64();
    (seconds > 0.0).then(|| (to.commands - from.commands) as f64 / seconds)
}

/// Asks a server what it has counted, if it answers.
fn look(metrics: SocketAddr) -> Option<Look> {
    let mut stream = TcpStream::connect_timeout(&metrics, ANSWER_MAX).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    read(&text, Instant::now())
}

/// Reads an answer.
fn read(text: &str, at: Instant) -> Option<Look> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    Some(Look {
        at,
        commands: value("yonder_requests_total")?,
        mended_pages: value("yonder_mended_pages_total")?,
        pages_below: value("yonder_pages_below_protection")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a second apart: commands, mended pages and pages below.
    fn looks(start: Instant, counted: &[(u64, u64, u64)]) -> Vec<Look> {
        let look = |(second, &(commands, mended_pages, pages_below))| {
            let at = start + Duration::from_secs(second);
            Look { at, commands, mended_pages, pages_below }
        };
        (0..).zip(counted).map(look).collect()
    }

    #[test]
    fn a_rebuild_lasts_from_its_first_page_until_no_page_is_below() {
        let start = Instant::now();
        let second = |second| start + Duration::from_secs(second);
        let all = [
            // The load makes its connections.
            (90, 7, 0),
            (100, 7, 0),
            (200, 7, 0),
            // The node is gone, and then known to be.
            (300, 7, 0),
            (400, 7, 8),
            (480, 10, 5),
            (560, 15, 0),
            (640, 15, 1),
            (720, 16, 0),
            (820, 16, 0),
            // It is back, and what it lacks comes to it.
            (900, 16, 9),
        ];
        let rebuild = Rebuild::of(&looks(start, &all), second(2) + Duration::from_millis(1), second(9)).unwrap();
        assert_eq!((rebuild.rebuild_bytes, rebuild.rebuild_s), (9 * PAGE_BYTES as u64, 4.0));
        assert_eq!((rebuild.before_per_s, rebuild.during_per_s), (100.0, 80.0));
        assert!(rebuild.foreground_cost.is_some_and(|cost| (cost - 0.2).abs() < 1e-9));
        // It is over with the look that finds the first page.
        let rebuild = Rebuild::of(&looks(start, &all[4..9]), second(3), second(9)).unwrap();
        assert_eq!((rebuild.rebuild_bytes, rebuild.rebuild_s), (PAGE_BYTES as u64, 1.0));
        assert_eq!(Rebuild::of(&looks(start, &all[..4]), second(2), second(9)), None, "nothing was rebuilt");
        assert_eq!(Rebuild::of(&[], start, start), None);
        assert_eq!(mended_bytes(&looks(start, &all), second(5)), Some(9 * PAGE_BYTES as u64));
        assert_eq!(mended_bytes(&looks(start, &all[..4]), second(2)), Some(0));
        assert_eq!(mended_bytes(&[], start), None);
    }

    #[test]
    fn metrics_are_read_by_their_whole_names() {
        let text = "HTTP/1.0 200 OK\r\n\r\n# HELP yonder_requests_total Requests over.\nyonder_requests_total 5\n\
                    yonder_mended_pages_total_of_others 1\nyonder_mended_pages_total 6\n\
                    yonder_pages_below_protection 7\n";
        let at = Instant::now();
        assert_eq!(read(text, at), Some(Look { at, commands: 5, mended_pages: 6, pages_below: 7 }));
        assert_eq!(read("yonder_requests_total 5\n", at), None);
    }
}
