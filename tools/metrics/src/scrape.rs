//! [`Scrape`]: the Prometheus text format, read back.
//!
//! Pure, and strict: what is not the format is an error with its line. `render` writes what is read here.

use std::collections::BTreeMap;

use crate::names;

/// One line of metrics: a name with labels and a value.
#[derive(Clone, PartialEq, Debug)]
struct Line {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// All metrics of one answer.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Scrape {
    lines: Vec<Line>,
}

/// Why a text is not what Yonder's servers answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ScrapeError {
    /// A line is not of the format.
    #[error("line {line} is no metric")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// The format is right, but none of the metrics is Yonder's.
    #[error("it has no metric named {}...", names::PREFIX)]
    Foreign,
}

impl Scrape {
    /// Reads an answer. Metrics of others beside Yonder's are fine.
    pub(crate) fn parse(text: &str) -> Result<Self, ScrapeError> {
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
            .map(|(index, line)| parse_line(line.trim()).ok_or(ScrapeError::Line { line: index + 1 }))
            .collect::<Result<Vec<_>, _>>()?;
        if !lines.iter().any(|line| line.name.starts_with(names::PREFIX)) {
            return Err(ScrapeError::Foreign);
        }
        Ok(Self { lines })
    }

    /// Value of a metric without labels.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.labelled(name, &[])
    }

    /// Value of a metric with exactly these labels, in any order.
    pub(crate) fn labelled(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has =
            |line: &Line| labels.iter().all(|(key, value)| line.labels.iter().any(|(k, v)| k == key && v == value));
        let found = |line: &&Line| line.name == name && line.labels.len() == labels.len() && has(line);
        self.lines.iter().find(found).map(|line| line.value)
    }

    /// Values of a metric that has this label alone, by what the label is.
    pub(crate) fn by_label(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let labelled = |line: &'_ Line| match &line.labels[..] {
            [(key, _)] => line.name == name && key == label,
            _ => false,
        };
        let found = self.lines.iter().filter(|line| labelled(line));
        found.map(|line| (line.labels[0].1.as_str(), line.value)).collect()
    }

    /// Names and values of Yonder's metrics without labels, by name.
    pub(crate) fn plain(&self) -> Vec<(&str, f64)> {
        let own = |line: &&Line| line.labels.is_empty() && line.name.starts_with(names::PREFIX);
        let mut plain: Vec<_> = self.lines.iter().filter(own).map(|line| (line.name.as_str(), line.value)).collect();
        plain.sort_by_key(|(name, _)| *name);
        plain
    }
}

/// `name value`, `name{labels} value`, either with a timestamp behind, which is not looked at.
fn parse_line(line: &str) -> Option<Line> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    is_name(name).then(|| Line { name: name.to_owned(), labels, value })
}

/// `key="value",...}` and what follows it. Values escape `\\`, `\"` and `\n`.
fn parse_labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, quoted) = text.split_once("=\"")?;
        let (value, rest) = unquote(quoted)?;
        if !is_name(key) {
            return None;
        }
        labels.push((key.to_owned(), value));
        text = rest;
    }
}

/// The text up to the closing quote, and what follows the quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                other if other.is_control() => char::REPLACEMENT_CHARACTER,
                other => other,
            }),
            // What would control a terminal is shown as a mark.
            (_, other) if other.is_control() => value.push(char::REPLACEMENT_CHARACTER),
            (_, other) => value.push(other),
        }
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    !text.is_empty() && text.bytes().all(allowed) && !text.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_labels_escapes_and_timestamps() {
        let text = "# HELP yonder_a what\n# TYPE yonder_a gauge\nyonder_a 3 1700000000\n\n\
            yonder_b{x=\"1\",y=\"a \\\"b\\\" \\\\ \\n}\"} 2.5e-6\nyonder_c NaN\nyonder_d +Inf\nother{} 1\n";
        let scrape = Scrape::parse(text).unwrap();
        assert_eq!(scrape.value("yonder_a"), Some(3.0));
        assert_eq!(scrape.labelled("yonder_b", &[("y", "a \"b\" \\ \n}"), ("x", "1")]), Some(2.5e-6));
        assert_eq!(scrape.labelled("yonder_b", &[("x", "1")]), None, "labels must be the same");
        assert!(scrape.by_label("yonder_b", "x").is_empty() && scrape.by_label("yonder_a", "x").is_empty());
        let two = Scrape::parse("yonder_b{x=\"2\"} 4\nyonder_b{x=\"1\"} 3\nyonder_b{y=\"1\"} 5\n").unwrap();
        assert_eq!(two.by_label("yonder_b", "x"), [("1", 3.0), ("2", 4.0)].into());
        assert!(scrape.value("yonder_c").unwrap().is_nan());
        assert_eq!(scrape.value("yonder_d"), Some(f64::INFINITY));
        assert_eq!(scrape.value("other"), Some(1.0));
        assert_eq!(scrape.value("yonder_e"), None);
        assert_eq!(
            scrape.plain().iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["yonder_a", "yonder_c", "yonder_d"]
        );
    }

    #[test]
    fn what_is_no_metric_is_named_by_its_line() {
        for wrong in
            ["<html>", "yonder_a", "yonder_a x", "yonder_a{x=1} 1", "yonder_a{x=\"1} 1", "{} 1", "1a 1", "a{ 1"]
        {
            let text = format!("yonder_ok 1\n{wrong}\n");
            assert_eq!(Scrape::parse(&text), Err(ScrapeError::Line { line: 2 }), "{wrong}");
        }
    }

    #[test]
    fn metrics_of_others_alone_are_not_yonders() {
        assert_eq!(Scrape::parse("go_threads 7\n"), Err(ScrapeError::Foreign));
        assert_eq!(Scrape::parse(""), Err(ScrapeError::Foreign));
    }

    #[test]
    fn labels_do_not_control_a_terminal() {
        let scrape = Scrape::parse("yonder_a{k=\"a\u{1b}]52;c\u{7}\\\u{9b}b\"} 1").unwrap();
        let shown = "a\u{fffd}]52;c\u{fffd}\u{fffd}b";
        assert_eq!(scrape.labelled("yonder_a", &[("k", shown)]), Some(1.0));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~\n\"{}=\\\\é]{0,80}") {
            let _ = Scrape::parse(&text);
        }

        #[test]
        fn labels_come_back(value in "[ -~\né]{0,20}", number in any::<f64>()) {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let scrape = Scrape::parse(&format!("yonder_a{{k=\"{quoted}\"}} {number}")).unwrap();
            let back = scrape.labelled("yonder_a", &[("k", &value)]).unwrap();
            prop_assert!(back == number || back.is_nan() && number.is_nan());
        }
    }
}
