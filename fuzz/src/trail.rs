//! [`Trail`]: what one input has reached, as far as its target says so.

use xxhash_rust::xxh3::xxh3_64;

/// How many different things can be told apart.
pub(crate) const MARKS: usize = 1 << 16;

/// The marks that an input has left. Each stands for something noted, or for two things noted one after the other.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    marks: Vec<u16>,
    last: [u64; 2],
}

impl Trail {
    /// Notes that something was reached: what was done, on what, and what came of it. Of two things one after the other
    /// only the first two count, or there would be too many.
    pub fn note(&mut self, what: [u64; 3]) {
        let [done, on, _] = what;
        self.marks.push(mark(&what));
        self.marks.push(mark(&[self.last[0], self.last[1], done, on]));
        self.last = [done, on];
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
        self.last = [0; 2];
    }

    pub(crate) fn marks(&self) -> &[u16] {
        &self.marks
    }
}

fn mark(numbers: &[u64]) -> u16 {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    xxh3_64(&bytes) as u16
}
