//! What several runs of one thing come to: the median, and the least and the greatest beside it.

/// Sorted figures.
pub(crate) fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The median of sorted figures; none of none.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// The least and the greatest of sorted figures.
pub(crate) fn ends(sorted: &[f64]) -> Option<[f64; 2]> {
    Some([*sorted.first()?, *sorted.last()?])
}

/// Turn by turn, how many times as much as the best of the others; of turns in which there is one. Sorted.
pub(crate) fn ratios(own: &[f64], others: &[Vec<f64>]) -> Vec<f64> {
    let best = |turn: usize| others.iter().filter_map(|other| other.get(turn).copied()).max_by(f64::total_cmp);
    sorted(own.iter().enumerate().filter_map(|(turn, figure)| Some(figure / best(turn).filter(|best| *best > 0.0)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_turn_and_to_the_best_of_the_others() {
        let own = [6.0, 8.0, 9.0, 5.0];
        // 6 to 3, 8 to 1 and 9 to 9; in the fourth turn nobody else was left.
        assert_eq!(ratios(&own, &[vec![3.0, 1.0], vec![2.0, 0.5, 9.0]]), [1.0, 2.0, 8.0]);
        assert!(ratios(&own, &[]).is_empty());
        assert!(ratios(&own, &[vec![0.0]]).is_empty(), "nothing is no measure");
        assert_eq!((median(&[1.0, 2.0, 8.0]), ends(&[1.0, 2.0, 8.0])), (Some(2.0), Some([1.0, 8.0])));
        assert_eq!((median(&[]), ends(&[])), (None, None));
    }
}
