//! What HTML pages share: the frame with the style inside, the header, tables, and what is below the sections. A page
//! needs nothing else.
//!
//! Every text passes through [`Escaped`]; the plots escape their own. Pages are well-formed XML too, which the tests of
//! `results_page` and `faults_page` check.

use std::fmt::{self, Display, Write};

use crate::model::{FarMemory, Machine, Setting};

const STYLE: &str = include_str!("page.css");

/// What far memory is called that is not another machine's.
pub(crate) const EMULATED: &str = "Emulated far memory";

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

/// Whether something is as it should be, in the words for either.
pub(crate) fn verdict(met: bool, yes: &str, no: &str) -> String {
    let (class, mark, words) = if met { ("met", '\u{2713}', yes) } else { ("missed", '\u{2717}', no) };
    format!("<span class=\"{class}\">{mark} {words}</span>")
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

/// A table whose cells are parts of a page already.
pub(crate) fn table(class: &str, columns: &[Column<'_>], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = |column: &Column<'_>| match column {
        Column::Name(name) | Column::Number(name) => format!("<th>{}</th>", Escaped(name)),
        Column::Words(name) => format!("<th class=\"text\">{}</th>", Escaped(name)),
    };
    let cell = |(column, text): (&Column<'_>, &String)| match column {
        Column::Name(_) => format!("<th scope=\"row\">{text}</th>"),
        Column::Number(_) => format!("<td>{text}</td>"),
        Column::Words(_) => format!("<td class=\"text\">{text}</td>"),
    };
    let row = |cells: Vec<String>| format!("<tr>{}</tr>\n", columns.iter().zip(&cells).map(cell).collect::<String>());
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
    let again = format!("<p>Measure again: <code>{}</code></p>\n", Escaped(command));
    format!("<section>\n<h2>Machine and settings</h2>\n<dl>\n{pairs}</dl>\n{again}</section>\n")
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
    //! What the tests of all pages check.

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

    /// Panics if a colour that is drawn stays as it is in the dark.
    pub(crate) fn assert_colours_are_known(page: &str) {
        let (style, plots) = page.split_at(page.find("</style>").expect("a style"));
        for attribute in ["fill", "stroke"] {
            let opening = format!("{attribute}=\"#");
            for (at, _) in plots.match_indices(&opening) {
                let drawn = &plots[at..at + opening.len() + 7];
                assert!(style.contains(&format!("[{drawn}]")), "{drawn} is drawn but stays as it is in the dark");
            }
        }
    }
}
