//! [`Collection`]: made-up vectors and an index of them, the same wherever they are made.

use serde::{Deserialize, Serialize};

use crate::{Clusters, DIMENSION, FaissError, Index, QUERIES, Vectors, build};

/// Bytes of a vector in a list, with its number.
const VECTOR_BYTES: u64 = (DIMENSION * size_of::<f32>() + size_of::<i64>()) as u64;
/// Where the vectors are.
const SEED: u64 = 11;

/// Vectors in BIGANN's shape, and lists that they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Collection {
    /// How many vectors.
    pub vectors: u64,
    /// How many lists.
    pub lists: usize,
}

/// There are fewer vectors than lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{vectors} vectors are fewer than {lists} lists: type more --memory, or fewer --lists")]
pub struct FewVectors {
    /// Vectors.
    pub vectors: u64,
    /// Lists.
    pub lists: usize,
}

impl Collection {
    /// As many vectors as `bytes` of lists take.
    ///
    /// # Errors
    /// If they are fewer than `lists`.
    pub fn of_bytes(bytes: u64, lists: usize) -> Result<Self, FewVectors> {
        let vectors = bytes / VECTOR_BYTES;
        if vectors < lists as u64 { Err(FewVectors { vectors, lists }) } else { Ok(Self { vectors, lists }) }
    }

    /// The vectors.
    #[must_use]
    pub fn vectors(self) -> Vectors {
        Clusters::new(SEED).vectors(0..self.vectors)
    }

    /// The index of [`Collection::vectors`], in local memory. `progress` is told the share that is done. On a thread,
    /// not on a unithread.
    ///
    /// # Errors
    /// As for [`build`].
    pub fn index(self, vectors: &Vectors, progress: &mut dyn FnMut(f64)) -> Result<Index, FaissError> {
        build(vectors, self.lists, progress)
    }

    /// So many queries: vectors like the others, which no index has.
    #[must_use]
    pub fn queries(self, count: usize) -> Vectors {
        Clusters::new(SEED).vectors(QUERIES..QUERIES + count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_vectors_as_memory_takes_and_no_fewer_than_lists() {
        assert_eq!(Collection::of_bytes(1 << 20, 16), Ok(Collection { vectors: (1 << 20) / 520, lists: 16 }));
        let few = Collection::of_bytes(5200, 11).unwrap_err();
        assert_eq!(few.to_string(), "10 vectors are fewer than 11 lists: type more --memory, or fewer --lists");
        let small = Collection { vectors: 50, lists: 2 };
        assert!(small.vectors() == small.vectors() && small.vectors().count() == 50);
        assert!(small.queries(5).count() == 5 && small.queries(5).get(0) != small.vectors().get(0));
    }
}
