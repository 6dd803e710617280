//! Indexes.
//!
//! UNSAFETY: functions of the glue, on objects that are there as long as what owns them here.

use std::ffi::c_int;
use std::sync::Arc;

use crate::library::FaissError;
use crate::library::functions::{Functions, List, Object, WHY_BYTES, Why, load};

/// Neighbours that one search may ask for.
pub const K_MAX: usize = 1 << 16;
/// Vectors that are looked at between two places where others may run: a few microseconds.
const STEP_VECTORS: usize = 32;
/// Where lists begin: at pages of their own, so that what is fetched for one is not of another.
const LIST_ALIGN: usize = 4096;

/// A vector that was found: its number, in the order in which vectors were added, and the square of how far it is.
pub type Neighbour = (i64, f32);

/// Memory for inverted lists. What was written is read back by loads from these addresses until it is given back.
pub trait Memory: Send + Sync {
    /// Takes so many bytes: their address, a multiple of 4096. `None` if there is no more memory.
    fn take(&self, bytes: usize) -> Option<usize>;

    /// Copies bytes to an address in what was taken.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&self, address: usize, from: &[u8]) -> std::io::Result<()>;

    /// Gives back what was taken.
    fn give_back(&self, address: usize, bytes: usize);
}

/// Memory that the lists of an index have. Given back when this is dropped.
struct Placed {
    memory: Arc<dyn Memory>,
    address: usize,
    bytes: usize,
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.memory.give_back(self.address, self.bytes);
    }
}

/// An `IndexIVFFlat` with squared Euclidean distances. Any threads may search it, and any unithreads.
pub struct Index {
    functions: &'static Functions,
    index: Object,
    dimension: usize,
    nlist: usize,
    /// Goes after the index, which is closed by then.
    placed: Option<Placed>,
}

// SAFETY: an object of Faiss is of no thread.
unsafe impl Send for Index {}
// SAFETY: Faiss' searches may run on any threads at a time, as long as nothing is added, which takes `&mut`. They add
// to counters of the whole library without a lock, which nobody here reads.
unsafe impl Sync for Index {}

impl Index {
    /// An empty index of `nlist` lists, with the centroids of these vectors, of `dimension` numbers each. Makes and
    /// loads the glue if it is the first. On a thread, not on a unithread: this takes long, and more stack.
    ///
    /// # Errors
    /// If Faiss is missing, or what it says: there must be as many vectors as lists.
    ///
    /// # Panics
    /// If the numbers are not those of whole vectors, or there is to be no list.
    pub fn train(vectors: &[f32], dimension: usize, nlist: usize) -> Result<Self, FaissError> {
        assert!(nlist > 0, "an index has lists");
        let functions = load()?;
        let (count, mut index) = (count(vectors, dimension), std::ptr::null_mut());
        // SAFETY: the vectors outlive the call.
        unsafe { checked(|why| (functions.train)(dimension, nlist, count, vectors.as_ptr(), &raw mut index, why))? };
        Ok(Self { functions, index, dimension, nlist, placed: None })
    }

    /// Adds vectors to their lists. They get the next numbers.
    ///
    /// # Errors
    /// What Faiss says.
    ///
    /// # Panics
    /// If the numbers are not those of whole vectors, or the lists have been moved: they are only read then.
    pub fn add(&mut self, vectors: &[f32]) -> Result<(), FaissError> {
        assert!(self.placed.is_none(), "nothing is added to lists that have been moved");
        let count = count(vectors, self.dimension);
        // SAFETY: the vectors outlive the call, and nobody else uses the index.
        unsafe { checked(|why| (self.functions.add)(self.index, count, vectors.as_ptr(), why))? };
        Ok(())
    }

    /// Numbers of a vector.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Lists.
    #[must_use]
    pub fn nlist(&self) -> usize {
        self.nlist
    }

    /// Bytes of memory that the lists take where they are moved to.
    ///
    /// # Errors
    /// What Faiss says.
    pub fn list_bytes(&self) -> Result<usize, FaissError> {
        Ok(self.lists()?.iter().map(|list| self.sizes(list).2).sum())
    }

    /// Moves the lists to this memory, which has them until the index is dropped. The copies in local memory are gone
    /// then.
    ///
    /// # Errors
    /// If there is no room for them, or it cannot be written; the index is as it was then.
    ///
    /// # Panics
    /// If they have been moved before.
    pub fn place(&mut self, memory: Arc<dyn Memory>) -> Result<(), FaissError> {
        assert!(self.placed.is_none(), "the lists of an index are moved once");
        let mut lists = self.lists()?;
        let bytes = self.list_bytes()?.max(LIST_ALIGN);
        let address = memory.take(bytes).ok_or(FaissError::NoRoom(bytes))?;
        let placed = Placed { memory, address, bytes };
        let mut at = address;
        for list in &mut lists {
            let (codes_bytes, ids_at, whole) = self.sizes(list);
            // SAFETY: these are arrays of Faiss in local memory, which nobody changes.
            let (codes, ids) = unsafe {
                let ids_bytes = list.length * size_of::<i64>();
                (bytes_at(list.codes, codes_bytes), bytes_at(list.ids.cast(), ids_bytes))
            };
            placed.memory.write(at, codes).map_err(FaissError::Unwritten)?;
            placed.memory.write(at + ids_at, ids).map_err(FaissError::Unwritten)?;
            list.codes = std::ptr::with_exposed_provenance(at);
            list.ids = std::ptr::with_exposed_provenance(at + ids_at);
            at += whole;
        }
        // SAFETY: one list for each that the index has, which it copies; nobody else uses the index.
        unsafe { checked(|why| (self.functions.place)(self.index, lists.as_ptr(), why))? };
        self.placed = Some(placed);
        Ok(())
    }

    /// The `k` vectors that are nearest to the query, the nearest first, of the `nprobe` lists whose centroids are;
    /// fewer if these have no more. Every few vectors `between` is called, which may switch to other unithreads.
    ///
    /// # Errors
    /// If the query is not one, or a list cannot be read.
    pub fn search(
        &self,
        query: &[f32],
        k: usize,
        nprobe: usize,
        mut between: impl FnMut(),
    ) -> Result<Vec<Neighbour>, FaissError> {
        self.check(query, k, nprobe)?;
        let (functions, mut search) = (self.functions, std::ptr::null_mut());
        // SAFETY: the query outlives the call, which copies it.
        unsafe { checked(|why| (functions.begin)(self.index, query.as_ptr(), k, nprobe, &raw mut search, why))? };
        let search = Underway { functions, search };
        loop {
            // SAFETY: the search lives.
            match unsafe { checked(|why| (functions.step)(search.search, STEP_VECTORS, why)) } {
                Ok(0) => break,
                Ok(_) => between(),
                Err(error) => {
                    if matches!(error, FaissError::Lost(_)) {
                        // It was left in the middle: nothing is known of it.
                        std::mem::forget(search);
                    }
                    return Err(error);
                }
            }
        }
        // SAFETY: the search lives, and there is room for `k`.
        found(k, |distances, ids, why| unsafe { (functions.found)(search.search, distances, ids, why) })
    }

    /// What [`search`](Self::search) finds, by Faiss' own search, in one go: others run on this worker only while a
    /// page is on its way.
    ///
    /// # Errors
    /// As for `search`.
    pub fn search_at_once(&self, query: &[f32], k: usize, nprobe: usize) -> Result<Vec<Neighbour>, FaissError> {
        self.check(query, k, nprobe)?;
        // SAFETY: the query outlives the call, and there is room for `k`.
        found(k, |distances, ids, why| unsafe {
            (self.functions.search)(self.index, query.as_ptr(), k, nprobe, distances, ids, why)
        })
    }

    fn check(&self, query: &[f32], k: usize, nprobe: usize) -> Result<(), FaissError> {
        match (query.len() == self.dimension, (1..=K_MAX).contains(&k), nprobe > 0) {
            (false, ..) => Err(FaissError::Dimension { given: query.len(), dimension: self.dimension }),
            (_, false, _) => Err(FaissError::Neighbours(k)),
            (.., false) => Err(FaissError::NoProbe),
            _ => Ok(()),
        }
    }

    fn lists(&self) -> Result<Vec<List>, FaissError> {
        let mut lists = vec![List { codes: std::ptr::null(), ids: std::ptr::null(), length: 0 }; self.nlist];
        // SAFETY: there is room for all.
        unsafe { checked(|why| (self.functions.lists)(self.index, lists.as_mut_ptr(), why))? };
        Ok(lists)
    }

    /// Bytes of a list's codes, where its ids begin, and bytes of all.
    fn sizes(&self, list: &List) -> (usize, usize, usize) {
        let codes_bytes = list.length * self.dimension * size_of::<f32>();
        let ids_at = codes_bytes.next_multiple_of(align_of::<i64>());
        (codes_bytes, ids_at, (ids_at + list.length * size_of::<i64>()).next_multiple_of(LIST_ALIGN))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more: searches borrow it, and what one that was left in the middle has of it is
        // used by nobody.
        unsafe { (self.functions.close)(self.index) };
    }
}

/// A search that goes on.
struct Underway {
    functions: &'static Functions,
    search: Object,
}

impl Drop for Underway {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more. Its memory is local.
        unsafe { yonder_library::call(|| (self.functions.end)(self.search)) };
    }
}

/// Calls a function of the glue, which may touch lists: its result, if it is none of a failure.
///
/// # Safety
/// `function` does that and nothing else.
unsafe fn checked(function: impl FnOnce(Why) -> c_int) -> Result<c_int, FaissError> {
    let mut why = [0_u8; WHY_BYTES];
    let at: Why = why.as_mut_ptr().cast();
    // SAFETY: Faiss holds no lock while it reads a list, or the process would end. Frames of C++ that are forgotten own
    // memory that is lost then, and nothing points to it but they. The glue and Faiss in it have no thread-locals,
    // those of the C library are not in use at a touch, and nothing of Rust's is left in any.
    let result = unsafe { yonder_library::try_call(|| function(at)) }.map_err(FaissError::Lost)?;
    if result >= 0 {
        return Ok(result);
    }
    let text = why.split(|byte| *byte == 0).next().unwrap_or_default();
    Err(FaissError::Said(String::from_utf8_lossy(text).into_owned()))
}

/// What a function finds that puts `k` distances and ids to addresses. Ids that are -1 are of nobody.
fn found(k: usize, function: impl FnOnce(*mut f32, *mut i64, Why) -> c_int) -> Result<Vec<Neighbour>, FaissError> {
    let (mut distances, mut ids) = (vec![0.0_f32; k], vec![-1_i64; k]);
    let (distances_at, ids_at) = (distances.as_mut_ptr(), ids.as_mut_ptr());
    // SAFETY: it calls a function of the glue.
    unsafe { checked(|why| function(distances_at, ids_at, why))? };
    Ok(ids.into_iter().zip(distances).filter(|(id, _)| *id >= 0).collect())
}

/// How many vectors these numbers are.
fn count(vectors: &[f32], dimension: usize) -> usize {
    assert!(
        dimension > 0 && vectors.len().is_multiple_of(dimension),
        "{} numbers are no vectors of {dimension}",
        vectors.len()
    );
    vectors.len() / dimension
}

/// # Safety
/// There are so many bytes, as long as the result is used. An empty slice may have any address.
unsafe fn bytes_at<'a>(first: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first, bytes) } }
}
