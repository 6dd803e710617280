//! [`Step`]: decisions of a target, read from the bytes of its input.
//!
//! A target cuts its input into steps of one size, so that a byte that is changed, or a step that is removed, changes
//! only what it says. What is read behind the end of a step is 0.

use arbitrary::Unstructured;

/// Numbers at which programs go wrong.
const EDGES: [u64; 14] =
    [0, 1, 7, 8, 255, 4095, 4096, 4097, (1 << 16) - 1, 1 << 16, (1 << 32) - 1, 1 << 32, 1 << 63, u64::MAX];

/// The bytes of one step.
#[derive(Debug)]
pub struct Step<'a>(Unstructured<'a>);

impl<'a> Step<'a> {
    /// The steps of `data`, each of `bytes`; the last may be shorter.
    pub fn all(data: &'a [u8], bytes: usize) -> impl Iterator<Item = Self> {
        data.chunks(bytes).map(|chunk| Self(Unstructured::new(chunk)))
    }

    /// A step of its own.
    #[must_use]
    pub fn of(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// A number less than `limit`, or 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.int_in_range(0..=limit.saturating_sub(1)).unwrap_or(0)
    }

    /// An index of something that has so many elements.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Whether something happens that happens once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == times - 1
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// Any number; an edge more often than chance would have it.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(256),
            1 => self.pick(&EDGES),
            2 => self.below(1 << 17),
            _ => self.0.arbitrary().unwrap_or(0),
        }
    }

    /// The bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let left = self.0.len();
        self.0.bytes(left).unwrap_or(&[])
    }
}
