//! Vector search with the inverted lists of Faiss in far memory (Adios, section 5.2).
//!
//! [`build`] makes an [`Index`] of [`Vectors`], in local memory. [`Searcher::open`] is the adapter: it moves the lists
//! to a region, where Faiss reads them by loads, and serves searches on unithreads. The vectors are [`Clusters`], of
//! the shape of BIGANN's and following from their numbers, or BIGANN's own, out of a file ([`Vectors::open`]). What
//! should be found is known by looking at all ([`nearest`]), and how much of it was, by [`recall`].
//!
//! Files: `vectors` vectors and their files; `clusters` generated ones; `truth` what should be found; `lists` memory
//! for lists; `searches` what a load asks, and how it travels.
//!
//! Neighbours: [`library`] calls Faiss; `tools/bench` drives this.

#![deny(unsafe_code)]

mod clusters;
mod collection;
#[allow(unsafe_code)]
pub mod library;
mod lists;
mod searches;
mod truth;
mod vectors;

use std::io;
use std::sync::Arc;

pub use crate::library::{FaissError, Index, Neighbour};
use serde::{Deserialize, Serialize};
use yonder::sched::{Handler, checkpoint};
use yonder::{PagingCause, Region};

pub use crate::clusters::{Clusters, DIMENSION, QUERIES};
pub use crate::collection::{Collection, FewVectors};
use crate::lists::Lists;
pub use crate::searches::{Datagrams, Numbered, Searches};
pub use crate::truth::{nearest, recall};
pub use crate::vectors::{DIMENSION_MAX, Format, Problem, Vectors, VectorsError};

/// Stack of a unithread that calls Faiss, in bytes.
pub const STACK_BYTES: usize = 64 << 10;
/// Vectors for each list that its centroids are made of. Faiss warns below 39.
const TRAIN_PER_LIST: usize = 64;
/// Vectors that are added at a time.
const ADD_VECTORS: usize = 16 << 10;

/// What is asked of an index.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// A vector.
    pub query: Box<[f32]>,
    /// How many neighbours of it are wanted.
    pub k: usize,
    /// Lists that are looked at, those whose centroids are nearest.
    pub nprobe: usize,
}

/// Puts the vectors into `nlist` lists. `progress` is told the share that is done. On a thread, not on a unithread.
///
/// # Errors
/// If Faiss or a compiler is missing, or there are fewer vectors than lists.
pub fn build(vectors: &Vectors, nlist: usize, progress: &mut dyn FnMut(f64)) -> Result<Index, FaissError> {
    let sample = vectors.sample(nlist * TRAIN_PER_LIST);
    let mut index = Index::train(sample.numbers(), vectors.dimension(), nlist)?;
    let mut added = 0;
    for piece in vectors.numbers().chunks(ADD_VECTORS * vectors.dimension()) {
        index.add(piece)?;
        added += piece.len();
        progress(added as f64 / vectors.numbers().len() as f64);
    }
    Ok(index)
}

/// Why a search has failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A page of a list could not be had.
    #[error("far memory unavailable: {}", .0.text())]
    Paging(PagingCause),
    /// Faiss has refused it.
    #[error(transparent)]
    Faiss(FaissError),
}

impl From<FaissError> for SearchError {
    fn from(error: FaissError) -> Self {
        match error {
            FaissError::Lost(caught) => Self::Paging(PagingCause::of(caught)),
            other => Self::Faiss(other),
        }
    }
}

/// An index that requests are served from. Shared by all workers.
pub struct Searcher {
    index: Index,
}

impl Searcher {
    /// Serves from this index, with its lists moved to `region`, which is sealed then; without one they stay where they
    /// are.
    ///
    /// # Errors
    /// If the region is too small, or cannot be written.
    pub fn open(mut index: Index, region: Option<Region>) -> Result<Self, FaissError> {
        if let Some(region) = region {
            let lists = Arc::new(Lists::new(region));
            index.place(Arc::clone(&lists) as _)?;
            lists.seal().map_err(|error| FaissError::Unwritten(io::Error::other(error)))?;
        }
        Ok(Self { index })
    }

    /// The nearest vectors that are found, the nearest first. Every few vectors other requests may be served.
    ///
    /// # Errors
    /// If the request makes no sense for this index, or a page cannot be had.
    pub fn serve(&self, request: &Request) -> Result<Vec<Neighbour>, SearchError> {
        Ok(self.index.search(&request.query, request.k, request.nprobe, checkpoint)?)
    }

    /// What [`serve`](Self::serve) finds, by Faiss' own search, in one go: others run on this worker only while a page
    /// is on its way.
    ///
    /// # Errors
    /// As for `serve`.
    pub fn serve_at_once(&self, request: &Request) -> Result<Vec<Neighbour>, SearchError> {
        Ok(self.index.search_at_once(&request.query, request.k, request.nprobe)?)
    }
}

impl Handler for Searcher {
    type Request = Numbered<Request>;
    type Reply = Result<Numbered<Vec<Neighbour>>, SearchError>;

    fn handle(&self, (number, request): Self::Request) -> Self::Reply {
        checkpoint();
        Ok((number, self.serve(&request)?))
    }
}
