//! What stands in for `mmap`: files of a database that are wanted in far memory.
//!
//! UNSAFETY: these functions are called in the place of the C library's.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Memory for the files of a database.
pub trait Files: Send + Sync {
    /// Memory of `bytes` bytes that has what `read` puts into a buffer for an offset; its address. `None` if there is
    /// no more memory or `read` fails.
    fn map(&self, bytes: usize, read: &dyn Fn(u64, &mut [u8]) -> std::io::Result<()>) -> Option<usize>;

    /// Gives memory back, if it is this one's: whether it is.
    fn unmap(&self, address: usize, bytes: usize) -> bool;
}

/// The folders of databases whose files have a place.
static PLACES: RwLock<Vec<(PathBuf, Arc<dyn Files>)>> = RwLock::new(Vec::new());

/// Files of `folder` are mapped by `files` as long as this is there.
pub(crate) struct Placed {
    folder: PathBuf,
}

impl Placed {
    /// `folder` without links.
    pub(crate) fn new(folder: PathBuf, files: Arc<dyn Files>) -> Self {
        PLACES.write().unwrap_or_else(PoisonError::into_inner).push((folder.clone(), files));
        Self { folder }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let mut places = PLACES.write().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(folder, _)| *folder != self.folder);
    }
}

fn place_of(file: &Path) -> Option<Arc<dyn Files>> {
    let places = PLACES.read().unwrap_or_else(PoisonError::into_inner);
    places.iter().find(|(folder, _)| file.starts_with(folder)).map(|(_, files)| Arc::clone(files))
}

/// `mmap`, which answers with the memory of [`Files`] for a file that is read only.
pub(crate) unsafe extern "C" fn mmap(
    wanted: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: RawFd,
    offset: libc::off_t,
) -> *mut c_void {
    if fd >= 0
        && protection == libc::PROT_READ
        && let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}"))
        && let Some(files) = place_of(&path)
    {
        // SAFETY: the library has the file open for the time of the call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let mapped = file.try_clone_to_owned().map(File::from).ok().and_then(|file| {
            let read = |at: u64, into: &mut [u8]| file.read_exact_at(into, offset as u64 + at);
            files.map(bytes, &read)
        });
        return mapped.map_or_else(
            || {
                // SAFETY: errno is a thread-local word.
                unsafe { *libc::__errno_location() = libc::ENOMEM };
                libc::MAP_FAILED
            },
            std::ptr::with_exposed_provenance_mut,
        );
    }
    // SAFETY: the caller's.
    unsafe { libc::mmap(wanted, bytes, protection, flags, fd, offset) }
}

/// `munmap`, which gives the memory of [`Files`] back.
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    let is_ours = |files: &Arc<dyn Files>| files.unmap(address as usize, bytes);
    let places: Vec<_> = {
        let places = PLACES.read().unwrap_or_else(PoisonError::into_inner);
        places.iter().map(|(_, files)| Arc::clone(files)).collect()
    };
    if places.iter().any(is_ours) {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { libc::munmap(address, bytes) }
}
