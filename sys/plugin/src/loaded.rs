//! [`Loaded`]: a guide's library that is loaded and was found to be one.
//!
//! UNSAFETY: loading a library runs code of it, and what its symbol points to is whatever it says.

use std::error::Error as _;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use yonder_guide::MakeGuide;

use crate::hosted::Hosted;
use crate::interface::{RawGuide, STATE_BYTES_MAX, VERSION};

/// What a guide is found by in its library.
const SYMBOL: &CStr = c"yonder_guide";
/// Most bytes that a guide's description may have: it grows at its end.
const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 256;

/// Why a file cannot be used as a guide: what is wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PluginError {
    /// There is no such file.
    #[error("there is no guide at {}: type the path of one, or the name of one that is installed", .0.display())]
    Missing(PathBuf),
    /// The dynamic linker does not take it.
    #[error("{} cannot be loaded: {why}: build guides with cc -shared -fPIC", path.display())]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// What the dynamic linker says.
        why: String,
    },
    /// It is some other library.
    #[error("{} is no guide: it has no symbol yonder_guide, which yonder_guide.h declares", .0.display())]
    NoGuide(PathBuf),
    /// It was built for another version of the interface.
    #[error(
        "{} is a guide of version {found} of the interface, and this is version {VERSION}: build it again with this \
         version's yonder_guide.h",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
    /// What it says of itself cannot be true.
    #[error("{} is a guide that describes itself wrongly: {what}: mend it as yonder_guide.h says", path.display())]
    Implausible {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// A guide of a library.
#[derive(Clone, Debug)]
pub struct Loaded {
    raw: RawGuide,
    name: String,
}

impl Loaded {
    /// Loads the library at `path`, and checks it. This runs its constructors. It is never unloaded.
    pub fn open(path: &Path) -> Result<Self, PluginError> {
        let is_there = path.is_file().then(|| path.canonicalize().ok()).flatten();
        let path = is_there.ok_or_else(|| PluginError::Missing(path.to_owned()))?;
        // Bound now: looking for a function when it is called first takes locks of the dynamic linker's.
        // SAFETY: its constructors are those of a guide that the user has asked for.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
            let said = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let why = said.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&said).replace('\n', " ");
            PluginError::NotLoadable { path: path.clone(), why }
        })?;
        // Whatever its constructors have begun goes on, and its code must stay.
        let library = ManuallyDrop::new(library);
        // SAFETY: the symbol is only used as an address.
        let found = unsafe { library.get::<*const RawGuide>(SYMBOL.to_bytes_with_nul()) };
        let raw: *const RawGuide = *found.map_err(|_| PluginError::NoGuide(path.clone()))?;
        // SAFETY: an address of the library's, which stays.
        unsafe { Self::check(raw) }.map_err(|problem| match problem {
            Problem::Version(found) => PluginError::Version { path, found },
            Problem::Implausible(what) => PluginError::Implausible { path, what },
        })
    }

    /// Makes guides that call the library.
    #[must_use]
    pub fn maker(&self) -> MakeGuide {
        let raw = self.raw;
        // SAFETY: the library stays, and was checked. What its functions do is for who has asked for it.
        Arc::new(move || Box::new(unsafe { Hosted::new(raw) }))
    }

    /// What the guide calls itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An address of the library's.
    #[must_use]
    pub fn address(&self) -> usize {
        self.raw.touched.map_or(0, |function| function as *const () as usize)
    }

    /// Checks what a symbol points to.
    ///
    /// # Safety
    /// `raw` is null, or points to memory that stays, as much as it says that it has, or to less that is no guide.
    unsafe fn check(raw: *const RawGuide) -> Result<Self, Problem> {
        let implausible = |what: String| Err(Problem::Implausible(what));
        if raw.is_null() || !raw.is_aligned() {
            return implausible("its symbol is no structure".into());
        }
        // SAFETY: the first word, which every version has; a library's data is never less.
        let version = unsafe { (*raw).version };
        if version != VERSION {
            return Err(Problem::Version(version));
        }
        // SAFETY: this version has this structure.
        let raw = unsafe { *raw };
        if !(size_of::<RawGuide>()..=DESCRIPTION_BYTES_MAX).contains(&(raw.bytes as usize)) {
            return implausible(format!("{} bytes instead of {}", raw.bytes, size_of::<RawGuide>()));
        }
        if raw.state_bytes > STATE_BYTES_MAX {
            return implausible(format!("a state of {} bytes, and {STATE_BYTES_MAX} are the most", raw.state_bytes));
        }
        if raw.touched.is_none() {
            return implausible("no function touched".into());
        }
        // SAFETY: a text of C's that ends, or null.
        match unsafe { raw.name.as_ref().map(|first| CStr::from_ptr(first).to_bytes()) } {
            Some(name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
                Ok(Self { raw, name: String::from_utf8_lossy(name).into_owned() })
            }
            _ => implausible("no name".into()),
        }
    }
}

/// What is wrong with a description.
#[derive(PartialEq, Eq, Debug)]
enum Problem {
    Version(u32),
    Implausible(String),
}
