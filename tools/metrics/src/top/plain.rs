//! The model as plain text, for `--once` and for output that is no terminal.

use std::fmt::Write;

use yonder::units::format_bytes;

use super::model::{Model, STAGE_HEADS, TENANT_HEADS};
use super::quantity;
use crate::names;

/// Most tenants that are listed.
const TENANTS_MAX: usize = 20;

/// Everything that the live view shows, without the curves.
pub(super) fn text(model: &Model) -> String {
    let mut text = format!("yonder top  {}\n", model.address);
    if let Some(memory) = model.memory() {
        let (limit, peak) = (quantity::pages(memory.limit), quantity::pages(memory.peak));
        let metadata = format_bytes(model.metadata_bytes().unwrap_or(0));
        line(&mut text, &format!("\nlocal memory: limit {limit}, peak {peak}, metadata beside it {metadata}"));
        for (state, pages) in names::STATES.into_iter().zip(memory.states) {
            line(&mut text, &format!("  {state:<22}{:>12}", quantity::pages(pages)));
        }
    }
    let rates = model.common_rows().into_iter().chain(model.extra_rows()).collect();
    for (head, rows) in [("protection", model.protection_rows()), ("rates", rates)] {
        if !rows.is_empty() {
            line(&mut text, &format!("\n{head}"));
        }
        for (name, value) in rows {
            line(&mut text, &format!("  {name:<22}{value:>12}"));
        }
    }
    let stages = model.stage_rows();
    if !stages.is_empty() {
        let [p50, p90, p99, p999] = STAGE_HEADS;
        line(&mut text, &format!("\n{:<18}{p50:>9}{p90:>9}{p99:>9}{p999:>9}", "stage"));
        for row in stages {
            let [p50, p90, p99, p999] = &row.times;
            line(&mut text, &format!("  {:<8}{:<8}{p50:>9}{p90:>9}{p99:>9}{p999:>9}", row.of, row.stage));
        }
    }
    let tenants = model.tenant_rows();
    if !tenants.is_empty() {
        line(&mut text, &format!("\n{:<24}{}", "tenant", columns(&TENANT_HEADS)));
        for row in tenants.iter().take(TENANTS_MAX) {
            line(&mut text, &format!("  {:<22}{}", row.name, columns(&row.cells.each_ref().map(String::as_str))));
        }
        if let Some(more) = tenants.len().checked_sub(TENANTS_MAX + 1) {
            line(&mut text, &format!("  and {} more", more + 1));
        }
    }
    text
}

fn columns(cells: &[&str; TENANT_HEADS.len()]) -> String {
    cells.map(|cell| format!("{cell:>12}")).concat()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::{full_model, node_model};

    #[test]
    fn a_node_shows_its_tenants() {
        let text = text(&node_model());
        let expected = "
tenant                      requests       bytes      memory        shed
  b                          125 k/s    512 MB/s         0 B        0 /s
  app                       1.00 k/s   4.10 MB/s       3 MiB     2.50 /s
  10.0.0.9                         -           -       4 KiB           -
";
        assert!(text.ends_with(expected) && text.contains("  node spaces                      3\n"), "{text}");
    }

    #[test]
    fn the_whole_text() {
        let expected = "\
yonder top  127.0.0.1:9185

local memory: limit 64 MiB, peak 62.5 MiB, metadata beside it 64 KiB
  resident                  39.1 MiB
  standby                   11.7 MiB
  writing                    1.6 MiB
  buffer                     2.3 MiB
  free                       9.3 MiB

rates
  requests                   123 k/s
  in service                       0
  major faults              1.50 k/s
  minor faults                250 /s
  in flight                        7
  fetched                  12.0 MB/s
  written                  2.50 MB/s
  retries                    1.50 /s
  errors                        0 /s
  errors in all                    3
  kv get hits                100 k/s
  kv items                        55

stage                   P50      P90      P99    P99.9
  fault   post            -        -        -        -
  fault   fetch     2.30 us  2.30 us  2.30 us  2.30 us
  fault   install         -        -        -        -
  fault   resume          -        -        -        -
  fault   total     2.82 us  2.82 us  2.82 us  2.82 us
  request queued          -        -        -        -
  request running         -        -        -        -
  request waiting         -        -        -        -
  request total     73.7 us  73.7 us  73.7 us  73.7 us
";
        assert_eq!(text(&full_model()), expected);
    }
}
