//! The faults of a run as a page: the picture, and every call site in a table.

use crate::ReportError;
use crate::faults::{FaultReport, FaultSite, fault_svg};
use crate::html::{Column, Escaped, figure, header, inline, notes_section, page, table};
use crate::numbers::{count, latency_tick};

/// Call sites that have a row.
const ROWS_MAX: usize = 200;

/// The report as one HTML page that needs nothing else.
pub fn fault_page(report: &FaultReport) -> Result<String, ReportError> {
    let picture = inline(&fault_svg(report)?, Some(&report.title));
    let body = [
        header(&report.title, &report.far_memory, std::slice::from_ref(&report.totals)),
        format!("<section>\n{}</section>\n", figure(&picture)),
        sites(&report.sites),
        notes_section(&report.notes),
    ];
    Ok(page(&report.title, &body.concat()))
}

fn sites(sites: &[FaultSite]) -> String {
    if sites.is_empty() {
        return String::new();
    }
    let left_out = match sites.len().saturating_sub(ROWS_MAX) {
        0 => String::new(),
        left_out => format!("<p>{left_out} more had less.</p>\n"),
    };
    use Column::{Name, Number, Words};
    let columns =
        [Name("Instruction"), Number("Waited"), Number("Major"), Number("Minor"), Words("Line"), Words("Process")];
    let table = table("measurements", &columns, sites.iter().take(ROWS_MAX).map(row));
    format!("<section>\n<h2>Call sites</h2>\n{table}{left_out}</section>\n")
}

fn row(site: &FaultSite) -> Vec<String> {
    vec![
        Escaped(&site.name).to_string(),
        latency_tick(site.faults.waited_seconds * 1e6),
        count(site.faults.major_faults),
        count(site.faults.minor_faults),
        Escaped(&site.line).to_string(),
        Escaped(&site.process).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tests::report;
    use crate::html::tests::{assert_colours_are_known, assert_well_formed};

    #[test]
    fn the_page_has_the_picture_and_every_call_site() {
        let page = fault_page(&report()).unwrap();
        assert_well_formed(&page);
        for words in [
            "<h1>sort &lt;words&gt;</h1>",
            "Emulated far memory",
            "<th scope=\"row\">merge+0x3f (sort)</th><td>50 ms</td><td>50</td><td>1</td><td class=\"text\">merge.c:7</td>",
            "<td class=\"text\">17 sort</td>",
            "one &amp; only",
            "Threads waiting",
        ] {
            assert!(page.contains(words), "{words} is missing");
        }
        assert!(!page.contains("http:") && !page.contains("<script"));
    }

    #[test]
    fn the_style_knows_the_colours() {
        assert_colours_are_known(&fault_page(&report()).unwrap());
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let mut many = report();
        many.sites = vec![many.sites[0].clone(); ROWS_MAX + 5];
        let page = fault_page(&many).unwrap();
        assert!(page.contains("<p>5 more had less.</p>"));
        (many.sites, many.notes) = (Vec::new(), Vec::new());
        let page = fault_page(&many).unwrap();
        assert_well_formed(&page);
        assert!(!page.contains("<table") && !page.contains("Notes"));
    }
}
