//! `bench vector`: searches of a Faiss index with its inverted lists in far memory (Adios, section 5.2).
//!
//! Vectors are made up in BIGANN's shape. Every answer is compared, bit by bit, with that of the same index before its
//! lists were moved.

use serde::Serialize;
use yonder::FarMemory;
use yonder_faiss::{Collection, Searcher, Searches, nearest, recall};

use crate::app::{App, AppMemory, AppResult, AppRun};
use crate::{BenchError, OnProgress};

/// Queries that are asked again and again.
const QUERIES_ASKED: usize = 1024;
/// Those of them of which the recall is measured, by looking at all vectors.
const QUERIES_RECALLED: usize = 32;
/// Room for lists in the region: they begin at pages.
const PAGE: u64 = 4096;

/// How searches go.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    /// Lists of the index.
    pub lists: usize,
    /// Lists that a search looks at.
    pub probes: usize,
    /// Neighbours that are wanted.
    pub neighbours: usize,
}

/// What is the search's own of a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SearchDetails {
    /// Vectors.
    pub vectors: usize,
    /// Lists of the index.
    pub lists: usize,
    /// Lists that a search looks at.
    pub probes: usize,
    /// Neighbours that are wanted.
    pub neighbours: usize,
    /// Of the neighbours that are nearest, the share that is found; the same in local memory.
    pub recall: f64,
}

/// An index in far memory that runs are made on.
pub struct Lists {
    app: App<Searcher>,
    searches: Searches,
    details: SearchDetails,
}

impl Lists {
    /// Makes an index of as many vectors as `memory.data` takes, and moves its lists to far memory.
    ///
    /// # Errors
    /// If Faiss is missing, there are more lists than vectors, or far memory cannot be had.
    pub fn prepare(memory: AppMemory, settings: SearchSettings, progress: OnProgress<'_>) -> Result<Self, BenchError> {
        let SearchSettings { lists, probes, neighbours } = settings;
        let collection =
            Collection::of_bytes(memory.data, lists).map_err(|few| BenchError::Settings(few.to_string()))?;
        let far = FarMemory::open(&memory.far, memory.paging)?;
        progress("making vectors", 0.0);
        let vectors = collection.vectors();
        let index = collection.index(&vectors, &mut |share| progress("making the index", share))?;
        progress("searching in local memory", 0.0);
        let asked = collection.queries(QUERIES_ASKED);
        let searches = Searches::of(&index, &asked, neighbours, probes)?;
        let recall = {
            let of = |at: usize| recall(&searches.expected()[at], &nearest(&vectors, asked.get(at), neighbours));
            (0..QUERIES_RECALLED).map(of).sum::<f64>() / QUERIES_RECALLED as f64
        };
        let details = SearchDetails { vectors: vectors.count(), lists, probes, neighbours, recall };
        drop(vectors);
        progress("moving lists to far memory", 0.0);
        let data = index.list_bytes()? as u64;
        let region = far.region((data + PAGE).next_multiple_of(2 << 20))?;
        let searcher = Searcher::open(index, Some(region))?;
        let memory = AppMemory { data, ..memory };
        Ok(Self { app: App::new("vector", memory, far, (searcher, yonder_faiss::STACK_BYTES)), searches, details })
    }

    /// Runs searches.
    ///
    /// # Errors
    /// If an answer is not that of the local index, or the threads cannot run.
    pub fn run(&self, run: &AppRun, progress: OnProgress<'_>) -> Result<AppResult<SearchDetails>, BenchError> {
        self.app.run(run, |seed| self.searches.shuffled(seed), || self.details, progress)
    }
}
