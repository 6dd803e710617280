//! What processes have answered, as tables and as JSON.
//!
//! Names and units of fields are the processes'; `docs/guide/src/settings.md` has them.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use yonder::units::format_bytes;
use yonder_settings::{Datum, Row};

use crate::output::json_line;
use crate::table::{print, titled};

/// A row of one process, as a JSON object.
struct JsonRow<'a> {
    pid: u32,
    row: &'a Row,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("pid", &self.pid)?;
        for (name, datum) in self.row.fields().iter().filter(|(name, _)| name != "pid") {
            match datum {
                Datum::Nothing => object.serialize_entry(name, &())?,
                Datum::Number(number) => object.serialize_entry(name, number)?,
                Datum::Text(text) => object.serialize_entry(name, text)?,
            }
        }
        object.end()
    }
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// Settings, with their names.
    Settings,
    /// One setting, whose name is known.
    Value,
    Stats,
    Regions,
    Cold,
}

impl Shown {
    pub(super) fn show(self, pid: u32, rows: &[Row], json: bool) -> anyhow::Result<()> {
        if json {
            return rows.iter().try_for_each(|row| json_line(&JsonRow { pid, row }));
        }
        print(&self.table(rows))
    }

    /// Lines of cells, the first one of titles where it needs them.
    fn table(self, rows: &[Row]) -> Vec<Vec<String>> {
        match self {
            Self::Settings => rows.iter().map(|row| vec![text(row, "name"), text(row, "value")]).collect(),
            Self::Value => rows.iter().map(|row| vec![text(row, "value")]).collect(),
            Self::Stats => {
                let fields = rows.iter().flat_map(Row::fields);
                fields.map(|(name, datum)| vec![printable(name), quantity(name, datum)]).collect()
            }
            Self::Regions => {
                let cells = |row: &Row| {
                    let address = row.number("address").map_or_else(String::new, |address| format!("{address:#x}"));
                    let sizes = ["bytes", "resident_bytes", "quota_bytes"].map(|name| field(row, name));
                    [vec![field(row, "region"), address], sizes.into()].concat()
                };
                titled(&["REGION", "ADDRESS", "SIZE", "LOCAL", "QUOTA"], rows.iter().map(cells))
            }
            Self::Cold => {
                let cells = |row: &Row| {
                    let since =
                        row.number("untouched_s").map_or_else(String::new, |seconds| format!("{seconds} s or more"));
                    vec![field(row, "region"), since, field(row, "resident_bytes")]
                };
                titled(&["REGION", "UNTOUCHED FOR", "LOCAL"], rows.iter().map(cells))
            }
        }
    }
}

/// Shows processes with what they have said of themselves.
pub(super) fn show_processes(processes: &[(u32, Row)], json: bool) -> anyhow::Result<()> {
    if json {
        return processes.iter().try_for_each(|(pid, row)| json_line(&JsonRow { pid: *pid, row }));
    }
    if processes.is_empty() {
        return Ok(());
    }
    let cells = |(pid, row): &(u32, Row)| {
        let sizes = ["resident_bytes", "quota_bytes", "local_bytes"].map(|name| field(row, name));
        [vec![pid.to_string()], sizes.into(), vec![text(row, "far"), text(row, "command")]].concat()
    };
    print(&titled(&["PID", "LOCAL", "QUOTA", "LIMIT", "FAR", "COMMAND"], processes.iter().map(cells)))
}

/// A field as people read it; nothing if there is none.
fn field(row: &Row, name: &str) -> String {
    row.get(name).map_or_else(String::new, |datum| quantity(name, datum))
}

fn text(row: &Row, name: &str) -> String {
    row.text(name).map_or_else(String::new, printable)
}

fn quantity(name: &str, datum: &Datum) -> String {
    match datum {
        Datum::Nothing => "none".to_owned(),
        Datum::Number(number) if name.ends_with("bytes") => format_bytes(*number),
        Datum::Number(number) => number.to_string(),
        Datum::Text(text) => printable(text),
    }
}

/// A text without what a terminal obeys.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::aligned;

    #[test]
    fn a_row_is_an_object_with_its_fields_in_their_order() {
        let row = Row::new().with("name", "quota").with("amount", None).with("pid", 9);
        let text = serde_json::to_string(&JsonRow { pid: 7, row: &row }).unwrap();
        assert_eq!(text, r#"{"pid":7,"name":"quota","amount":null}"#);
    }

    #[test]
    fn tables_are_what_people_read() {
        let region = Row::new()
            .with("region", 0)
            .with("address", 0x3000_0000_0000)
            .with("bytes", 256 << 20)
            .with("resident_bytes", 12 << 20)
            .with("quota_bytes", None);
        assert_eq!(
            aligned(&Shown::Regions.table(&[region])),
            ["REGION  ADDRESS         SIZE     LOCAL   QUOTA", "0       0x300000000000  256 MiB  12 MiB  none"]
        );
        let cold = Row::new().with("region", 3).with("untouched_s", 60).with("resident_bytes", 4096);
        assert_eq!(
            aligned(&Shown::Cold.table(&[cold])),
            ["REGION  UNTOUCHED FOR  LOCAL", "3       60 s or more   4 KiB"]
        );
        let stats = Row::new().with("major_faults", 12).with("fetched_bytes", 4096);
        assert_eq!(aligned(&Shown::Stats.table(&[stats])), ["major_faults   12", "fetched_bytes  4 KiB"]);
        let setting = Row::new().with("name", "quota").with("value", "64MiB");
        assert_eq!(aligned(&Shown::Settings.table(std::slice::from_ref(&setting))), ["quota  64MiB"]);
        assert_eq!(aligned(&Shown::Value.table(&[setting])), ["64MiB"]);
    }

    #[test]
    fn what_a_terminal_obeys_is_not_printed() {
        let setting = Row::new().with("name", "\u{1b}[2J\n").with("value", "é");
        assert_eq!(aligned(&Shown::Settings.table(&[setting])), ["?[2J?  é"]);
    }
}
