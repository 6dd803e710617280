//! `bc` (DiLOS, figure 9): betweenness centrality, on the largest Kronecker graph that `size` holds.
//!
//! Brandes' algorithm, as in the GAP suite: a breadth-first search from a source counts shortest paths; back through
//! the levels, each vertex learns the share of them that leads over it. The sum over some sources estimates that over
//! all.

use rand::Rng as _;

use crate::checksum::Checksum;
use crate::graph::{Graph, top_vertices};
use crate::random::{Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Where paths are counted from.
const SOURCES: usize = 4;
/// How far sums of shares may be from what they must be, by rounding, relative to it.
const SUM_ERROR_MAX: f64 = 1e-6;
/// Vertices that are named.
const TOP: usize = 5;
/// The depth of a vertex that was not reached.
const UNREACHED: u32 = u32::MAX;

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let (graph, setup_seconds) = timed(|| Graph::kronecker_of_size(settings, Search::VERTEX_BYTES));
    let graph = graph?;
    let sources = sources(&graph, settings.seed);
    let (search, seconds) = timed(|| Search::over(&graph, &sources));
    let (sum, expected) = (search.scores.iter().sum::<f64>(), search.inner_vertices as f64);
    require(|| (sum - expected).abs() <= SUM_ERROR_MAX * expected, "the scores do not add up")?;
    Ok(Outcome {
        bytes: graph.bytes() + Search::VERTEX_BYTES * graph.vertices() as u64,
        seconds,
        setup_seconds,
        check: Checksum::of_floats(&search.scores).text(),
        details: Details::Betweenness {
            vertices: graph.vertices(),
            edges: graph.edges(),
            top_vertices: top_vertices(&search.scores, TOP),
            sources,
        },
    })
}

/// Random vertices that have neighbours; one may come twice.
fn sources(graph: &Graph, seed: u64) -> Vec<u32> {
    let mut random = generator(seed, Use::Sources);
    let draws = std::iter::repeat_with(|| random.random_range(0..graph.vertices() as u32));
    draws.filter(|vertex| !graph.neighbours(*vertex as usize).is_empty()).take(SOURCES).collect()
}

struct Search {
    /// Of each vertex, over all sources so far.
    scores: Vec<f64>,
    /// Vertices between source and end on a shortest path, summed over sources and ends: what the scores add up to.
    inner_vertices: u64,
    depths: Vec<u32>,
    /// Shortest paths from the source.
    paths: Vec<f64>,
    /// Shares of the paths to all ends behind a vertex that lead over it.
    shares: Vec<f64>,
    /// Vertices as they were reached.
    reached: Vec<u32>,
}

impl Search {
    const VERTEX_BYTES: u64 = (3 * size_of::<f64>() + 2 * size_of::<u32>()) as u64;

    fn over(graph: &Graph, sources: &[u32]) -> Self {
        let n = graph.vertices();
        let mut search = Self {
            scores: vec![0.0; n],
            inner_vertices: 0,
            depths: vec![UNREACHED; n],
            paths: vec![0.0; n],
            shares: vec![0.0; n],
            reached: Vec::with_capacity(n),
        };
        for source in sources {
            search.count_paths(graph, *source);
            search.share_back(graph, *source);
        }
        search
    }

    fn count_paths(&mut self, graph: &Graph, source: u32) {
        self.depths.fill(UNREACHED);
        self.paths.fill(0.0);
        self.reached.clear();
        self.reached.push(source);
        self.depths[source as usize] = 0;
        self.paths[source as usize] = 1.0;
        let mut seen = 0;
        while let Some(vertex) = self.reached.get(seen).map(|vertex| *vertex as usize) {
            seen += 1;
            let below = self.depths[vertex] + 1;
            for next in graph.neighbours(vertex) {
                let depth = &mut self.depths[*next as usize];
                if *depth == UNREACHED {
                    *depth = below;
                    self.reached.push(*next);
                }
                if *depth == below {
                    self.paths[*next as usize] += self.paths[vertex];
                }
            }
        }
    }

    fn share_back(&mut self, graph: &Graph, source: u32) {
        self.shares.fill(0.0);
        for vertex in
            self.reached.iter().rev().map(|vertex| *vertex as usize).filter(|vertex| *vertex != source as usize)
        {
            let below = self.depths[vertex] + 1;
            let behind = graph.neighbours(vertex).iter().map(|next| *next as usize);
            let shares = behind.filter(|next| self.depths[*next] == below);
            let share: f64 = shares.map(|next| self.paths[vertex] / self.paths[next] * (1.0 + self.shares[next])).sum();
            self.shares[vertex] = share;
            self.scores[vertex] += share;
            self.inner_vertices += u64::from(self.depths[vertex] - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances between all pairs, and numbers of shortest paths, by going one step further again and again.
    fn distances_and_paths(graph: &Graph) -> (Vec<Vec<usize>>, Vec<Vec<f64>>) {
        let n = graph.vertices();
        let (mut distances, mut paths) = (vec![vec![usize::MAX; n]; n], vec![vec![0.0; n]; n]);
        for source in 0..n {
            let mut walks = vec![0.0; n];
            walks[source] = 1.0;
            for length in 0..n {
                for end in 0..n {
                    if walks[end] > 0.0 && distances[source][end] == usize::MAX {
                        (distances[source][end], paths[source][end]) = (length, walks[end]);
                    }
                }
                // All walks that are one longer. Where an end is reached first, they are the shortest paths.
                walks =
                    (0..n).map(|end| graph.neighbours(end).iter().map(|from| walks[*from as usize]).sum()).collect();
            }
        }
        (distances, paths)
    }

    /// The definition: for all ends, the share of shortest paths that leads over each vertex.
    fn brute_force(graph: &Graph, sources: &[u32]) -> Vec<f64> {
        let (distances, paths) = distances_and_paths(graph);
        let n = graph.vertices();
        let mut scores = vec![0.0; n];
        for source in sources.iter().map(|source| *source as usize) {
            for end in (0..n).filter(|end| *end != source && distances[source][*end] != usize::MAX) {
                for over in (0..n).filter(|over| *over != source && *over != end) {
                    let via = distances[source][over].saturating_add(distances[over][end]);
                    if via == distances[source][end] {
                        scores[over] += paths[source][over] * paths[over][end] / paths[source][end];
                    }
                }
            }
        }
        scores
    }

    fn check(graph: &Graph, sources: &[u32]) {
        let search = Search::over(graph, sources);
        for (score, expected) in search.scores.iter().zip(brute_force(graph, sources)) {
            assert!((score - expected).abs() < 1e-9, "{score} is not {expected}");
        }
        assert!((search.scores.iter().sum::<f64>() - search.inner_vertices as f64).abs() < 1e-9);
    }

    #[test]
    fn scores_are_those_of_the_definition() {
        for seed in 0..3 {
            let graph = Graph::kronecker(5, seed);
            check(&graph, &sources(&graph, seed));
        }
        // Sparse, with long paths, several of a length, and a part that is not reached.
        let edges = [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [4, 5], [4, 6], [5, 7], [6, 7], [7, 8], [9, 10]];
        check(&Graph::from_edges(11, || edges.into_iter()), &[0, 3, 8, 9]);
    }

    #[test]
    fn sources_have_neighbours() {
        let graph = Graph::from_edges(50, || [[3, 4]].into_iter());
        let sources = sources(&graph, 1);
        assert_eq!(sources.len(), SOURCES);
        assert!(sources.iter().all(|source| [3, 4].contains(source)), "{sources:?}");
    }
}
