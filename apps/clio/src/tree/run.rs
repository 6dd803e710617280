//! [`run`]: fills a tree with words, and searches it in every way, beside a local map that knows what must be found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::{AppError, Costs, Meter, Tally, together};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::clib::Process;

use crate::tree::insert::SPARE_NODES;
use crate::tree::{NODE_BYTES, Tree, Way, Words};

/// One search in so many is for a word that is not there.
const ABSENT_EVERY: u64 = 8;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct TreeSettings {
    /// The memory node.
    pub node: String,
    /// A file with a word in each line; without one, the machine's word list, or words that are made up.
    pub words: Option<PathBuf>,
    /// Most words to use.
    pub keys: usize,
    /// Clients at the same time, in one address space.
    pub clients: usize,
    /// Searches of each client, in each way.
    pub searches: u64,
}

impl TreeSettings {
    /// Small enough for a few seconds.
    #[must_use]
    pub const fn new(node: String) -> Self {
        Self { node, words: None, keys: 20_000, clients: 1, searches: 2000 }
    }
}

/// What inserting, or searching in one way, took. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct TreeResult {
    /// Always `tree`.
    pub bench: &'static str,
    /// The memory node.
    pub node: String,
    /// Where the words are from: a file, or `generated`.
    pub words: String,
    /// Words in the tree.
    pub keys: usize,
    /// Clients at the same time.
    pub clients: usize,
    /// `insert`; or how was searched: `reads`, `levels` or `whole`.
    pub way: &'static str,
    /// Bytes of the tree, without what clients have taken and not used.
    pub tree_bytes: u64,
    /// Round trips of one operation, on average.
    pub round_trips_per_op: f64,
    /// The median time of a search by reads, divided by that of this way; none of inserts.
    pub times_faster_than_reads: Option<f64>,
    /// What the operations took.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Fills a tree, and measures each way.
pub fn run(settings: &TreeSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<TreeResult>, AppError> {
    if settings.keys == 0 || settings.clients == 0 || settings.searches == 0 {
        let what = "without words, clients and searches there is nothing to see: type 1 or more of each";
        return Err(AppError::Settings(what.to_owned()));
    }
    let words = Words::load(settings.words.as_deref(), settings.keys)?;
    let model: BTreeMap<&[u8], u64> = words.list.iter().map(Vec::as_slice).zip(0..).collect();
    let process = Process::create(&settings.node)?;
    let mut meter = Meter::new(&process)?;
    let tree = Tree::create(room_for(&words, settings.clients), &mut meter)?;
    progress("insert", 0.0);
    let (tallies, seconds) = together(0..settings.clients, |client| fill(settings, &process, &tree, &model, client))?;
    let tree_bytes = (tree.nodes(&mut meter)? + 1) * NODE_BYTES;
    let result = |way: &'static str, costs: Costs, reads_us: Option<f64>| TreeResult {
        bench: "tree",
        node: settings.node.clone(),
        words: words.source.clone(),
        keys: model.len(),
        clients: settings.clients,
        way,
        tree_bytes,
        round_trips_per_op: costs.round_trips as f64 / costs.operations.max(1) as f64,
        times_faster_than_reads: reads_us.map(|reads_us| reads_us / costs.p50_us),
        costs,
    };
    let mut results = vec![result("insert", tallies.iter().collect::<Tally>().costs(seconds), None)];
    let mut reads_us = None;
    for (done, way) in Way::ALL.into_iter().enumerate() {
        progress(way.name(), (done + 1) as f64 / 4.0);
        let (tallies, seconds) =
            together(0..settings.clients, |client| search(settings, &process, &tree, (&words, &model), (client, way)))?;
        let costs = tallies.iter().collect::<Tally>().costs(seconds);
        let reads_us = *reads_us.get_or_insert(costs.p50_us);
        results.push(result(way.name(), costs, Some(reads_us)));
    }
    Ok(results)
}

/// Nodes for all words if no two had a byte in common, and for what clients take and do not use: less than a long word
/// of each handful, and the last handful.
fn room_for(words: &Words, clients: usize) -> u64 {
    2 * words.list.iter().map(|word| word.len() as u64).sum::<u64>() + 2 * SPARE_NODES * clients as u64
}

/// Inserts every word whose turn it is.
fn fill(
    settings: &TreeSettings,
    process: &Process,
    tree: &Tree,
    model: &BTreeMap<&[u8], u64>,
    client: usize,
) -> Result<Tally, AppError> {
    let mut meter = Meter::new(process)?;
    let mut tree = Tree::open(tree.address(), &mut meter)?;
    let mut tally = Tally::default();
    for (word, value) in model.iter().skip(client).step_by(settings.clients) {
        let old = tally.time(&mut meter, |meter| tree.insert(word, *value, meter))?;
        if old.is_some() {
            return Err(AppError::WrongValues(1));
        }
    }
    Ok(tally)
}

/// Searches for random words, and for some that are not there.
fn search(
    settings: &TreeSettings,
    process: &Process,
    tree: &Tree,
    (words, model): (&Words, &BTreeMap<&[u8], u64>),
    (client, way): (usize, Way),
) -> Result<Tally, AppError> {
    let mut meter = Meter::new(process)?;
    let mut tree = Tree::open(tree.address(), &mut meter)?;
    let (mut tally, mut wrong) = (Tally::default(), 0);
    // Every way searches for the same words.
    let mut random = SmallRng::seed_from_u64(client as u64);
    for turn in 0..settings.searches {
        let mut word = words.list[random.random_range(0..words.list.len())].clone();
        if turn % ABSENT_EVERY == 0 {
            let at = random.random_range(0..word.len());
            word[at] ^= 1;
        }
        let found = tally.time(&mut meter, |meter| tree.get(&word, way, meter))?;
        wrong += u64::from(found != model.get(word.as_slice()).copied());
    }
    if wrong > 0 { Err(AppError::WrongValues(wrong)) } else { Ok(tally) }
}
