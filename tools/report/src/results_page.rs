//! Results as one HTML page that needs nothing else: for each experiment its pictures, the paper's numbers beside ours,
//! and tables.
//!
//! Neighbours: `html` has the frame, the style and what is below the sections of every page; `results_words` says the
//! same in Markdown.

use crate::ReportError;
use crate::bars::bars_svg;
use crate::html::{Column, EMULATED, Escaped, conditions, figure, inline, notes, page, paragraphs, table, verdict};
use crate::numbers::{percent, significant};
use crate::picture::picture_svg;
use crate::results::{Aim, Comparison, Origin, Results, Section, all_met};
use crate::table::Table;

/// Rows of a table above which it is folded until somebody wants it.
const OPEN_ROWS_MAX: usize = 16;

/// The whole page.
pub fn results_page(results: &Results) -> Result<String, ReportError> {
    let mut body = format!("<header>\n<h1>{}</h1>\n{}</header>\n", Escaped(&results.title), paragraphs(&results.words));
    body += &if all_met(&results.sections).1 > 0 { contents(&results.sections) } else { cards(&results.sections) };
    for section in &results.sections {
        body += &section_of(section)?;
    }
    body += &conditions(&results.machine, &results.settings, &results.command);
    Ok(page(&results.title, &body))
}

/// A line for each experiment that leads to it.
fn contents(sections: &[Section]) -> String {
    let row = |section: &Section| {
        let link = format!("<a href=\"#{}\">{}</a>", Escaped(&section.name), Escaped(&section.title));
        let (source, how) = (Escaped(&section.source).to_string(), origin_name(&section.origin).to_owned());
        vec![link, source, how, counted(section.met())]
    };
    let last = vec!["All".to_owned(), String::new(), String::new(), counted(all_met(sections))];
    use Column::{Name, Number, Words};
    let columns = [Name("Experiment"), Words("Source"), Words("How"), Number("Checks met")];
    let table = table("ratios", &columns, sections.iter().map(row).chain([last]));
    format!("<section>\n<h2>Experiments</h2>\n{table}</section>\n")
}

/// In large type what stands beside a paper's numbers and is no check.
fn cards(sections: &[Section]) -> String {
    let card = |entry: &Comparison| {
        format!(
            "<div class=\"card\"><p class=\"number\">{}</p><p>{}</p><p class=\"link\">the paper: {}</p></div>\n",
            significant(entry.ours),
            Escaped(&entry.what),
            significant(entry.paper)
        )
    };
    let cards: String = sections.iter().flat_map(|section| &section.comparisons).map(card).collect();
    format!("<section class=\"cards\">\n{cards}</section>\n")
}

/// How many are met of how many; a dash of none.
pub(crate) fn counted((met, all): (usize, usize)) -> String {
    if all == 0 { "\u{2013}".to_owned() } else { format!("{met} of {all}") }
}

pub(crate) fn origin_name(origin: &Origin) -> &'static str {
    match origin {
        Origin::Simulated => "simulated",
        Origin::Emulated(_) => "measured, far memory emulated",
        Origin::Measured => "measured",
    }
}

fn section_of(section: &Section) -> Result<String, ReportError> {
    let emulated = match &section.origin {
        Origin::Emulated(how) => format!("; {EMULATED}: {}", Escaped(how)),
        Origin::Simulated | Origin::Measured => String::new(),
    };
    let mut out = format!(
        "<section class=\"chart\" id=\"{}\">\n<h2>{}</h2>\n<p class=\"link\">{} ({}){emulated}</p>\n{}",
        Escaped(&section.name),
        Escaped(&section.title),
        Escaped(&section.source),
        origin_name(&section.origin),
        paragraphs(&section.words)
    );
    out += &pictures(section)?;
    out += &comparisons(&section.comparisons);
    section.tables.iter().for_each(|table| out += &table_of(table));
    Ok(out + &notes(&section.notes, "h3") + "</section>\n")
}

fn pictures(section: &Section) -> Result<String, ReportError> {
    let mut figures = String::new();
    for picture in &section.pictures {
        figures += &figure(&inline(&picture_svg(picture)?, Some(&picture.title)));
    }
    for bars in &section.bars {
        figures += &figure(&inline(&bars_svg(bars)?, Some(&bars.title)));
    }
    Ok(if figures.is_empty() { figures } else { format!("<div class=\"plots\">\n{figures}</div>\n") })
}

fn comparisons(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return String::new();
    }
    let row = |entry: &Comparison| {
        let (what, why) = (Escaped(&entry.what).to_string(), Escaped(&entry.why).to_string());
        let numbers = [significant(entry.paper), significant(entry.ours), percent(entry.deviation_percent())];
        [vec![what], numbers.to_vec(), vec![asked(entry), why]].concat()
    };
    use Column::{Name, Number, Words};
    let columns = [Name("Check"), Number("Paper"), Number("Here"), Number("Apart"), Words(""), Words("")];
    format!("<h3>Beside the paper</h3>\n{}", table("ratios", &columns, comparisons.iter().map(row)))
}

/// Whether a comparison is met, and what is asked.
fn asked(entry: &Comparison) -> String {
    let (aim, verdict) = (aim_words(entry.aim), entry.is_met().map(|met| verdict(met, "met", "not met")));
    verdict.map_or_else(|| aim.clone(), |verdict| format!("{verdict} <small>{aim}</small>"))
}

/// What is asked of a number.
pub(crate) fn aim_words(aim: Aim) -> String {
    match aim {
        Aim::WithinPercent(percent) => format!("within {} %", significant(percent)),
        Aim::AtLeast => "at least the paper\u{2019}s".to_owned(),
        Aim::AtMost => "at most the paper\u{2019}s".to_owned(),
        Aim::Calibration => "calibration: an input fixes it".to_owned(),
        Aim::None => "to be read beside it".to_owned(),
    }
}

fn table_of(numbers: &Table) -> String {
    let column = |(index, name)| if numbers.is_numeric(index) { Column::Number(name) } else { Column::Words(name) };
    let columns: Vec<_> = numbers.columns.iter().map(|column| column.name).enumerate().map(column).collect();
    let row = |cells: Vec<String>| cells.iter().map(|text| Escaped(text).to_string()).collect();
    let rows = table("measurements", &columns, numbers.texts().map(row));
    let open = if numbers.rows.len() > OPEN_ROWS_MAX { "" } else { " open=\"open\"" };
    format!("<details{open}>\n<summary>{}</summary>\n{rows}</details>\n", Escaped(&numbers.title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::tests::{assert_colours_are_known, assert_well_formed};
    use crate::model::Setting;
    use crate::results::samples::results;
    use crate::write_html;

    #[test]
    fn the_page_has_every_number_and_needs_nothing_else() {
        let page = results_page(&results()).unwrap();
        assert_well_formed(&page);
        for text in [
            "<h1>The papers&#39; experiments</h1>",
            "Numbers of papers &amp; ours.",
            "<a href=\"#a-fig1\">Latency &amp; throughput</a>",
            "<td>1 of 2</td>",
            "<section class=\"chart\" id=\"a-fig1\">",
            "Adios, Figure 1 (simulated)",
            "aria-label=\"Latency of both plot\"",
            "<th class=\"text\">system</th><th>p99_us</th><th>ops_per_s</th>",
            "<td class=\"text\">Adios</td><td>12.3</td><td>1234567</td>",
            "<td class=\"text\">Di|LOS &lt;1&gt;</td><td>-</td><td>780000</td>",
            "<th scope=\"row\">peak, Adios / DiLOS</th><td>1.58</td><td>1.61</td><td>+1.9 %</td>",
            "\u{2713} met</span> <small>within 15 %</small>",
            "<td>2.83</td><td>5</td><td>+76.7 %</td>",
            "\u{2717} not met</span> <small>within 15 %</small></td><td class=\"text\">The link is &lt;shorter&gt; here.",
            "Every request reads one page.",
            "LightSwap, Figure 11 (measured, far memory emulated); Emulated far memory: 2.5 us, 100 Gbit/s",
            "<td>39.76</td><td>21.5</td><td>-45.9 %</td><td class=\"text\">to be read beside it</td>",
            "aria-label=\"Where the time goes plot\"",
            "<dt>commit</dt><dd>abc123</dd>",
            "<dt>seed</dt><dd>7</dd>",
            "<dt>kernel</dt><dd>Linux 6.18</dd>",
            "yonder report --sets sim --seed 7",
        ] {
            assert!(page.contains(text), "{text} is missing");
        }
        let links = page.match_indices("href=\"").filter(|(at, _)| !page[at + 6..].starts_with('#')).count();
        assert_eq!(links, 0, "it links to nothing outside");
        let page = page.to_lowercase();
        for outside in
            ["http:", "https:", "//", "<script", "<link", "<iframe", "<img", "src=", "url(", "@import", "javascript:"]
        {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn free_texts_do_no_harm() {
        let evil = "</title><script>alert(\"1\" & '2')</script>\u{1}".to_owned();
        let mut results = results();
        (results.title, results.command) = (evil.clone(), evil.clone());
        (results.machine.kernel, results.machine.text) = (evil.clone(), evil.clone());
        results.settings = vec![Setting { name: evil.clone(), value: evil.clone() }];
        results.words = vec![evil.clone()];
        let section = &mut results.sections[0];
        (section.name, section.source, section.title) = (evil.clone(), evil.clone(), evil.clone());
        (section.words, section.notes) = (vec![evil.clone()], vec![evil.clone()]);
        section.tables[0].title = evil.clone();
        section.tables[0].rows[0][0] = evil.as_str().into();
        (section.comparisons[0].what, section.comparisons[0].why) = (evil.clone(), evil.clone());
        results.sections[1].origin = Origin::Emulated(evil);
        let page = results_page(&results).unwrap();
        assert_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains("alert(\"1") && !page.contains('\u{1}'));
        let escaped = "&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\u{fffd}";
        // The page's title is there twice, and so are the name, the source and the title of the section.
        assert_eq!(page.matches(escaped).count(), 21);
    }

    #[test]
    fn every_section_keeps_its_own_together() {
        let page = results_page(&results()).unwrap();
        let positions: Vec<_> = [
            "<h2>Experiments</h2>",
            "<h2>Latency &amp; throughput</h2>",
            "aria-label=\"Latency of both plot\"",
            "<h3>Beside the paper</h3>",
            "<td>1234567</td>",
            "<h2>The steps of a fault</h2>",
            "Emulated far memory: 2.5 us, 100 Gbit/s",
            "aria-label=\"Where the time goes plot\"",
            "<h2>Machine and settings</h2>",
        ]
        .iter()
        .map(|text| page.find(text).unwrap_or_else(|| panic!("{text} is missing")))
        .collect();
        assert!(positions.is_sorted(), "{positions:?}");
    }

    #[test]
    fn the_file_is_written_or_the_error_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_html(&results(), &directory.path().join("new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), results_page(&results()).unwrap());
        let message = write_html(&results(), &path).unwrap_err().to_string();
        assert!(
            message.starts_with("cannot write ")
                && message.ends_with("name a directory that can be written with --out DIR")
        );
    }

    #[test]
    fn long_tables_are_folded() {
        let mut results = results();
        let table = &mut results.sections[0].tables[0];
        let row = table.rows[0].clone();
        table.rows.resize(OPEN_ROWS_MAX, row.clone());
        let is_open = |results: &Results| results_page(results).unwrap().contains("<details open=\"open\">");
        assert!(is_open(&results));
        results.sections[0].tables[0].rows.push(row);
        assert!(!is_open(&results));
        assert_well_formed(&results_page(&results).unwrap());
    }

    #[test]
    fn the_style_knows_the_colours() {
        assert_colours_are_known(&results_page(&results()).unwrap());
    }

    #[test]
    fn a_page_without_checks_has_its_ratios_in_large_type() {
        let mut results = results();
        let comparisons = results.sections.iter_mut().flat_map(|section| &mut section.comparisons);
        comparisons.for_each(|comparison| comparison.aim = Aim::None);
        results.sections[0].comparisons[0].what = "a & b".to_owned();
        let page = results_page(&results).unwrap();
        assert_well_formed(&page);
        assert!(page.contains("<p class=\"number\">1.61</p><p>a &amp; b</p><p class=\"link\">the paper: 1.58</p>"));
        assert!(!page.contains("Checks met"));
        assert_well_formed(&results_page(&Results { sections: Vec::new(), ..results }).unwrap());
    }
}
