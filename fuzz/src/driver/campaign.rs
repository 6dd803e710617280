//! [`Campaign`]: the search for an input that fails.
//!
//! It begins with the corpus, and then changes inputs of it, over and over. An input that leaves a mark that no other
//! has left joins them. Invariant: with the same seed and corpus, the n-th input is the same.

use std::collections::BTreeSet;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::execution::{Fault, execute};
use super::mutate::Mutator;
use super::shrink::shrink;
use super::watch::Watch;
use crate::trail::MARKS;
use crate::{Target, Trail};

/// Inputs that are kept.
const KEPT_MAX: usize = 4096;
/// One input in so many is made from nothing.
const INVENTED_ONE_IN: u32 = 16;

/// When a search ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// At this time.
    pub until: Instant,
    /// After so many executions.
    pub executions_max: u64,
}

/// An input that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// It, made small.
    pub input: Vec<u8>,
    /// How it fails.
    pub fault: Fault,
}

/// A search, and what it knows.
#[derive(Debug)]
pub struct Campaign<'a> {
    target: &'a Target,
    watch: &'a Watch,
    rng: SmallRng,
    seen: Vec<bool>,
    kept: Vec<Vec<u8>>,
    executions: u64,
    trail: Trail,
}

impl<'a> Campaign<'a> {
    /// A search that knows nothing.
    #[must_use]
    pub fn new(target: &'a Target, seed: u64, watch: &'a Watch) -> Self {
        let (seen, kept) = (vec![false; MARKS], Vec::new());
        Self { target, watch, rng: SmallRng::seed_from_u64(seed), seen, kept, executions: 0, trail: Trail::default() }
    }

    /// Runs every input of the corpus, and then others until a limit is reached.
    ///
    /// # Errors
    /// The first input that fails.
    pub fn run(&mut self, corpus: &[Vec<u8>], limits: &Limits) -> Result<(), Found> {
        for input in corpus {
            self.try_input(input.clone())?;
        }
        while self.executions < limits.executions_max && Instant::now() < limits.until {
            let input = self.next_input();
            self.try_input(input)?;
        }
        Ok(())
    }

    /// Inputs that were run.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.executions
    }

    /// How many inputs reached something new when they were run.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Few inputs that reach much: each time the one that reaches most of what those before it do not.
    #[must_use]
    pub fn best(&self, count: usize) -> Vec<&[u8]> {
        let mut rest: Vec<(&[u8], BTreeSet<u16>)> =
            self.kept.iter().map(|input| (&input[..], self.marks_of(input))).collect();
        let mut best = Vec::new();
        while best.len() < count
            && let Some(index) = (0..rest.len()).max_by_key(|index| rest[*index].1.len())
        {
            let (input, marks) = rest.swap_remove(index);
            if marks.is_empty() {
                break;
            }
            best.push(input);
            rest.iter_mut().for_each(|(_, others)| others.retain(|mark| !marks.contains(mark)));
        }
        best
    }

    fn marks_of(&self, input: &[u8]) -> BTreeSet<u16> {
        let mut trail = Trail::default();
        let passed = execute(self.target, input, &mut trail).is_ok();
        trail.marks().iter().copied().filter(|_| passed).collect()
    }

    /// Different things that were reached.
    #[must_use]
    pub fn reached(&self) -> usize {
        self.seen.iter().filter(|seen| **seen).count()
    }

    fn next_input(&mut self) -> Vec<u8> {
        let mutator = Mutator { step_bytes: self.target.step_bytes, bytes_max: self.target.bytes_max };
        if self.kept.is_empty() || self.rng.random_ratio(1, INVENTED_ONE_IN) {
            return mutator.invent(&mut self.rng);
        }
        let [input, other] = [0; 2].map(|_| self.rng.random_range(0..self.kept.len()));
        let mut input = self.kept[input].clone();
        mutator.mutate(&mut input, &self.kept[other], &mut self.rng);
        input
    }

    fn try_input(&mut self, input: Vec<u8>) -> Result<(), Found> {
        self.executions += 1;
        self.watch.begin(&input);
        let outcome = execute(self.target, &input, &mut self.trail);
        self.watch.end();
        if let Err(fault) = outcome {
            let input = shrink(self.target, input, &fault);
            // What is reported is how the small one fails: its numbers are other ones.
            let fault = execute(self.target, &input, &mut self.trail).err().unwrap_or(fault);
            return Err(Found { input, fault });
        }
        let mut is_new = false;
        for mark in self.trail.marks() {
            is_new |= !std::mem::replace(&mut self.seen[usize::from(*mark)], true);
        }
        if is_new && self.kept.len() < KEPT_MAX {
            self.kept.push(input);
        }
        Ok(())
    }
}
