//! [`run`]: the same queries at both places, whose answers must be the same.

use std::path::PathBuf;

use crate::{AppError, Costs, Meter, Tally};
use serde::Serialize;
use yonder::clib::Process;

use crate::frame::{Condition, Frame, Histogram, Place, Table, Values, generate, shuffle};

/// Bins of the histogram.
const BINS: usize = 32;
/// Distances of trips that a half, a tenth and a hundredth of them exceed.
const MADE_UP: [&str; 3] = ["distance > 2.08", "distance > 6.9", "distance > 13.8"];

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct FrameSettings {
    /// The memory node.
    pub node: String,
    /// A CSV file; without one, trips are made up.
    pub file: Option<PathBuf>,
    /// Trips to make up.
    pub rows: u64,
    /// What rows must be to count, all of them; without any, all rows of a file, and a half, a tenth and a hundredth of
    /// what is made up.
    pub wanted: Vec<Condition>,
    /// The column that is asked for; without one, the last column of numbers.
    pub column: Option<String>,
    /// How often each query is asked.
    pub rounds: u64,
    /// Parts to shuffle into.
    pub parts: usize,
}

impl FrameSettings {
    /// Trips that take some megabytes.
    #[must_use]
    pub const fn new(node: String) -> Self {
        Self { node, file: None, rows: 200_000, wanted: Vec::new(), column: None, rounds: 10, parts: 4 }
    }
}

/// What one query at one place took. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct FrameResult {
    /// Always `frame`.
    pub bench: &'static str,
    /// The memory node.
    pub node: String,
    /// The file, or `generated`.
    pub source: String,
    /// Rows of the table.
    pub rows: u64,
    /// `store`, `aggregate`, `histogram` or `shuffle`.
    pub query: &'static str,
    /// The column that was asked for.
    pub column: String,
    /// What rows had to be; empty if all counted.
    pub wanted: String,
    /// Where rows were selected and aggregated.
    pub place: Place,
    /// Rows that counted.
    pub matched: u64,
    /// Bytes that the same query moved at the client, divided by those that it moved here.
    pub times_fewer_bytes: Option<f64>,
    /// The median time of the same query at the client, divided by that of this one.
    pub times_faster: Option<f64>,
    /// What the queries took: an operation is one of them.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Stores a table, and asks all queries at both places.
pub fn run(settings: &FrameSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<FrameResult>, AppError> {
    if settings.rounds == 0 || settings.rows == 0 || settings.parts == 0 {
        let what = "there would be nothing to see: type 1 or more rows, rounds and parts".to_owned();
        return Err(AppError::Settings(what));
    }
    let table = match &settings.file {
        Some(file) => Table::open(file)?,
        None => generate(settings.rows),
    };
    let process = Process::create(&settings.node)?;
    let mut meter = Meter::new(&process)?;
    progress("store", 0.0);
    let (frame, costs) = timed(1, &mut meter, |meter| Frame::store(&table, meter))?;
    let mut bench = Bench { settings, column: column(settings, &table)?, frame, meter, results: Vec::new() };
    bench.push(("store", &[], Place::Client), table.rows(), costs);
    let queries = queries(settings)?;
    for (done, wanted) in queries.iter().enumerate() {
        progress("queries", done as f64 / (queries.len() + 1) as f64);
        bench.aggregate(wanted)?;
        bench.histogram(wanted)?;
    }
    progress("shuffle", 0.9);
    bench.shuffle(&table)?;
    Ok(bench.results)
}

fn queries(settings: &FrameSettings) -> Result<Vec<Vec<Condition>>, AppError> {
    if settings.wanted.is_empty() && settings.file.is_none() {
        return MADE_UP.iter().map(|text| Ok(vec![text.parse()?])).collect();
    }
    Ok(vec![settings.wanted.clone()])
}

/// The column that is asked for.
fn column(settings: &FrameSettings, table: &Table) -> Result<String, AppError> {
    let numbers = table.columns().iter().rev().find(|column| !matches!(column.values, Values::Text { .. }));
    let no_numbers = || AppError::Settings("the table has no column of numbers: name another file".to_owned());
    match &settings.column {
        Some(name) => Ok(name.clone()),
        None => numbers.map(|column| column.name.clone()).ok_or_else(no_numbers),
    }
}

struct Bench<'a> {
    settings: &'a FrameSettings,
    column: String,
    frame: Frame,
    meter: Meter,
    results: Vec<FrameResult>,
}

impl Bench<'_> {
    fn aggregate(&mut self, wanted: &[Condition]) -> Result<(), AppError> {
        let (rounds, column, frame) = (self.settings.rounds, &self.column, &self.frame);
        let mut ask = |place| timed(rounds, &mut self.meter, |meter| frame.summary(column, wanted, place, meter));
        let [(there, there_costs), (here, here_costs)] = [ask(Place::Node)?, ask(Place::Client)?];
        // As bytes, a sum that is not a number is like itself.
        same(&encoded(&there), &encoded(&here))?;
        self.push(("aggregate", wanted, Place::Client), here.count, here_costs);
        self.push(("aggregate", wanted, Place::Node), there.count, there_costs);
        Ok(())
    }

    /// The histogram is made at the client, of values that are selected at either place.
    fn histogram(&mut self, wanted: &[Condition]) -> Result<(), AppError> {
        let (rounds, column, frame) = (self.settings.rounds, &self.column, &self.frame);
        let mut ask = |place| {
            timed(rounds, &mut self.meter, |meter| {
                let values = frame.select(column, wanted, place, meter)?;
                let histogram = Histogram::of(&values, BINS);
                Ok((values, histogram))
            })
        };
        let [((there, there_bins), there_costs), ((here, here_bins), here_costs)] =
            [ask(Place::Node)?, ask(Place::Client)?];
        same(&there.to_bytes(), &here.to_bytes())?;
        same(&there_bins.counts, &here_bins.counts)?;
        self.push(("histogram", wanted, Place::Client), here.len() as u64, here_costs);
        self.push(("histogram", wanted, Place::Node), there.len() as u64, there_costs);
        Ok(())
    }

    fn shuffle(&mut self, table: &Table) -> Result<(), AppError> {
        let (key, frame, parts) = (&table.columns()[0].name, &self.frame, self.settings.parts);
        let (parts, costs) = timed(1, &mut self.meter, |meter| shuffle(frame, key, parts, meter))?;
        let rows = parts.iter().map(Frame::rows).sum();
        same(&rows, &table.rows())?;
        for part in parts {
            part.free(&mut self.meter)?;
        }
        self.push(("shuffle", &[], Place::Client), rows, costs);
        Ok(())
    }

    /// Adds a result. That of the client comes before that of the node, which is compared with it.
    fn push(&mut self, (query, wanted, place): (&'static str, &[Condition], Place), matched: u64, costs: Costs) {
        let client = self.results.last().filter(|_| place == Place::Node).map(|client| &client.costs);
        let moved = |costs: &Costs| (costs.fetched_bytes + costs.written_bytes) as f64;
        self.results.push(FrameResult {
            bench: "frame",
            node: self.settings.node.clone(),
            source: self.settings.file.as_ref().map_or("generated".to_owned(), |file| file.display().to_string()),
            rows: self.frame.rows(),
            query,
            column: self.column.clone(),
            wanted: wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
            place,
            matched,
            times_fewer_bytes: client.map(|client| moved(client) / moved(&costs)),
            times_faster: client.map(|client| client.p50_us / costs.p50_us),
            costs,
        });
    }
}

fn encoded(summary: &crate::frame::Summary) -> Vec<u8> {
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    bytes
}

fn same<T: PartialEq>(one: &T, other: &T) -> Result<(), AppError> {
    if one == other { Ok(()) } else { Err(AppError::WrongValues(1)) }
}

/// Does something several times; what came of it last, and what it took.
fn timed<T>(
    rounds: u64,
    meter: &mut Meter,
    mut work: impl FnMut(&mut Meter) -> Result<T, AppError>,
) -> Result<(T, Costs), AppError> {
    let (mut tally, start) = (Tally::default(), yonder::clock::now());
    let mut last = tally.time(meter, &mut work)?;
    for _ in 1..rounds {
        last = tally.time(meter, &mut work)?;
    }
    Ok((last, tally.costs((yonder::clock::now() - start) as f64 / 1e9)))
}
