//! Databases.
//!
//! UNSAFETY: RocksDB's functions, on objects that are there as long as what owns them here.

use std::ffi::{CString, c_char};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use yonder_library::LibraryError;
use yonder_trap::scope::{Caught, attempt};

use crate::library::files::{Files, Placed};
use crate::library::functions::{Functions, Message, Object, load};

/// Why RocksDB has refused something.
#[derive(Debug, thiserror::Error)]
pub enum RocksError {
    /// It is not on this machine, or not one that can be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// What it said.
    #[error("RocksDB: {0}")]
    Said(String),
    /// A touch of far memory that a table lies in has failed. What the library was doing is left as it was: some memory
    /// is lost.
    #[error("a table of RocksDB cannot be read at {:#x}", .0.address)]
    Lost(Caught),
    /// The folder cannot be had.
    #[error("cannot use the folder {folder}: {cause}; type a folder that may be written")]
    Folder {
        /// As it was given.
        folder: String,
        /// What the operating system said.
        cause: std::io::Error,
    },
}

/// What keys look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Length of every key, in bytes.
    pub key_bytes: u32,
    /// One in so many keys is in the index, which is in local memory. A search of the index reads keys in the table,
    /// and those between two of the index are read one after the other.
    pub index_every: usize,
}

/// A database. Any thread may use it, and any unithread.
///
/// One that was left in the middle of something, because a page could not be had, still serves. It is never closed:
/// RocksDB waits for what was left, or fails.
pub struct Db {
    functions: &'static Functions,
    db: Object,
    reads: Object,
    writes: Object,
    /// Goes after the database, which gives its memory back.
    placed: ManuallyDrop<Option<Placed>>,
    was_left: AtomicBool,
}

// SAFETY: RocksDB's databases and options may be used by any threads at a time.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

impl Db {
    /// Opens the database in `folder`, or makes one. Its tables are read from the memory of `files`, or mapped as
    /// RocksDB does it.
    ///
    /// # Errors
    /// If the library is missing, the folder cannot be had, or the database in it is another or damaged.
    pub fn open(folder: &Path, shape: Shape, files: Option<Arc<dyn Files>>) -> Result<Self, RocksError> {
        let functions = load()?;
        let cannot = |cause| RocksError::Folder { folder: folder.display().to_string(), cause };
        std::fs::create_dir_all(folder).map_err(cannot)?;
        let folder = folder.canonicalize().map_err(cannot)?;
        let path = CString::new(folder.as_os_str().as_bytes()).map_err(|error| cannot(error.into()))?;
        let placed = files.map(|files| Placed::new(folder, files));
        // SAFETY: objects are made, used and destroyed in order; the database keeps what it needs of its options.
        let (db, reads, writes) = unsafe {
            let options = (functions.options_create)();
            (functions.options_set_create_if_missing)(options, 1);
            (functions.options_set_allow_mmap_reads)(options, 1);
            (functions.options_set_compression)(options, 0);
            // Without prefixes of keys there is no hash table of them and no filter: keys are in one order, which scans
            // need.
            let (bits, ratio) = (0, 0.0);
            (functions.options_set_plain_table_factory)(
                options,
                shape.key_bytes,
                bits,
                ratio,
                shape.index_every,
                0,
                0,
                0,
                0,
            );
            let opened = functions.checked(|message| (functions.open)(options, path.as_ptr(), message));
            (functions.options_destroy)(options);
            let db = opened?;
            let writes = (functions.writeoptions_create)();
            (functions.writeoptions_disable_WAL)(writes, 1);
            (db, (functions.readoptions_create)(), writes)
        };
        Ok(Self { functions, db, reads, writes, placed: ManuallyDrop::new(placed), was_left: AtomicBool::new(false) })
    }

    /// Calls functions of RocksDB, which may touch tables.
    ///
    /// # Safety
    /// `body` does that and copies; a touch that fails forgets it in the middle.
    unsafe fn call<T>(&self, body: impl FnOnce() -> Result<T, RocksError>) -> Result<T, RocksError> {
        // SAFETY: RocksDB holds no lock while it reads a table, or the process would end; references that it has taken
        // stay, so that what they are to is never freed. Nothing of Rust's is left in thread-locals.
        unsafe { attempt(|| yonder_library::call(body)) }.unwrap_or_else(|caught| {
            self.was_left.store(true, Ordering::Release);
            Err(RocksError::Lost(caught))
        })
    }

    /// Stores a value. It is on the disk after [`settle`](Self::settle).
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), RocksError> {
        let ((key, key_bytes), (value, value_bytes)) = (parts(key), parts(value));
        // SAFETY: the database lives, and both slices outlive the call.
        unsafe {
            self.call(|| {
                self.functions.checked(|message| {
                    (self.functions.put)(self.db, self.writes, key, key_bytes, value, value_bytes, message);
                })
            })
        }
    }

    /// Writes all to tables, and sorts them into one another.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn settle(&self) -> Result<(), RocksError> {
        // SAFETY: the database lives; no key is the first or last.
        unsafe {
            let options = (self.functions.flushoptions_create)();
            let flushed = self.functions.checked(|message| (self.functions.flush)(self.db, options, message));
            (self.functions.flushoptions_destroy)(options);
            flushed?;
            (self.functions.compact_range)(self.db, std::ptr::null(), 0, std::ptr::null(), 0);
        }
        Ok(())
    }

    /// Reads a value to the end of `into`: whether there is one.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, RocksError> {
        let (key, key_bytes) = parts(key);
        // SAFETY: as in `put`; a value that is found is there until it is destroyed.
        unsafe {
            self.call(|| {
                let get = |message| (self.functions.get_pinned)(self.db, self.reads, key, key_bytes, message);
                let found = self.functions.checked(get)?;
                if found.is_null() {
                    return Ok(false);
                }
                into.extend_from_slice(slice(|bytes| (self.functions.pinnableslice_value)(found, bytes)));
                (self.functions.pinnableslice_destroy)(found);
                Ok(true)
            })
        }
    }

    /// Goes through the keys from `from` on, in their order.
    ///
    /// # Errors
    /// If a table cannot be read.
    pub fn cursor(&self, from: &[u8]) -> Result<Cursor<'_>, RocksError> {
        let (from, from_bytes) = parts(from);
        // SAFETY: as in `put`.
        let iterator = unsafe {
            self.call(|| {
                let iterator = (self.functions.create_iterator)(self.db, self.reads);
                (self.functions.iter_seek)(iterator, from, from_bytes);
                Ok(iterator)
            })?
        };
        Ok(Cursor { db: self, iterator })
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if self.was_left.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: nobody uses them any more.
        unsafe {
            (self.functions.readoptions_destroy)(self.reads);
            (self.functions.writeoptions_destroy)(self.writes);
            (self.functions.close)(self.db);
            ManuallyDrop::drop(&mut self.placed);
        }
    }
}

/// A way through the keys of a database.
pub struct Cursor<'a> {
    db: &'a Db,
    /// Null after a touch has failed in the middle: nothing is known of it then, and it is left alone.
    iterator: Object,
}

impl Cursor<'_> {
    /// Puts the key and the value at which it stands into these, in the place of what they have, and goes on to the
    /// next. Whether there were any: not behind the last, and not after an error.
    ///
    /// # Errors
    /// What RocksDB says, and a table that cannot be read.
    pub fn next(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, RocksError> {
        let (functions, iterator) = (self.db.functions, self.iterator);
        if iterator.is_null() {
            return Ok(false);
        }
        // SAFETY: the iterator lives, and what it stands at is there until it goes on.
        let result = unsafe {
            self.db.call(|| {
                if (functions.iter_valid)(iterator) == 0 {
                    functions.checked(|message| (functions.iter_get_error)(iterator, message))?;
                    return Ok(false);
                }
                key.clear();
                key.extend_from_slice(slice(|bytes| (functions.iter_key)(iterator, bytes)));
                value.clear();
                value.extend_from_slice(slice(|bytes| (functions.iter_value)(iterator, bytes)));
                (functions.iter_next)(iterator);
                Ok(true)
            })
        };
        if matches!(result, Err(RocksError::Lost(_))) {
            self.iterator = std::ptr::null_mut();
        }
        result
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        if !self.iterator.is_null() {
            // SAFETY: nobody uses it any more. A touch that fails leaves it as it is.
            let _ = unsafe {
                self.db.call(|| {
                    (self.db.functions.iter_destroy)(self.iterator);
                    Ok(())
                })
            };
        }
    }
}

impl Functions {
    /// Does what may leave a message, which is an error.
    ///
    /// # Safety
    /// `work` gives the message to a function of RocksDB.
    unsafe fn checked<T>(&self, work: impl FnOnce(Message) -> T) -> Result<T, RocksError> {
        let mut message: *mut c_char = std::ptr::null_mut();
        let result = work(&raw mut message);
        if message.is_null() {
            return Ok(result);
        }
        // SAFETY: a message is a text, which is the caller's to free.
        unsafe {
            let text = std::ffi::CStr::from_ptr(message).to_string_lossy().into_owned();
            (self.free)(message.cast());
            Err(RocksError::Said(text))
        }
    }
}

fn parts(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// What a function says that there is, which puts the length to an address.
///
/// # Safety
/// It is there as long as the result is used.
unsafe fn slice<'a>(at: impl FnOnce(*mut usize) -> *const c_char) -> &'a [u8] {
    let mut bytes = 0;
    let first = at(&raw mut bytes);
    // SAFETY: the caller's. An empty slice may have any address.
    if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first.cast(), bytes) } }
}
