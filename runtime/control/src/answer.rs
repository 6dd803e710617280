//! [`Controlled`]: what a process shows and lets change, and the lines that answer a request with it.

use yonder_settings::{Name, Refusal, ReplyLine, Request, Row, Value};

/// A process that answers. Called on the thread of the server, which other clients wait for.
pub trait Controlled: Send + Sync {
    /// Which process it is, and how much memory it has.
    fn about(&self) -> Row;

    /// All settings and what they are set to.
    fn settings(&self) -> Vec<(Name, Value)>;

    /// Changes a setting. The value is of the setting's kind.
    ///
    /// # Errors
    /// If the setting does not take the value, with what it takes.
    fn set(&self, name: Name, value: Value) -> Result<(), Refusal>;

    /// Its counters.
    fn stats(&self) -> Row;

    /// Its regions, one a row.
    fn regions(&self) -> Vec<Row>;

    /// How much of its memory has not been touched for how long.
    fn cold(&self) -> Vec<Row>;
}

/// The lines that answer a line.
pub(crate) fn answer(controlled: &dyn Controlled, line: &[u8]) -> String {
    let rows = Request::parse(line).map_err(Refusal::Refused).and_then(|request| rows(controlled, request));
    refused_or(rows)
}

/// The lines of an answer.
pub(crate) fn refused_or(rows: Result<Vec<Row>, Refusal>) -> String {
    let lines = match rows {
        Ok(rows) => rows.into_iter().map(ReplyLine::Row).chain([ReplyLine::Done]).collect(),
        Err(refusal) => vec![ReplyLine::Not(refusal)],
    };
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn rows(controlled: &dyn Controlled, request: Request) -> Result<Vec<Row>, Refusal> {
    let setting = |(name, value): (Name, Value)| {
        Row::new()
            .with("name", name.to_string().as_str())
            .with("value", value.to_string().as_str())
            .with("amount", value.amount())
            .with("unit", value.kind().unit())
    };
    let one = |wanted: Name| {
        let found = controlled.settings().into_iter().find(|(name, _)| *name == wanted);
        found.map(|found| vec![setting(found)]).ok_or_else(|| {
            Refusal::Refused(format!("there is no {wanted}: `yonder ctl regions` shows the regions that there are"))
        })
    };
    match request {
        Request::About => Ok(vec![controlled.about()]),
        Request::Get(None) => Ok(controlled.settings().into_iter().map(setting).collect()),
        Request::Get(Some(name)) => one(name),
        Request::Set(name, value) => {
            controlled.set(name, value)?;
            one(name)
        }
        Request::Stats => Ok(vec![controlled.stats()]),
        Request::Regions => Ok(controlled.regions()),
        Request::Cold => Ok(controlled.cold()),
    }
}
