//! Shared libraries that know nothing of unithreads, called by unithreads.
//!
//! [`Library::open`] loads one when it is wanted, so that a program that is built without it runs without it. What the
//! library imports can be replaced ([`Library::replace_import`]): its `mmap`, to put a file into far memory; and its
//! locks are ([`Library::count_locks`]), so that no unithread is parked while it holds one. [`call`] gives a call
//! thread-locals that no other call has meanwhile.
//!
//! ```text
//!   unithread --- call ---> thread-locals of a parked thread      (sys/trap)
//!                   |
//!                   v
//!               library --- its imports ---> ours, for the locks ---> the C library's
//! ```
//!
//! Files: `functions` tables of what a library has; `imports` the table through which a library calls others; `locks`
//! the functions that count; `calls` who has which thread-locals; `notes` what a linker has left in a program.
//!
//! Neighbours: `sys/trap` handles the faults in calls; `adapters/rocksdb` and `adapters/faiss` have the functions of
//! one library each.
//!
//! UNSAFETY: code that somebody else has compiled, and the tables of the dynamic linker.

mod calls;
mod functions;
mod imports;
mod locks;
mod notes;

use std::ffi::{CStr, c_void};

pub use calls::{call, try_call};
pub use notes::has_note;

/// A library that is loaded, for good: a thread may be in it at any time.
#[derive(Debug)]
pub struct Library {
    name: &'static str,
    handle: *mut c_void,
}

// SAFETY: the handle is a number to the dynamic linker, which locks for itself.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Why a library cannot be used. The text says what to type.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is not on this machine.
    #[error("cannot load {name}: {cause}; type: sudo apt-get install {package}")]
    Missing {
        /// The file that was looked for.
        name: &'static str,
        /// Debian's package.
        package: &'static str,
        /// What the dynamic linker said.
        cause: String,
    },
    /// It has no function of this name: it is too old, or another.
    #[error("{library} has no function {function}; type: sudo apt-get install --reinstall {package}")]
    Function {
        /// The library.
        library: &'static str,
        /// The function.
        function: String,
        /// Debian's package.
        package: &'static str,
    },
    /// Its table of imports cannot be changed.
    #[error("cannot change what {library} imports: {cause}")]
    Imports {
        /// The library.
        library: &'static str,
        /// What the operating system said.
        cause: std::io::Error,
    },
}

impl Library {
    /// Loads a library by the name of its file, which `package` of Debian has.
    ///
    /// # Errors
    /// If it is missing.
    pub fn open(name: &'static str, package: &'static str) -> Result<Self, LibraryError> {
        // SAFETY: initialisers of a library that the user has installed run.
        let opened = unsafe { libloading::os::unix::Library::open(Some(name), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = opened.map_err(|error| LibraryError::Missing { name, package, cause: text(&error) })?;
        Ok(Self { name, handle: library.into_raw() })
    }

    /// The address of a function.
    ///
    /// # Errors
    /// If the library has none of this name.
    pub fn function(&self, name: &CStr, package: &'static str) -> Result<*mut c_void, LibraryError> {
        // SAFETY: the handle is of a library that is never closed.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        let missing =
            || LibraryError::Function { library: self.name, function: name.to_string_lossy().into_owned(), package };
        if found.is_null() { Err(missing()) } else { Ok(found) }
    }

    /// From now on the library calls `replacement` where it has called the function `name` of another. How many places
    /// those are; none if it calls no such function.
    ///
    /// # Errors
    /// If the operating system refuses to let the table be changed.
    ///
    /// # Safety
    /// `replacement` is a function of that one's type, and keeps its contract. No thread is in the library.
    pub unsafe fn replace_import(&self, name: &CStr, replacement: *const c_void) -> Result<usize, LibraryError> {
        // SAFETY: the caller's, and the handle is of a library that is never closed.
        let replaced = unsafe { imports::replace(self.handle, name, replacement) };
        replaced.map_err(|cause| LibraryError::Imports { library: self.name, cause })
    }

    /// From now on the locks that the library holds are counted, and a fault does not yield while it holds one. For
    /// locks of the C library; those that a library makes of atomics are not seen. How many functions it has of them.
    ///
    /// # Errors
    /// As for [`replace_import`](Self::replace_import).
    pub fn count_locks(&self) -> Result<usize, LibraryError> {
        let mut found = 0;
        for (name, counting) in locks::COUNTING {
            // SAFETY: it calls the function of that name, and counts. A lock that is held already is released without
            // being counted, which is allowed.
            found += usize::from(unsafe { self.replace_import(name, counting.0)? } > 0);
        }
        Ok(found)
    }
}

/// What the dynamic linker said.
fn text(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_its_package() {
        let error = Library::open("libnothing-of-this-name.so.1", "nothing-dev").unwrap_err().to_string();
        assert!(error.contains("libnothing-of-this-name.so.1"), "{error}");
        assert!(error.ends_with("type: sudo apt-get install nothing-dev"), "{error}");
        let error = libc_itself().function(c"no_such_function", "libc6").unwrap_err().to_string();
        assert!(error.contains("no_such_function") && error.contains("libc6"), "{error}");
    }

    fn libc_itself() -> Library {
        Library::open("libc.so.6", "libc6").unwrap()
    }
}
