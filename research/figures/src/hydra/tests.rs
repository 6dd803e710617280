//! That the figure says what the decision rests on, the same each time.

use super::*;
use crate::figure::Cell;

/// Share of a full run that is simulated here.
const EFFORT: f64 = 0.05;

fn simulate(seed: u64) -> Outcome {
    (FIGURE.run)(&mut Run { seed, effort: EFFORT, progress: &mut |_, _| {} })
}

fn number(cells: &[Cell], table: &Table, column: &str) -> f64 {
    let at = table.columns.iter().position(|known| known.name == column).unwrap();
    match &cells[at] {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn sets_lose_fewer_groups_and_are_even() {
    for seed in [1, 2] {
        let outcome = simulate(seed);
        assert_eq!(outcome, simulate(seed));
        assert!(outcome.checks.iter().all(Check::is_met), "{:?}", outcome.checks);
        let table = &outcome.tables[0];
        let mut anywhere_by_racks = 0.0;
        for cells in &table.rows {
            let of = |column: &str| number(cells, table, column);
            let (loss, computed) = (of("loss_nodes_percent"), of("loss_nodes_computed_percent"));
            let error = 4.0 * 100.0 * (computed / 100.0 / (TRIALS as f64 * EFFORT)).sqrt();
            assert!(loss <= computed * 1.02 + error, "{cells:?}: no more than if all combinations were used");
            if of("set_nodes") < NODES.value {
                assert!(of("load_max_over_mean") <= 1.10, "{cells:?}");
                assert!(of("partners") < 1.2 * of("set_nodes"), "{cells:?}: some sets have what others have left");
                assert!(of("loss_racks_percent") < anywhere_by_racks / 1.5, "{cells:?}");
            } else {
                assert!(loss >= computed * 0.9 - error, "{cells:?}");
                anywhere_by_racks = of("loss_racks_percent");
            }
        }
    }
    assert_ne!(simulate(1), simulate(2));
}
