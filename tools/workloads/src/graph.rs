//! [`Graph`]: who is connected with whom, as compressed sparse rows; and [`Graph::kronecker`], the made-up graph of the
//! GAP benchmark suite that DiLOS ran (figure 9), and of Graph500.
//!
//! An edge falls into a quadrant of the adjacency matrix with a probability that [`QUADRANTS`] says, then into a
//! quadrant of that, and so on; vertices are renamed at random afterwards. Invariants: edges are symmetric, neighbours
//! ascend, none comes twice, no vertex is its own.

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use crate::random::{Random, Use, generator};
use crate::result::{Settings, WorkloadError};

/// Edges that are drawn for each vertex. Some are drawn twice.
const EDGE_FACTOR: usize = 16;
/// Where the upper right, the lower left and the lower right quadrant begin, in 65536ths: 0.57, 0.19, 0.19 and 0.05.
const QUADRANTS: [u16; 3] = [37356, 49807, 62259];
/// Levels of quadrants that one 64-bit number decides.
const LEVELS_A_DRAW: u32 = 4;
/// Smallest and largest logarithm of the number of vertices.
const SCALE_MIN: u32 = 4;
const SCALE_MAX: u32 = 31;

/// An undirected graph.
pub(crate) struct Graph {
    /// Where each vertex' neighbours begin, and where the last ones end.
    offsets: Vec<usize>,
    neighbours: Vec<u32>,
}

impl Graph {
    /// The largest graph that fits into the size together with `vertex_bytes` for each vertex, before edges that came
    /// twice are gone.
    pub(crate) fn kronecker_of_size(settings: &Settings, vertex_bytes: u64) -> Result<Self, WorkloadError> {
        let each = vertex_bytes + (size_of::<usize>() + 2 * EDGE_FACTOR * size_of::<u32>()) as u64;
        let vertices = settings.count_of(each, 1 << SCALE_MIN)?;
        Ok(Self::kronecker(vertices.ilog2().min(SCALE_MAX), settings.seed))
    }

    /// A graph of 2 to the power of `scale` vertices.
    pub(crate) fn kronecker(scale: u32, seed: u64) -> Self {
        let vertices = 1_usize << scale;
        let mut names: Vec<u32> = (0..vertices).map(|vertex| vertex as u32).collect();
        names.shuffle(&mut generator(seed, Use::Order));
        // Drawn twice rather than kept: a list of edges would take as much memory as the graph.
        Self::from_edges(vertices, || {
            let mut random = generator(seed, Use::Edges);
            let names = &names;
            (0..vertices * EDGE_FACTOR).map(move |_| draw_edge(&mut random, scale).map(|end| names[end]))
        })
    }

    /// A graph of these edges, which are asked for twice.
    pub(crate) fn from_edges<I: Iterator<Item = [u32; 2]>>(vertices: usize, edges: impl Fn() -> I) -> Self {
        let real = || edges().filter(|[one, other]| one != other);
        let mut offsets = vec![0_usize; vertices + 1];
        for end in real().flatten() {
            offsets[end as usize] += 1;
        }
        let mut total = 0;
        for offset in &mut offsets {
            total += *offset;
            *offset = total;
        }
        // Each vertex' offset is its end now, and moves to its beginning while its neighbours are filled in.
        let mut neighbours = vec![0; total];
        for [one, other] in real() {
            for (from, to) in [(one, other), (other, one)] {
                offsets[from as usize] -= 1;
                neighbours[offsets[from as usize]] = to;
            }
        }
        let mut graph = Self { offsets, neighbours };
        graph.sort_and_close_up();
        graph
    }

    pub(crate) fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Edges, each counted once.
    pub(crate) fn edges(&self) -> usize {
        self.neighbours.len() / 2
    }

    pub(crate) fn neighbours(&self, vertex: usize) -> &[u32] {
        &self.neighbours[self.offsets[vertex]..self.offsets[vertex + 1]]
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(self.offsets.as_slice()) + size_of_val(self.neighbours.as_slice())) as u64
    }

    /// Sorts neighbours, removes those that come twice, and moves the rest together.
    fn sort_and_close_up(&mut self) {
        let (mut begin, mut kept) = (0, 0);
        for vertex in 0..self.vertices() {
            let end = self.offsets[vertex + 1];
            self.neighbours[begin..end].sort_unstable();
            self.offsets[vertex] = kept;
            for place in begin..end {
                let neighbour = self.neighbours[place];
                if kept == self.offsets[vertex] || self.neighbours[kept - 1] != neighbour {
                    self.neighbours[kept] = neighbour;
                    kept += 1;
                }
            }
            begin = end;
        }
        let last = self.vertices();
        self.offsets[last] = kept;
        self.neighbours.truncate(kept);
    }
}

/// The `count` vertices of the highest scores, highest first; the lower number goes first where they are equal.
pub(crate) fn top_vertices(scores: &[f64], count: usize) -> Vec<u32> {
    let mut top: Vec<u32> = Vec::with_capacity(count + 1);
    for (vertex, score) in scores.iter().enumerate() {
        let place = top.partition_point(|other| scores[*other as usize] >= *score);
        if place < count {
            top.insert(place, vertex as u32);
            top.truncate(count);
        }
    }
    top
}

fn draw_edge(random: &mut Random, scale: u32) -> [usize; 2] {
    let (mut row, mut column, mut draw) = (0, 0, 0_u64);
    for level in 0..scale {
        if level % LEVELS_A_DRAW == 0 {
            draw = random.random();
        }
        let [right, lower, both] = QUADRANTS.map(|begin| usize::from(draw as u16 >= begin));
        row = row << 1 | lower;
        column = column << 1 | (right ^ lower ^ both);
        draw >>= 16;
    }
    [row, column]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn pairs(graph: &Graph) -> Vec<(u32, u32)> {
        let of = |vertex: usize| graph.neighbours(vertex).iter().map(move |other| (vertex as u32, *other));
        (0..graph.vertices()).flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn holds_each_edge_once_in_each_direction(edges in prop::collection::vec([0_u32..12, 0_u32..12], 0..80)) {
            let graph = Graph::from_edges(12, || edges.iter().copied());
            let mut model = BTreeSet::new();
            for [one, other] in &edges {
                if one != other {
                    model.extend([(*one, *other), (*other, *one)]);
                }
            }
            prop_assert_eq!(graph.vertices(), 12);
            prop_assert_eq!(graph.edges() * 2, model.len());
            prop_assert_eq!(pairs(&graph), model.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn top_vertices_are_the_first_of_all_sorted(scores in prop::collection::vec(0_u8..6, 0..40)) {
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            let mut model: Vec<u32> = (0..scores.len() as u32).collect();
            model.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
            model.truncate(5);
            prop_assert_eq!(top_vertices(&scores, 5), model);
        }
    }

    #[test]
    fn quadrants_are_drawn_as_often_as_the_suite_says() {
        let (mut random, mut counts) = (generator(1, Use::Edges), [0_u32; 4]);
        for _ in 0..100_000 {
            let [row, column] = draw_edge(&mut random, 1);
            counts[row * 2 + column] += 1;
        }
        for (count, share) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
            assert!((f64::from(count) / 1e5 - share).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn degrees_are_skewed_and_names_are_mixed() {
        let graph = Graph::kronecker(10, 1);
        let degrees: Vec<usize> = (0..1024).map(|vertex| graph.neighbours(vertex).len()).collect();
        let mean = graph.neighbours.len() / 1024;
        assert!(mean > EDGE_FACTOR && *degrees.iter().max().unwrap() > 10 * mean);
        let first_half: usize = degrees[..512].iter().sum();
        assert!((4..6).contains(&(first_half * 10 / graph.neighbours.len())), "{first_half} in the first half");
    }
}
