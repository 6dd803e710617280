//! [`Settings`] of a workload, the [`WorkloadResult`] that it leaves, and [`WorkloadError`].

use std::time::Instant;

use serde::Serialize;

use crate::frame::FrameSeconds;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of memory to work on, about: what exactly, each workload says.
    pub size: u64,
    /// Equal seeds make up equal input.
    pub seed: u64,
}

impl Settings {
    /// How many things of `bytes` the size holds, if it holds `least` of them.
    pub(crate) fn count_of(&self, bytes: u64, least: u64) -> Result<usize, WorkloadError> {
        let count = self.size / bytes;
        if count < least {
            return Err(WorkloadError::TooSmall { size: self.size, least: bytes * least });
        }
        Ok(count as usize)
    }
}

/// What one run of a workload took and came to. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadResult {
    /// The workload's name.
    pub workload: &'static str,
    /// What its input was made up from.
    pub seed: u64,
    /// The rest.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What a workload says after a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Bytes of the working set: what the measured part reads and writes.
    pub bytes: u64,
    /// Time of the work itself, in seconds.
    pub seconds: f64,
    /// Time to make up the input, in seconds.
    pub setup_seconds: f64,
    /// Checksum of the result: equal for equal seed and size.
    pub check: String,
    /// What only this workload has.
    #[serde(flatten)]
    pub details: Details,
}

/// What only one workload has to say.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// Of `quicksort`.
    Quicksort {
        /// Numbers that were sorted.
        numbers: usize,
    },
    /// Of `k-means`.
    KMeans {
        /// Points that were clustered.
        points: usize,
        /// Numbers that a point has.
        dimensions: usize,
        /// Clusters.
        clusters: usize,
        /// Times that each point was given to its nearest centre.
        iterations: usize,
        /// Mean square of a point's distance to its centre.
        mean_square: f64,
    },
    /// Of `snappy-compress` and `snappy-decompress`.
    Snappy {
        /// Chunks, each compressed alone.
        chunks: usize,
        /// Bytes of text.
        text_bytes: u64,
        /// Bytes of it when it is compressed.
        compressed_bytes: u64,
    },
    /// Of `pagerank`.
    Pagerank {
        /// Vertices of the graph.
        vertices: usize,
        /// Edges between different vertices, each counted once.
        edges: usize,
        /// Times that every rank was computed.
        iterations: usize,
        /// Sum of all ranks, near to 1.
        rank_sum: f64,
        /// The vertices of the highest ranks, highest first.
        top_vertices: Vec<u32>,
    },
    /// Of `bc`.
    Betweenness {
        /// Vertices of the graph.
        vertices: usize,
        /// Edges between different vertices, each counted once.
        edges: usize,
        /// Where shortest paths were counted from.
        sources: Vec<u32>,
        /// The vertices of the highest scores, highest first.
        top_vertices: Vec<u32>,
    },
    /// Of `frame`.
    Frame {
        /// Rows of the table.
        rides: usize,
        /// Seconds of each query.
        query_seconds: FrameSeconds,
        /// The hour of the day in which most of the longer rides began.
        busiest_hour: usize,
        /// The zones in which most rides began, and how many.
        top_zones: Vec<(u16, u64)>,
        /// The highest fare, in cents.
        dearest_cents: u32,
    },
    /// Of `linked-list`.
    LinkedList {
        /// Nodes of the list, 64 bytes each.
        nodes: usize,
        /// Times that the list was walked.
        walks: usize,
        /// Nanoseconds for each node that was visited.
        ns_per_node: f64,
    },
    /// Of `phases`.
    Phases {
        /// Records of the table, 64 bytes each.
        records: usize,
        /// Seconds of the work on all of it.
        all_seconds: f64,
        /// Seconds of the work on parts of it.
        part_seconds: f64,
    },
}

/// Why a workload came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The size holds too little to work on.
    #[error("{size} bytes are too few: type --size {least}B or more")]
    TooSmall {
        /// What was asked for, in bytes.
        size: u64,
        /// The smallest size, in bytes.
        least: u64,
    },
    /// The result is not what it must be: memory was damaged.
    #[error("the result is wrong, so memory was damaged: {0}")]
    Wrong(&'static str),
}

/// What `work` returns, and the seconds it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64())
}

/// Fails with `otherwise` unless `holds`.
pub(crate) fn require(holds: impl FnOnce() -> bool, otherwise: &'static str) -> Result<(), WorkloadError> {
    if holds() { Ok(()) } else { Err(WorkloadError::Wrong(otherwise)) }
}
