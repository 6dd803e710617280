//! The report as one HTML page that needs nothing else: its style and its plots are inside.
//!
//! Every text of the report passes through [`Escaped`]; the plots escape their own. The page is well-formed XML too,
//! which the tests check.

use std::fmt::{self, Display, Write};

use crate::ReportError;
use crate::figures::{Figure, figures};
use crate::model::{Chart, Curve, FarMemory, Machine, Point, Ratio, Report, Setting};
use crate::numbers::{microseconds, rate, ratio};
use crate::plot::marker;

/// How many ratios are shown in large type at the top.
const HEADLINES_MAX: usize = 4;

const STYLE: &str = include_str!("page.css");

/// What far memory is called that is not another machine's.
pub(crate) const EMULATED: &str = "Emulated far memory";

/// The whole page.
pub fn html_page(report: &Report) -> Result<String, ReportError> {
    let parts = [
        header(&report.title, &report.far_memory, &report.explanation),
        headlines(&report.ratios),
        ratio_table(&report.ratios),
        charts(report)?,
        conditions(&report.machine, &report.settings, &report.command),
        notes_section(&report.notes),
    ];
    Ok(page(&report.title, &parts.concat()))
}

/// A page with this body.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = Escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A text with every character that HTML gives a meaning written as a reference.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Control characters have no place in a page, and one of them ends it for an XML reader.
                control if control.is_control() && !control.is_whitespace() => f.write_char('\u{fffd}')?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

pub(crate) fn header(title: &str, far_memory: &FarMemory, explanation: &[String]) -> String {
    let mut out = format!("<header>\n<h1>{}</h1>\n", Escaped(title));
    out += &match far_memory {
        FarMemory::Emulated(how) => format!(
            "<p class=\"far\"><strong class=\"emulated\">{EMULATED}</strong> <span>{}</span></p>\n",
            Escaped(how)
        ),
        FarMemory::Remote(how) => format!("<p class=\"far\"><span>Far memory: {}</span></p>\n", Escaped(how)),
    };
    out + &paragraphs(explanation) + "</header>\n"
}

/// A paragraph for each text.
pub(crate) fn paragraphs(texts: &[String]) -> String {
    texts.iter().map(|text| format!("<p>{}</p>\n", Escaped(text))).collect()
}

/// The first ratios in large type.
fn headlines(ratios: &[Ratio]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let card = |entry: &Ratio| {
        let paper = entry.paper.map_or_else(String::new, |paper| format!("<span>paper {}</span>", ratio(paper)));
        format!(
            "<div class=\"card\"><p class=\"number\">{}</p><p class=\"what\">{}</p>\
             <p class=\"beside\">{paper}<span>{}</span></p></div>\n",
            ratio(entry.ours),
            Escaped(&entry.what),
            Escaped(&entry.condition)
        )
    };
    let cards: String = ratios.iter().take(HEADLINES_MAX).map(card).collect();
    format!("<section class=\"cards\" aria-label=\"Headline ratios\">\n{cards}</section>\n")
}

/// Whether something is as it should be, in the words for either.
pub(crate) fn verdict(met: bool, yes: &str, no: &str) -> String {
    let (class, mark, words) = if met { ("met", '\u{2713}', yes) } else { ("missed", '\u{2717}', no) };
    format!("<span class=\"{class}\">{mark} {words}</span>")
}

/// Every chart as a section of its own.
fn charts(report: &Report) -> Result<String, ReportError> {
    if report.charts.is_empty() {
        return Ok("<section>\n<h2>Measurements</h2>\n<p>Nothing was measured.</p>\n</section>\n".to_owned());
    }
    report.charts.iter().map(|chart| chart_section(chart, &report.far_memory)).collect()
}

/// A chart's heading, words, plots and table; `kind` says whether its far memory was emulated.
fn chart_section(chart: &Chart, kind: &FarMemory) -> Result<String, ReportError> {
    let mut out = format!("<section class=\"chart\">\n<h2>{}</h2>\n", Escaped(&chart.title));
    if !chart.far_memory.is_empty() {
        let label = match kind {
            FarMemory::Emulated(_) => EMULATED,
            FarMemory::Remote(_) => "Far memory",
        };
        out += &format!("<p class=\"link\">{label}: {}</p>\n", Escaped(&chart.far_memory));
    }
    if !chart.explanation.is_empty() {
        out += &format!("<p>{}</p>\n", Escaped(&chart.explanation));
    }
    if chart.is_measured() {
        out += &plots(chart)?;
        out += &measurement_table(chart);
    } else {
        out += "<p>Nothing was measured.</p>\n";
    }
    Ok(out + "</section>\n")
}

/// The legend and the plots of a chart; nothing if no request was answered.
fn plots(chart: &Chart) -> Result<String, ReportError> {
    let figures = figures(chart)?;
    if figures.is_empty() {
        return Ok(String::new());
    }
    let mut legend = String::new();
    for (index, curve) in chart.curves.iter().enumerate() {
        legend += &format!("<li>{}{}</li>\n", inline(&marker(index)?, None), Escaped(&curve.name));
    }
    let mut out = format!(
        "<ul class=\"legend\">\n{legend}<li class=\"hint\">hollow: saturated, the server did not keep up</li>\n</ul>\n\
         <div class=\"plots\">\n"
    );
    for Figure { title, caption, svg } in figures {
        let svg = inline(&svg, Some(&format!("{}: {title}", chart.title)));
        let words = format!("<figcaption><strong>{title}</strong> <span>{caption}</span></figcaption>\n");
        out += &figure(&(words + &svg));
    }
    Ok(out + "</div>\n")
}

/// A figure with a picture, and its words if it has none inside.
pub(crate) fn figure(inside: &str) -> String {
    format!("<figure>\n{inside}</figure>\n")
}

/// A plot's SVG as a part of the page: without the name of its format, which the page implies, and with a name for
/// readers that do not see it.
pub(crate) fn inline(svg: &str, name: Option<&str>) -> String {
    let role = match name {
        Some(name) => format!("<svg role=\"img\" aria-label=\"{} plot\" ", Escaped(name)),
        None => "<svg aria-hidden=\"true\" ".to_owned(),
    };
    svg.replacen("<svg ", &role, 1).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

fn ratio_table(ratios: &[Ratio]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let or_dash = |value: Option<f64>| value.map_or_else(|| "\u{2013}".to_owned(), ratio);
    let row = |entry: &Ratio| {
        let note =
            if entry.note.is_empty() { String::new() } else { format!("<br/><small>{}</small>", Escaped(&entry.note)) };
        let [condition, source] = [&entry.condition, &entry.paper_source].map(|text| Escaped(text).to_string());
        let what = format!("{}{note}", Escaped(&entry.what));
        ("", vec![what, ratio(entry.ours), or_dash(entry.paper), condition, source])
    };
    use Column::{Name, Number, Words};
    let columns = [Name("Ratio"), Number("Here"), Number("Paper"), Words("Measured"), Words("Paper\u{2019}s source")];
    let table = table("ratios", &columns, ratios.iter().map(row));
    format!("<section>\n<h2>Beside the paper</h2>\n{table}</section>\n")
}

fn measurement_table(chart: &Chart) -> String {
    use Column::{Name, Number, Words};
    let columns = [
        Name("Mode"),
        Number("Offered/s"),
        Number("Achieved/s"),
        Number("P50 \u{b5}s"),
        Number("P99 \u{b5}s"),
        Number("P99.9 \u{b5}s"),
        Number("Dropped"),
        Words(""),
    ];
    let rows = chart.curves.iter().flat_map(|curve| {
        curve.points.iter().enumerate().map(|(index, point)| measurement_row(curve, index == 0, point))
    });
    table("measurements", &columns, rows)
}

/// A row's classes and its cells.
fn measurement_row(curve: &Curve, is_first: bool, point: &Point) -> (&'static str, Vec<String>) {
    let (class, remark) = match (is_first, point.is_saturated()) {
        (true, true) => ("first saturated", "saturated"),
        (true, false) => ("first", ""),
        (false, true) => ("saturated", "saturated"),
        (false, false) => ("", ""),
    };
    let cells = [
        if is_first { Escaped(&curve.name).to_string() } else { String::new() },
        rate(point.offered_per_s),
        rate(point.achieved_per_s),
        microseconds(point.p50_us),
        microseconds(point.p99_us),
        microseconds(point.p999_us),
        point.dropped.to_string(),
        remark.to_owned(),
    ];
    (class, cells.to_vec())
}

/// A column of a table, by its head.
#[derive(Clone, Copy)]
pub(crate) enum Column<'a> {
    /// What a row is of.
    Name(&'a str),
    /// Numbers, at the right.
    Number(&'a str),
    /// Words, at the left.
    Words(&'a str),
}

/// A table whose cells are parts of a page already, each row behind its classes.
pub(crate) fn table<'a>(
    class: &str,
    columns: &[Column<'_>],
    rows: impl Iterator<Item = (&'a str, Vec<String>)>,
) -> String {
    let head = |column: &Column<'_>| match column {
        Column::Name(name) | Column::Number(name) => format!("<th>{}</th>", Escaped(name)),
        Column::Words(name) => format!("<th class=\"text\">{}</th>", Escaped(name)),
    };
    let cell = |(column, text): (&Column<'_>, &String)| match column {
        Column::Name(_) => format!("<th scope=\"row\">{text}</th>"),
        Column::Number(_) => format!("<td>{text}</td>"),
        Column::Words(_) => format!("<td class=\"text\">{text}</td>"),
    };
    let row = |(class, cells): (&str, Vec<String>)| {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        format!("<tr{class}>{}</tr>\n", columns.iter().zip(&cells).map(cell).collect::<String>())
    };
    let head: String = columns.iter().map(head).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{}</tbody>\n\
         </table></div>\n",
        rows.map(row).collect::<String>()
    )
}

/// What was in force: machine, settings, and the command to measure again.
pub(crate) fn conditions(machine: &Machine, settings: &[Setting], command: &str) -> String {
    let pairs = machine.pairs().into_iter().chain(settings.iter().map(Setting::pair));
    let pairs: String = pairs
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", Escaped(&name), Escaped(&value)))
        .collect();
    let mut out = format!("<section>\n<h2>Machine and settings</h2>\n<dl>\n{pairs}</dl>\n");
    if !command.is_empty() {
        out += &format!("<p>Measure again: <code>{}</code></p>\n", Escaped(command));
    }
    out + "</section>\n"
}

/// A section of remarks; nothing without any.
pub(crate) fn notes_section(remarks: &[String]) -> String {
    let list = notes(remarks, "h2");
    if list.is_empty() { list } else { format!("<section>\n{list}</section>\n") }
}

/// A list of remarks below a heading of that level; nothing without any.
pub(crate) fn notes(remarks: &[String], heading: &str) -> String {
    if remarks.is_empty() {
        return String::new();
    }
    let items: String = remarks.iter().map(|remark| format!("<li>{}</li>\n", Escaped(remark))).collect();
    format!("<{heading}>Notes</{heading}>\n<ul>\n{items}</ul>\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::Setting;
    use crate::model::samples::{empty, report};
    use crate::write_html;

    /// Elements that this page writes as one tag.
    fn is_single(tag: &str) -> bool {
        tag.ends_with('/') || tag.starts_with('!')
    }

    /// Walks over the tags of a page and panics where they do not nest.
    pub(crate) fn assert_well_formed(page: &str) {
        let (mut open, mut rest) = (Vec::new(), page);
        while let Some((text, after)) = rest.split_once('<') {
            assert!(open.last() == Some(&"style") || !text.contains('>'), "a stray '>' in {text:?}");
            let (tag, after) = after.split_once('>').expect("every tag is closed");
            assert!(!tag.contains('<'), "a stray '<' in {tag:?}");
            assert_eq!(tag.matches('"').count() % 2, 0, "an open attribute in {tag:?}");
            let name = tag.split_whitespace().next().expect("a tag has a name");
            if let Some(name) = name.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "after {} bytes", page.len() - after.len());
            } else if !is_single(tag) {
                open.push(name);
            }
            rest = after;
        }
        assert!(open.is_empty(), "never closed: {open:?}");
    }

    #[test]
    fn the_page_is_whole() {
        let page = html_page(&report()).unwrap();
        assert_well_formed(&page);
        assert_eq!(page.matches("<figure>").count(), 8);
        assert_eq!(page.matches("<svg role=\"img\"").count(), 8);
        assert_eq!(page.matches("<table class=\"measurements\">").count(), 2);
        for text in [
            "Emulated far memory",
            "2.5 us, 100 Gbit/s",
            "1.71x",
            "paper 1.58x",
            "<span>with 97 % of 2 CPUs</span>",
            "<td class=\"text\">with 52 % of 2 CPUs</td>",
            "Adios, figure 7(d)",
            "the load generator shares the CPUs",
            "<dt>kernel</dt><dd>Linux 6.18</dd>",
            "<dt>local</dt><dd>20 %</dd>",
            "yonder demo --out demo-report",
            "<td>138 K</td>",
        ] {
            assert!(page.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn ratios_come_first_and_every_chart_keeps_its_own_together() {
        let page = html_page(&report()).unwrap();
        let positions: Vec<_> = [
            "class=\"cards\"",
            "<h2>Beside the paper</h2>",
            "<h2>Random reads of an array (no network)</h2>",
            "Emulated far memory: 2.5 us, 100 Gbit/s",
            "Each request reads eight bytes.",
            "aria-label=\"Random reads of an array (no network): P99.9 latency plot\"",
            "<td>120 K</td>",
            "<h2>A memcached server over loopback</h2>",
            "Emulated far memory: 25 us, 100 Gbit/s",
            "A client reads and writes values through TCP.",
            "aria-label=\"A memcached server over loopback: P99.9 latency plot\"",
            "<td>18.1 K</td>",
            "<h2>Machine and settings</h2>",
        ]
        .iter()
        .map(|text| page.find(text).unwrap_or_else(|| panic!("{text} is missing")))
        .collect();
        assert!(positions.is_sorted(), "{positions:?}");
    }

    #[test]
    fn nothing_is_loaded_and_nothing_runs() {
        let page = html_page(&report()).unwrap().to_lowercase();
        for forbidden in
            ["http:", "https:", "//", "<script", "<link", "<iframe", "<img", "@import", "url(", "javascript:"]
        {
            assert!(!page.contains(forbidden), "the page has {forbidden}");
        }
    }

    #[test]
    fn texts_are_escaped_wherever_they_appear() {
        const EVIL: &str = "</title><script>alert(\"1\" & '2')</script>\u{1}";
        let evil = EVIL.to_owned();
        let mut report = report();
        for text in [&mut report.title, &mut report.command, &mut report.machine.kernel, &mut report.machine.text] {
            *text = evil.clone();
        }
        report.far_memory = FarMemory::Emulated(evil.clone());
        (report.explanation, report.notes) = (vec![evil.clone()], vec![evil.clone()]);
        report.settings = vec![Setting { name: evil.clone(), value: evil.clone() }];
        let chart = &mut report.charts[0];
        (chart.title, chart.explanation, chart.far_memory) = (evil.clone(), evil.clone(), evil.clone());
        chart.curves[0].name = evil.clone();
        let ratio = &mut report.ratios[0];
        (ratio.what, ratio.condition) = (evil.clone(), evil.clone());
        (ratio.paper_source, ratio.note) = (evil.clone(), evil);
        let page = html_page(&report).unwrap();
        assert_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains("alert(\"1") && !page.contains('\u{1}'));
        let escaped = "&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\u{fffd}";
        // The title is there twice, and so are the curve's name and the ratio's words and condition; the chart's title
        // is above it and with its four plots.
        assert_eq!(page.matches(escaped).count(), 25);
    }

    #[test]
    fn a_report_without_measurements_says_so() {
        let mut report = empty();
        let page = html_page(&report).unwrap();
        assert_well_formed(&page);
        assert!(page.contains("Nothing was measured.") && !page.contains("<svg"));
        report.far_memory = FarMemory::Remote("tcp".into());
        assert!(!html_page(&report).unwrap().contains("Emulated"));
    }

    #[test]
    fn a_chart_shows_what_it_has() {
        let mut report = report();
        report.far_memory = FarMemory::Remote("tcp".into());
        (report.charts[0].far_memory, report.charts[0].explanation) = (String::new(), String::new());
        report.charts[0].curves.iter_mut().for_each(|curve| curve.points.clear());
        report.charts[1].curves.iter_mut().flat_map(|curve| &mut curve.points).for_each(|point| {
            (point.p50_us, point.p99_us, point.p999_us) = (f64::NAN, f64::NAN, f64::NAN);
        });
        let page = html_page(&report).unwrap();
        assert_well_formed(&page);
        assert!(
            page.contains("<h2>Random reads of an array (no network)</h2>\n<p>Nothing was measured.</p>\n</section>")
        );
        assert!(page.contains("Far memory: 25 us") && !page.contains("Emulated"));
        assert!(page.contains("<td>18.1 K</td>") && !page.contains("<svg"), "the table is there, the plots are not");
    }

    #[test]
    fn the_style_knows_the_colours_of_the_plots() {
        let page = html_page(&report()).unwrap();
        let (style, plots) = page.split_at(page.find("</style>").unwrap());
        for attribute in ["fill", "stroke"] {
            let opening = format!("{attribute}=\"#");
            for (at, _) in plots.match_indices(&opening) {
                let drawn = &plots[at..at + opening.len() + 7];
                assert!(style.contains(&format!("[{drawn}]")), "{drawn} is drawn but stays as it is in the dark");
            }
        }
    }

    #[test]
    fn the_file_is_written_or_the_error_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let path = write_html(&report(), &directory.path().join("new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), html_page(&report()).unwrap());
        let message = write_html(&report(), &path).unwrap_err().to_string();
        assert!(
            message.starts_with("cannot write ")
                && message.ends_with("name a directory that can be written with --out DIR")
        );
    }
}
