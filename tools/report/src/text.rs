//! Tables for a terminal, in aligned columns and without colours.

use crate::table::Table;

/// A table as lines of text that end with a newline: its columns as wide as their widest cell, two spaces apart, with a
/// rule under the head. Numbers stand at the right, words at the left.
#[must_use]
pub fn text_table(table: &Table) -> String {
    let head: Vec<String> = table.columns.iter().map(|column| column.name.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(table.texts()).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().enumerate().map(|(column, cell)| match table.is_numeric(column) {
            true => format!("{cell:>0$}", widths[column]),
            false => format!("{cell:<0$}", widths[column]),
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    format!("{}{rule}\n{}", line(&rows[0]), rows[1..].iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_words_at_the_left() {
        let mut numbers = Table::new("a", "", &[("system", 0), ("p99_us", 1), ("drops", 0)]);
        assert_eq!(text_table(&numbers), "system  p99_us  drops\n---------------------\n");
        numbers.push(vec!["Adios".into(), 12.34.into(), 0.0.into()]);
        numbers.push(vec!["DiLOS".into(), f64::NAN.into(), 1234.0.into()]);
        let rows = "Adios     12.3      0\nDiLOS        -   1234\n";
        assert_eq!(text_table(&numbers), format!("system  p99_us  drops\n---------------------\n{rows}"));
    }
}
