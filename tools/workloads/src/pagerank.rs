//! `pagerank` (DiLOS, figure 9): how likely a walk over random edges is at each vertex, on the largest Kronecker graph
//! that `size` holds.
//!
//! As in the GAP suite, a vertex pulls from its neighbours, so that only the ranks' own reads are random. What a vertex
//! without neighbours has goes to all, so that the ranks' sum stays 1.

use crate::checksum::Checksum;
use crate::graph::{Graph, top_vertices};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Times that every rank is computed.
const ITERATIONS: usize = 10;
/// How likely the walk goes on along an edge rather than from anywhere.
const DAMPING: f64 = 0.85;
/// How far from 1 the sum may be, by rounding.
const SUM_ERROR_MAX: f64 = 1e-6;
/// Vertices that are named.
const TOP: usize = 5;

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    // The ranks and what each vertex gives away.
    let vertex_bytes = 2 * size_of::<f64>() as u64;
    let (graph, setup_seconds) = timed(|| Graph::kronecker_of_size(settings, vertex_bytes));
    let graph = graph?;
    let (ranks, seconds) = timed(|| rank(&graph, ITERATIONS));
    let rank_sum = ranks.iter().sum::<f64>();
    require(|| (rank_sum - 1.0).abs() < SUM_ERROR_MAX, "the sum of the ranks is not 1")?;
    Ok(Outcome {
        bytes: graph.bytes() + vertex_bytes * graph.vertices() as u64,
        seconds,
        setup_seconds,
        check: Checksum::of_floats(&ranks).text(),
        details: Details::Pagerank {
            vertices: graph.vertices(),
            edges: graph.edges(),
            iterations: ITERATIONS,
            rank_sum,
            top_vertices: top_vertices(&ranks, TOP),
        },
    })
}

fn rank(graph: &Graph, iterations: usize) -> Vec<f64> {
    let vertices = graph.vertices() as f64;
    let mut ranks = vec![1.0 / vertices; graph.vertices()];
    let mut gifts = vec![0.0; graph.vertices()];
    for _ in 0..iterations {
        let mut stuck = 0.0;
        for (vertex, (rank, gift)) in ranks.iter().zip(&mut gifts).enumerate() {
            match graph.neighbours(vertex).len() {
                0 => stuck += rank,
                degree => *gift = rank / degree as f64,
            }
        }
        let base = (1.0 - DAMPING + DAMPING * stuck) / vertices;
        for (vertex, rank) in ranks.iter_mut().enumerate() {
            let pulled: f64 = graph.neighbours(vertex).iter().map(|from| gifts[*from as usize]).sum();
            *rank = base + DAMPING * pulled;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by its definition: a vector times a dense matrix of probabilities.
    fn dense(graph: &Graph, iterations: usize) -> Vec<f64> {
        let n = graph.vertices();
        let mut matrix = vec![vec![(1.0 - DAMPING) / n as f64; n]; n];
        for (from, row) in matrix.iter_mut().enumerate() {
            let others = graph.neighbours(from);
            for (to, probability) in row.iter_mut().enumerate() {
                let along = if others.is_empty() {
                    1.0 / n as f64
                } else {
                    f64::from(u8::from(others.contains(&(to as u32)))) / others.len() as f64
                };
                *probability += DAMPING * along;
            }
        }
        let mut ranks = vec![1.0 / n as f64; n];
        for _ in 0..iterations {
            ranks = (0..n).map(|to| (0..n).map(|from| ranks[from] * matrix[from][to]).sum()).collect();
        }
        ranks
    }

    #[test]
    fn ranks_are_those_of_a_dense_matrix() {
        for seed in 0..5 {
            let graph = Graph::kronecker(6, seed);
            let (ranks, model) = (rank(&graph, ITERATIONS), dense(&graph, ITERATIONS));
            assert!((0..64).any(|vertex| graph.neighbours(vertex).is_empty()), "no vertex alone for seed {seed}");
            for (rank, expected) in ranks.iter().zip(&model) {
                assert!((rank - expected).abs() < 1e-12, "{rank} is not {expected}");
            }
        }
    }

    #[test]
    fn the_middle_of_a_star_ranks_highest() {
        let graph = Graph::from_edges(6, || [0, 1, 3, 4, 5].into_iter().map(|end| [2, end]));
        assert_eq!(top_vertices(&rank(&graph, ITERATIONS), 1), [2]);
    }
}
