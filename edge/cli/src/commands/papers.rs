//! `yonder papers`: figures of the papers, simulated, as tables and checks or as JSON.
//!
//! Standard output has nothing that depends on the machine or on the time, so that the same seed gives the same bytes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use yonder_figures::{Check, FIGURES, Figure, Outcome, Run};
use yonder_report::{percent, significant, text_table};

use super::drawn;
use crate::args::PapersArgs;
use crate::output::{Bar, json_line, line};

pub(crate) fn run(args: &PapersArgs) -> anyhow::Result<ExitCode> {
    match args.figures() {
        None => list(args.json)?,
        Some(figures) => {
            for figure in figures {
                let outcome = simulate(figure, args.depth.seed, args.depth.effort());
                if args.json {
                    print_json(figure, &outcome)?
                } else {
                    print(figure, &outcome)?
                }
                drawn::write(outcome.pictures, args.out.as_deref())?;
                drawn::write_bars(&outcome.bars, args.out.as_deref())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates a figure, and tells on standard error how far it is and how much that was.
pub(super) fn simulate(figure: &Figure, seed: u64, effort: f64) -> Outcome {
    let bar = Bar::new(&format!("papers {}", figure.name));
    let began = Instant::now();
    let outcome = (figure.run)(&mut Run { seed, effort, progress: &mut |what, share| bar.show(what, share) });
    drop(bar);
    eprintln!("{}: {}", figure.name, speed(outcome.requests, began.elapsed()));
    outcome
}

/// How many requests were simulated, and how fast.
fn speed(requests: u64, took: Duration) -> String {
    if requests == 0 {
        return "no requests to simulate".to_owned();
    }
    let (millions, seconds) = (requests as f64 / 1e6, took.as_secs_f64());
    format!("{millions:.2} M requests simulated in {seconds:.2} s, {:.2} M/s", millions / seconds.max(f64::EPSILON))
}

fn list(json: bool) -> anyhow::Result<()> {
    let width = FIGURES.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    for Figure { name, source, title, .. } in FIGURES {
        if json {
            json_line(&serde_json::json!({ "sim": name, "source": source, "title": title }))?;
        } else {
            line(&format!("{name:width$}  {title} ({source})"))?;
        }
    }
    Ok(())
}

fn print_json(figure: &Figure, outcome: &Outcome) -> anyhow::Result<()> {
    let rows = outcome.tables.iter().flat_map(|table| table.objects(figure.name));
    let checks = outcome.checks.iter().map(|check| check.object(figure.name));
    rows.chain(checks).try_for_each(|object| json_line(&object))
}

fn print(figure: &Figure, outcome: &Outcome) -> anyhow::Result<()> {
    line(&format!("{}: {} ({})\n", figure.name, figure.title, figure.source))?;
    for table in &outcome.tables {
        line(&format!("{}\n{}", table.title, text_table(table)))?;
    }
    outcome.checks.iter().try_for_each(|check| line(&check_line(check)))?;
    outcome.notes.iter().try_for_each(|note| line(&format!("note: {note}")))?;
    if outcome.checks.is_empty() && outcome.notes.is_empty() { Ok(()) } else { line("") }
}

fn check_line(check: &Check) -> String {
    format!(
        "{:7}  {}: paper {}, simulated {}, {} (within {} %){}",
        match check.is_calibration {
            true => "input",
            false if check.is_met() => "met",
            false => "NOT MET",
        },
        check.what,
        significant(check.paper),
        significant(check.simulated),
        percent(check.deviation_percent()),
        significant(check.tolerance_percent),
        check.why.map_or_else(String::new, |why| format!(": {why}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_one_line_with_both_numbers_and_the_reason() {
        let met = Check::new("peak, Adios / DiLOS", 1.58, 1.61);
        assert_eq!(check_line(&met), "met      peak, Adios / DiLOS: paper 1.58, simulated 1.61, +1.9 % (within 15 %)");
        let missed = Check::new("P99", 2.0, 5.0).within(20.0).because("The link is shorter here.");
        assert_eq!(
            check_line(&missed),
            "NOT MET  P99: paper 2, simulated 5, +150.0 % (within 20 %): The link is shorter here."
        );
    }

    #[test]
    fn speed_is_requests_in_time() {
        assert_eq!(speed(3_000_000, Duration::from_secs(2)), "3.00 M requests simulated in 2.00 s, 1.50 M/s");
        assert_eq!(speed(0, Duration::from_secs(2)), "no requests to simulate");
    }
}
