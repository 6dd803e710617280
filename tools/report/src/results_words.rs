//! Results as Markdown, for a repository: every check and every table. Pictures are on the page.
//!
//! Neighbours: `results_page` says the same in HTML.

use std::fmt::Write;

use crate::model::Setting;
use crate::numbers::{percent, significant};
use crate::results::{Comparison, Origin, Results, Section, all_met};
use crate::results_page::{aim_words, counted, origin_name};
use crate::table::Table;

/// The whole document.
#[must_use]
pub fn results_markdown(results: &Results) -> String {
    let mut out = format!("# {}\n\n", plain(&results.title));
    results.words.iter().for_each(|paragraph| add(&mut out, &format!("{}\n\n", filled("", &plain(paragraph)))));
    add(&mut out, &settings(results));
    add(&mut out, &contents(&results.sections));
    results.sections.iter().for_each(|section| add(&mut out, &section_of(section)));
    out
}

fn add(out: &mut String, text: &str) {
    out.write_str(text).expect("a string takes every write");
}

fn settings(results: &Results) -> String {
    let pairs = results.machine.pairs().into_iter().chain(results.settings.iter().map(Setting::pair));
    let rows = pairs.filter(|(_, value)| !value.is_empty()).map(|(name, value)| vec![cell(&name), cell(&value)]);
    let table = table(&["setting", "value"], &[false, false], rows);
    format!("{table}\nMade by `{}`.\n\n", results.command.replace('`', "'"))
}

fn contents(sections: &[Section]) -> String {
    let row = |section: &Section| {
        let (name, how) = (format!("`{}`", section.name), origin_name(&section.origin).to_owned());
        vec![name, cell(&section.title), cell(&section.source), how, counted(section.met())]
    };
    let last = vec![String::new(), "all".to_owned(), String::new(), String::new(), counted(all_met(sections))];
    let rows = sections.iter().map(row).chain([last]);
    let columns = ["name", "experiment", "source", "how", "checks met"];
    format!("## Experiments\n\n{}\n", table(&columns, &[false, false, false, false, true], rows))
}

fn section_of(section: &Section) -> String {
    let emulated = match &section.origin {
        Origin::Emulated(how) => format!("; emulated far memory: {}", plain(how)),
        Origin::Simulated | Origin::Measured => String::new(),
    };
    let mut out = format!(
        "## {}\n\n{} (`{}`, {}){emulated}.\n\n",
        plain(&section.title),
        plain(&section.source),
        section.name,
        origin_name(&section.origin)
    );
    section.words.iter().for_each(|paragraph| add(&mut out, &format!("{}\n\n", filled("", &plain(paragraph)))));
    if !section.comparisons.is_empty() {
        let columns = ["check", "paper", "here", "apart", "asked", "", "why"];
        let right = [false, true, true, true, false, false, false];
        add(&mut out, &format!("{}\n", table(&columns, &right, section.comparisons.iter().map(comparison))));
    }
    section.tables.iter().for_each(|numbers| add(&mut out, &table_of(numbers)));
    section.notes.iter().for_each(|note| add(&mut out, &format!("{}\n", filled("- ", &plain(note)))));
    if !section.notes.is_empty() {
        add(&mut out, "\n");
    }
    out
}

fn comparison(entry: &Comparison) -> Vec<String> {
    let verdict = entry.is_met().map_or("", |met| if met { "met" } else { "**not met**" });
    vec![
        cell(&entry.what),
        significant(entry.paper),
        significant(entry.ours),
        percent(entry.deviation_percent()),
        aim_words(entry.aim),
        verdict.to_owned(),
        cell(&entry.why),
    ]
}

/// A table of numbers that is folded until somebody wants it: there may be hundreds of rows.
fn table_of(numbers: &Table) -> String {
    let names: Vec<&str> = numbers.columns.iter().map(|column| column.name).collect();
    let right: Vec<bool> = (0..names.len()).map(|column| numbers.is_numeric(column)).collect();
    let rows = numbers.texts().map(|row| row.iter().map(|text| cell(text)).collect());
    format!("<details><summary>{}</summary>\n\n{}\n</details>\n\n", plain(&numbers.title), table(&names, &right, rows))
}

fn table(names: &[&str], right: &[bool], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let marks: Vec<&str> = right.iter().map(|right| if *right { "---:|" } else { "---|" }).collect();
    let head = format!("{}|{}\n", line(&names), marks.concat());
    head + &rows.map(|row| line(&row)).collect::<String>()
}

/// The widest line of a paragraph.
const COLUMNS_MAX: usize = 120;

/// A paragraph or, with a mark, an item of a list: lines end where the next word would be too far right, which no code
/// span does.
#[must_use]
pub fn filled(mark: &str, text: &str) -> String {
    let (mut out, mut column) = (mark.to_owned(), mark.len());
    for (index, word) in words(text).into_iter().enumerate() {
        let length = word.chars().count();
        let breaks = index > 0 && column + 1 + length > COLUMNS_MAX;
        match (index, breaks) {
            (0, _) => {}
            (_, false) => out.push(' '),
            (_, true) => add(&mut out, &format!("\n{:1$}", "", mark.len())),
        }
        column = if breaks { mark.len() } else { column + usize::from(index > 0) } + length;
        out.push_str(&word);
    }
    out
}

/// The words of a text, of which a code span is one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut().filter(|last| last.matches('`').count() % 2 == 1) {
            Some(last) => add(last, &format!(" {word}")),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// A text within a line.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text within a cell.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples::results;

    #[test]
    fn the_document_has_every_check_and_every_row() {
        let text = results_markdown(&results());
        for line in [
            "# The papers' experiments\n",
            "| commit | abc123 |\n",
            "| seed | 7 |\n",
            "| kernel | Linux 6.18 |\n",
            "Made by `yonder report --sets sim --seed 7`.\n",
            "| `a-fig1` | Latency &amp; throughput | Adios, Figure 1 | simulated | 1 of 2 |\n",
            "|  | all |  |  | 1 of 2 |\n",
            "## Latency &amp; throughput\n\nAdios, Figure 1 (`a-fig1`, simulated).\n",
            "| peak, Adios / DiLOS | 1.58 | 1.61 | +1.9 % | within 15 % | met |  |\n",
            "| P99, DiLOS / Adios | 2.83 | 5 | +76.7 % | within 15 % | **not met** | The link is &lt;shorter&gt; here. |\n",
            "| system | p99_us | ops_per_s |\n|---|---:|---:|\n| Adios | 12.3 | 1234567 |\n| Di\\|LOS &lt;1&gt; | - | 780000 |\n",
            "- Every request reads one page.\n",
            "(`breakdown`, measured, far memory emulated); emulated far memory: 2.5 us, 100 Gbit/s.\n\nOne at a time.\n",
            "| software's share, percent | 39.76 | 21.5 | -45.9 % | to be read beside it |  |  |\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn paragraphs_are_filled() {
        assert_eq!(filled("- ", "a note"), "- a note");
        let wide = "w".repeat(116);
        assert_eq!(filled("- ", &format!("{wide} a b")), format!("- {wide} a\n  b"));
        assert_eq!(filled("", &format!("{wide} `a b` c")), format!("{wide}\n`a b` c"));
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_head() {
        let text = results_markdown(&results());
        let mut cells = None;
        for line in text.lines() {
            let count = line.replace("\\|", "").matches('|').count();
            assert!(cells.is_none_or(|cells| count == 0 || cells == count), "{line}");
            cells = (count > 0).then_some(count);
        }
    }
}
