//! [`Shell`]: what the node does of itself: pages are made ready, time passes, ranges move away.

use yonder_board::{Moving, Pid};

use super::hostile::Hostile;
use super::node::{Node, PAGE, REGION_PAGES};
use crate::script::Step;

/// Longest time that passes at once, in nanoseconds: longer than a transfer may be silent.
const NANOS_MAX: u64 = 100_000_000_000;

/// The node's own part.
#[derive(Debug, Default)]
pub(super) struct Shell {
    /// A range of the hostile client's that is on its way to another node.
    moving: Option<Moving>,
}

impl Shell {
    /// Does one thing, and says which and what came of it.
    pub(super) fn act(&mut self, node: &mut Node, hostile: &Hostile, step: &mut Step<'_>) -> [u64; 3] {
        let what = step.below(6);
        let seen = match what {
            0 | 1 => {
                node.refill(step.below(8) as usize);
                0
            }
            2 => {
                node.pass(step.below(NANOS_MAX));
                let now = node.now();
                node.slow.expire(now);
                u64::from(node.slow.next_expiry().is_some())
            }
            3 => self.begin_or_end(node, hostile, step),
            4 => self.drop_range(node, hostile, step),
            _ => {
                node.board.cool();
                let spaces = node.slow.spaces();
                let regions: usize = spaces.iter().map(|pid| node.slow.regions(*pid).len()).sum();
                let resident: u64 = spaces.iter().map(|pid| node.slow.resident_bytes(*pid, 0)).sum();
                assert!(resident <= node.slow.status().memory_bytes);
                regions as u64
            }
        };
        [3, what, seen]
    }

    /// Ends what is under way.
    pub(super) fn finish(&mut self, node: &mut Node) {
        if let Some(moving) = self.moving.take() {
            node.slow.abandon_move(moving);
        }
    }

    fn begin_or_end(&mut self, node: &mut Node, hostile: &Hostile, step: &mut Step<'_>) -> u64 {
        if let Some(moving) = self.moving.take() {
            let finishes = step.once_in(2);
            if finishes {
                node.slow.finish_move(moving)
            } else {
                node.slow.abandon_move(moving)
            }
            return u64::from(finishes);
        }
        let (pid, from, to) = range(hostile, step);
        match node.slow_path(|slow, shell| slow.begin_move(pid, from, to, shell.upkeep)) {
            Ok(moving) => {
                assert!(moving.memory().len() as u64 <= (to - from) / PAGE);
                self.moving = Some(moving);
                2
            }
            Err(code) => 8 + code as u64,
        }
    }

    fn drop_range(&mut self, node: &mut Node, hostile: &Hostile, step: &mut Step<'_>) -> u64 {
        let (pid, from, to) = range(hostile, step);
        node.slow.drop_range(pid, step.below(6), from, to).map_or_else(|code| code as u64, |()| 0)
    }
}

/// A range of the hostile client's address space, or of that which a controller has named.
fn range(hostile: &Hostile, step: &mut Step<'_>) -> (Pid, u64, u64) {
    let number = if step.once_in(2) { hostile.own_pid() } else { super::hostile::NAMED };
    let pid = Pid::new(number).expect("an address space has a number");
    let from = step.below(6) * PAGE + u64::from(step.once_in(16));
    (pid, from, from + (1 + step.below(2 * REGION_PAGES)) * PAGE)
}
