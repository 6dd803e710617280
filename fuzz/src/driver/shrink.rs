//! [`shrink`]: makes an input that fails small, as long as it fails at the same place.
//!
//! First it takes out as much as it can, in pieces that become smaller, of whole steps and then of bytes; then it makes
//! bytes 0.

use super::execution::{Fault, execute};
use crate::{Target, Trail};

/// Executions after which it is small enough.
const EXECUTIONS_MAX: u32 = 20_000;

/// Makes `input`, which fails with `fault`, small.
pub(super) fn shrink(target: &Target, input: Vec<u8>, fault: &Fault) -> Vec<u8> {
    let mut search = Search { target, place: &fault.place, best: input, left: EXECUTIONS_MAX };
    let mut before = usize::MAX;
    while search.best.len() < before && search.left > 0 {
        before = search.best.len();
        search.take_out(target.step_bytes);
        search.take_out(1);
    }
    search.clear_bytes();
    search.best
}

struct Search<'a> {
    target: &'a Target,
    place: &'a str,
    best: Vec<u8>,
    left: u32,
}

impl Search<'_> {
    /// Takes `candidate` if it fails as the input did.
    fn accept(&mut self, candidate: Vec<u8>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let outcome = execute(self.target, &candidate, &mut Trail::default());
        let fails = outcome.is_err_and(|fault| fault.place == self.place);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Takes pieces of `unit` bytes out, many at a time and then fewer.
    fn take_out(&mut self, unit: usize) {
        let mut piece = (self.best.len() / unit).next_power_of_two().max(1) * unit;
        loop {
            let mut at = 0;
            while at < self.best.len() && self.left > 0 {
                let end = (at + piece).min(self.best.len());
                let candidate = [&self.best[..at], &self.best[end..]].concat();
                if !self.accept(candidate) {
                    at += piece;
                }
            }
            if piece == unit {
                return;
            }
            piece = (piece / unit / 2).max(1) * unit;
        }
    }

    fn clear_bytes(&mut self) {
        for at in 0..self.best.len() {
            if self.best[at] != 0 {
                let mut candidate = self.best.clone();
                candidate[at] = 0;
                self.accept(candidate);
            }
        }
    }
}
