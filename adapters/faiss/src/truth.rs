//! What a search should find.

use crate::library::Neighbour;

use crate::vectors::Vectors;

/// The `k` vectors that are nearest to the query, the nearest first, and of those that are equally far the first first.
/// Looks at all. Distances are exact where the numbers are whole and at most 255, for vectors of up to 258 of them.
#[must_use]
pub fn nearest(vectors: &Vectors, query: &[f32], k: usize) -> Vec<Neighbour> {
    let square = |vector: &[f32]| vector.iter().zip(query).map(|(one, other)| (one - other) * (one - other)).sum();
    let mut all: Vec<Neighbour> =
        (0..vectors.count()).map(|number| (number as i64, square(vectors.get(number)))).collect();
    all.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    all.truncate(k);
    all
}

/// The share of the nearest vectors that was found (recall@k for the `k` that are in `nearest`). Of vectors that are as
/// far as the last of the nearest any is as good.
#[must_use]
pub fn recall(found: &[Neighbour], nearest: &[Neighbour]) -> f64 {
    let Some((_, farthest)) = nearest.last() else { return 1.0 };
    let is_among =
        |(id, distance): &&Neighbour| distance == farthest || nearest.iter().any(|(nearest, _)| nearest == id);
    found.iter().take(nearest.len()).filter(is_among).count() as f64 / nearest.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_in_order_and_no_more_than_there_are() {
        let vectors = Vectors::new(2, vec![0.0, 0.0, 3.0, 4.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(nearest(&vectors, &[0.0, 0.0], 3), [(0, 0.0), (2, 1.0), (3, 1.0)]);
        assert_eq!(nearest(&vectors, &[3.0, 3.0], 9), [(1, 1.0), (2, 13.0), (3, 13.0), (0, 18.0)]);
    }

    #[test]
    fn recall_counts_what_was_found_of_the_nearest() {
        let nearest = [(5, 1.0), (9, 2.0), (7, 2.0), (1, 3.0)];
        assert_eq!(recall(&nearest, &nearest), 1.0);
        assert_eq!(recall(&nearest[..2], &nearest), 0.5);
        assert_eq!(recall(&[], &nearest), 0.0);
        assert_eq!(recall(&[(5, 1.0), (7, 2.0), (2, 3.0), (3, 4.0)], &nearest), 0.75, "one as far as the last counts");
        assert_eq!(recall(&[(8, 4.0), (6, 5.0)], &nearest), 0.0);
        assert_eq!(recall(&[(8, 4.0), (6, 5.0), (4, 6.0), (3, 7.0), (5, 1.0)], &nearest), 0.0, "k are looked at");
        assert_eq!(recall(&[(8, 4.0)], &[]), 1.0);
    }
}
