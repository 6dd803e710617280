//! [`Vectors`], and the files that they are in: `.bvecs` and `.fvecs`, the formats of BIGANN.
//!
//! Both are vectors one after the other: how many numbers it has, as four bytes, least first; then the numbers, of a
//! byte or of four each. Nothing else says how many vectors there are, so a file that was cut off is only seen where a
//! vector is. What is read is not believed: numbers that are not finite would end in distances that compare with
//! nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Numbers of a vector in a file, at most: more are a sign that it is no such file.
pub const DIMENSION_MAX: usize = 1 << 16;

/// Vectors of the same length.
#[derive(Clone, PartialEq, Debug)]
pub struct Vectors {
    dimension: usize,
    numbers: Vec<f32>,
}

/// How numbers stand in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As bytes: `.bvecs`.
    Bytes,
    /// As floating-point numbers of four bytes: `.fvecs`.
    Floats,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct VectorsError {
    /// Its name.
    pub file: PathBuf,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file of vectors. They are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Neither name.
    #[error("cannot tell what is in it: give a file whose name ends in .bvecs or .fvecs")]
    Format,
    /// What the operating system said.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It has no vector, or none was to be read.
    #[error("has no vectors: give a file with some, and a count of at least 1")]
    Empty,
    /// It ends before the vector does.
    #[error("ends in the middle of vector {0}: copy it again")]
    Truncated(usize),
    /// Not the length of a vector.
    #[error(
        "vector {vector} would have {dimension} numbers, and 1 to {DIMENSION_MAX} can be: give a .bvecs or .fvecs file"
    )]
    Dimension {
        /// Which vector.
        vector: usize,
        /// The length it claims.
        dimension: i32,
    },
    /// Vectors of different lengths.
    #[error("vector {vector} has {dimension} numbers, and the first has {first}: give a file of vectors of one length")]
    Mixed {
        /// Which vector.
        vector: usize,
        /// Its length.
        dimension: usize,
        /// That of the first.
        first: usize,
    },
    /// A number that is none.
    #[error("vector {0} has a number that is not finite: give a file without such")]
    NotFinite(usize),
}

impl Vectors {
    /// Vectors of `dimension` numbers each.
    ///
    /// # Panics
    /// If the numbers are not those of whole vectors.
    #[must_use]
    pub fn new(dimension: usize, numbers: Vec<f32>) -> Self {
        assert!(dimension > 0 && numbers.len().is_multiple_of(dimension), "{} by {dimension}", numbers.len());
        Self { dimension, numbers }
    }

    /// The first vectors of a `.bvecs` or `.fvecs` file, at most `count_max`.
    ///
    /// # Errors
    /// If it has none, or they are not vectors of one length as far as they are read.
    pub fn open(file: &Path, count_max: usize) -> Result<Self, VectorsError> {
        let read = || {
            let format = Format::of(file).ok_or(Problem::Format)?;
            Self::read(BufReader::with_capacity(1 << 20, File::open(file)?), format, count_max)
        };
        read().map_err(|problem| VectorsError { file: file.to_owned(), problem })
    }

    /// The first vectors of what is in such a file, at most `count_max`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn read(mut from: impl BufRead, format: Format, count_max: usize) -> Result<Self, Problem> {
        let (mut dimension, mut numbers, mut bytes) = (0, Vec::new(), Vec::new());
        for vector in 0..count_max {
            let Some(claimed) = length(&mut from, vector)? else { break };
            if vector == 0 {
                dimension = claimed;
                bytes.resize(dimension * format.bytes(), 0);
            } else if claimed != dimension {
                return Err(Problem::Mixed { vector, dimension: claimed, first: dimension });
            }
            fill(&mut from, &mut bytes, vector)?;
            format.decode(&bytes, &mut numbers);
            if !numbers[vector * dimension..].iter().all(|number| number.is_finite()) {
                return Err(Problem::NotFinite(vector));
            }
        }
        if numbers.is_empty() { Err(Problem::Empty) } else { Ok(Self { dimension, numbers }) }
    }

    /// Numbers of each.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len() / self.dimension
    }

    /// A vector.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn get(&self, at: usize) -> &[f32] {
        &self.numbers[at * self.dimension..(at + 1) * self.dimension]
    }

    /// All numbers, one vector after the other.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }

    /// So many of them, evenly spaced, for files have an order; or all.
    pub(crate) fn sample(&self, count: usize) -> Self {
        let count = count.min(self.count());
        let numbers = (0..count).flat_map(|at| self.get(at * self.count() / count)).copied().collect();
        Self { dimension: self.dimension, numbers }
    }
}

impl Format {
    /// What a file's name says.
    fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()? {
            "bvecs" => Some(Self::Bytes),
            "fvecs" => Some(Self::Floats),
            _ => None,
        }
    }

    /// Bytes of a number.
    fn bytes(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Floats => size_of::<f32>(),
        }
    }

    fn decode(self, bytes: &[u8], into: &mut Vec<f32>) {
        match self {
            Self::Bytes => into.extend(bytes.iter().map(|byte| f32::from(*byte))),
            Self::Floats => {
                let float = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                into.extend(bytes.chunks_exact(size_of::<f32>()).map(float));
            }
        }
    }
}

/// The length that stands before a vector; none at the end of the file.
fn length(from: &mut impl BufRead, vector: usize) -> Result<Option<usize>, Problem> {
    let Some(first) = Read::bytes(&mut *from).next().transpose()? else { return Ok(None) };
    let mut bytes = [first, 0, 0, 0];
    fill(from, &mut bytes[1..], vector)?;
    let dimension = i32::from_le_bytes(bytes);
    let is_one = |dimension: &usize| (1..=DIMENSION_MAX).contains(dimension);
    let length = usize::try_from(dimension).ok().filter(is_one);
    length.map(Some).ok_or(Problem::Dimension { vector, dimension })
}

/// Reads so many bytes of a vector.
fn fill(from: &mut impl BufRead, into: &mut [u8], vector: usize) -> Result<(), Problem> {
    from.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::Truncated(vector),
        _ => Problem::Unreadable(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_all_parts() {
        let vectors = Vectors::new(2, (0..20).map(|number| number as f32).collect());
        assert_eq!(vectors.sample(3), Vectors::new(2, vec![0.0, 1.0, 6.0, 7.0, 12.0, 13.0]));
        assert_eq!(vectors.sample(99), vectors);
        assert_eq!(vectors.sample(10), vectors);
    }
}
