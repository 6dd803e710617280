//! [`run`]: puts both stores under load, from several clients of one address space, and checks every value.

use crate::{AppError, Costs, Meter, together};
use serde::Serialize;
use yonder::clib::Process;
use yonder_load::{Distribution, KeyChooser};

use crate::objects::ledger::{Ledger, VALUE_BYTES_MIN};
use crate::objects::workload::{Client, Mix, Work, client};
use crate::objects::{KeyValue, ObjectId};

/// YCSB's skew.
const ZIPF: Distribution = Distribution::Zipf { theta: 0.99 };

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct ObjectsSettings {
    /// The memory node.
    pub node: String,
    /// Clients at the same time.
    pub clients: usize,
    /// Operations of each client, in each workload.
    pub operations: u64,
    /// Pairs in the key-value store.
    pub keys: u64,
    /// Bytes of a value there.
    pub value_bytes: usize,
    /// Workloads on it.
    pub mixes: Vec<Mix>,
    /// Objects in the version store; 0 leaves it out.
    pub objects: u64,
    /// Bytes of a version there.
    pub version_bytes: usize,
    /// Versions that an object keeps.
    pub versions_kept: u32,
}

impl ObjectsSettings {
    /// As in the paper, but smaller: values of 1 KiB and versions of 16 bytes.
    #[must_use]
    pub fn new(node: String) -> Self {
        Self {
            node,
            clients: 2,
            operations: 5000,
            keys: 10_000,
            value_bytes: 1024,
            mixes: Mix::ALL.to_vec(),
            objects: 1000,
            version_bytes: 16,
            versions_kept: 16,
        }
    }
}

/// What one workload took. The fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectsResult {
    /// Always `objects`.
    pub bench: &'static str,
    /// The memory node.
    pub node: String,
    /// `key-value` or `multi-version`.
    pub store: &'static str,
    /// YCSB's letter: A has 50 % writes, B 5 %, C none.
    pub mix: Mix,
    /// How popular objects are.
    pub distribution: Distribution,
    /// Clients at the same time.
    pub clients: usize,
    /// Pairs or objects.
    pub objects: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Gets, or reads of some version.
    pub reads: u64,
    /// Puts, or appended versions.
    pub writes: u64,
    /// What the operations took.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Measures each workload.
pub fn run(settings: &ObjectsSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<ObjectsResult>, AppError> {
    check(settings)?;
    let process = Process::create(&settings.node)?;
    let mut results = Vec::new();
    if !settings.mixes.is_empty() {
        let bench = Bench { settings, process: &process, objects: settings.keys, value_bytes: settings.value_bytes };
        bench.pairs(&mut results, progress)?;
    }
    if settings.objects > 0 {
        let (objects, value_bytes) = (settings.objects, settings.version_bytes);
        let bench = Bench { settings, process: &process, objects, value_bytes };
        bench.versions(&mut results, progress)?;
    }
    Ok(results)
}

fn check(settings: &ObjectsSettings) -> Result<(), AppError> {
    let wrong = |what: String| Err(AppError::Settings(what));
    if settings.clients == 0 || settings.operations == 0 {
        return wrong("nobody would do anything: type --clients 1 and --operations 1 or more".to_owned());
    }
    let clients = settings.clients as u64;
    if settings.keys < clients && !settings.mixes.is_empty() {
        return wrong(format!("{} keys are too few for {clients} clients: type --keys {clients}", settings.keys));
    }
    if (1..clients).contains(&settings.objects) {
        return wrong(format!("{} objects are too few: type --objects {clients}, or 0", settings.objects));
    }
    if settings.value_bytes.min(settings.version_bytes) < VALUE_BYTES_MIN {
        return wrong(format!("values tell who wrote them: type a size of {VALUE_BYTES_MIN} bytes or more"));
    }
    Ok(())
}

/// One store under load.
struct Bench<'a> {
    settings: &'a ObjectsSettings,
    process: &'a Process,
    objects: u64,
    value_bytes: usize,
}

impl Bench<'_> {
    /// All mixes on one filling of the key-value store.
    fn pairs(&self, results: &mut Vec<ObjectsResult>, progress: &mut dyn FnMut(&str, f64)) -> Result<(), AppError> {
        let ledger = Ledger::new(self.objects);
        progress("filling the key-value store", 0.0);
        together(self.clients(&ledger, ZIPF)?, |mut client| client.fill_pairs())?;
        for (done, mix) in self.settings.mixes.iter().enumerate() {
            progress("key-value store", done as f64 / self.settings.mixes.len() as f64);
            let clients = self.clients(&ledger, ZIPF)?;
            let (works, seconds) = together(clients, |client| client.use_pairs(*mix, self.settings.operations))?;
            results.push(self.result("key-value", (*mix, ZIPF), &works, seconds)?);
        }
        let stats = KeyValue(&mut Meter::new(self.process)?).stats()?;
        // Every pair is there once, whatever was put how often.
        if stats.keys == self.objects { Ok(()) } else { Err(AppError::WrongValues(stats.keys.abs_diff(self.objects))) }
    }

    /// Uniform and skewed use of the version store.
    fn versions(&self, results: &mut Vec<ObjectsResult>, progress: &mut dyn FnMut(&str, f64)) -> Result<(), AppError> {
        let (kept, operations) = (self.settings.versions_kept, self.settings.operations);
        let ledger = Ledger::new(self.objects);
        progress("filling the version store", 0.0);
        let (made, _) = together(self.clients(&ledger, ZIPF)?, |mut client| client.fill_versions(kept))?;
        let mut made = made.concat();
        made.sort_unstable_by_key(|(object, _)| *object);
        let ids: Vec<ObjectId> = made.into_iter().map(|(_, id)| id).collect();
        for (done, distribution) in [Distribution::Uniform, ZIPF].into_iter().enumerate() {
            progress("version store", done as f64 / 2.0);
            let clients = self.clients(&ledger, distribution)?;
            let (works, seconds) = together(clients, |client| client.use_versions(&ids, kept, operations))?;
            results.push(self.result("multi-version", (Mix::A, distribution), &works, seconds)?);
        }
        Ok(())
    }

    fn clients<'l>(&self, ledger: &'l Ledger, distribution: Distribution) -> Result<Vec<Client<'l>>, AppError> {
        let clients = self.settings.clients as u64;
        let one = |number| {
            let chooser = KeyChooser::new(self.objects, distribution, number);
            let shape = (self.objects, self.value_bytes);
            Ok(client(Meter::new(self.process)?, ledger, chooser, (number, clients), shape))
        };
        (0..clients).map(one).collect()
    }

    fn result(
        &self,
        store: &'static str,
        (mix, distribution): (Mix, Distribution),
        works: &[Work],
        seconds: f64,
    ) -> Result<ObjectsResult, AppError> {
        let mut all = Work::default();
        works.iter().for_each(|work| all.merge(work));
        if all.wrong > 0 {
            return Err(AppError::WrongValues(all.wrong));
        }
        Ok(ObjectsResult {
            bench: "objects",
            node: self.settings.node.clone(),
            store,
            mix,
            distribution,
            clients: self.settings.clients,
            objects: self.objects,
            value_bytes: self.value_bytes,
            reads: all.reads,
            writes: all.writes,
            costs: all.tally.costs(seconds),
        })
    }
}
