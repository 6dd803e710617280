//! How an input becomes another: [`Mutator`].
//!
//! Half of the changes are to bytes, half to whole steps, which may also come from another input.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};

/// Numbers at which programs go wrong.
const EDGES: [u64; 9] = [0, 1, 0x7f, 0xff, 0x1000, 0xffff, 0xffff_ffff, 1 << 63, u64::MAX];
/// Most changes at a time.
const CHANGES_MAX: usize = 6;
/// Most steps that one change adds, moves or removes.
const STEPS_AT_ONCE_MAX: usize = 24;

/// Changes inputs of one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mutator {
    pub(super) step_bytes: usize,
    pub(super) bytes_max: usize,
}

impl Mutator {
    /// Changes `input` a little. `other` is another input to take from.
    pub(super) fn mutate(&self, input: &mut Vec<u8>, other: &[u8], rng: &mut SmallRng) {
        for _ in 0..rng.random_range(1..=CHANGES_MAX) {
            if input.is_empty() || rng.random_bool(0.5) {
                self.change_steps(input, other, rng);
            } else {
                change_bytes(input, rng);
            }
        }
        input.truncate(self.bytes_max);
    }

    /// An input of nothing but chance.
    pub(super) fn invent(&self, rng: &mut SmallRng) -> Vec<u8> {
        let steps = rng.random_range(1..=self.bytes_max / self.step_bytes);
        let mut input = vec![0; steps.min(64) * self.step_bytes];
        rng.fill_bytes(&mut input);
        input
    }

    fn change_steps(&self, input: &mut Vec<u8>, other: &[u8], rng: &mut SmallRng) {
        let steps = input.len().div_ceil(self.step_bytes);
        let place = rng.random_range(0..=steps);
        let count = rng.random_range(1..=STEPS_AT_ONCE_MAX).min(rng.random_range(1..=STEPS_AT_ONCE_MAX));
        let at = (place * self.step_bytes).min(input.len());
        let end = (at + count * self.step_bytes).min(input.len());
        match rng.random_range(0..5) {
            0 => drop(input.drain(at..end)),
            1 => {
                let copied = input[at..end].to_vec();
                let to = (rng.random_range(0..=steps) * self.step_bytes).min(input.len());
                input.splice(to..to, copied);
            }
            2 | 3 => {
                let from = rng.random_range(0..=other.len() / self.step_bytes) * self.step_bytes;
                let taken = &other[from.min(other.len())..(from + count * self.step_bytes).min(other.len())];
                input.splice(at..at, taken.iter().copied());
            }
            _ => {
                let mut new = vec![0; self.step_bytes];
                rng.fill_bytes(&mut new);
                input.splice(at..at, new);
            }
        }
    }
}

fn change_bytes(input: &mut [u8], rng: &mut SmallRng) {
    let at = rng.random_range(0..input.len());
    match rng.random_range(0..4) {
        0 => input[at] ^= 1 << rng.random_range(0..8),
        1 => input[at] = rng.random(),
        2 => input[at] = input[at].wrapping_add(rng.random_range(0..=32)).wrapping_sub(16),
        _ => {
            let edge = EDGES.choose(rng).copied().unwrap_or(0).to_le_bytes();
            let width = [1, 2, 4, 8].choose(rng).copied().unwrap_or(1);
            let width = width.min(input.len() - at);
            input[at..at + width].copy_from_slice(&edge[..width]);
        }
    }
}
