//! [`Recorded`]: this process's record of its faults, for `yonder run --report`, and where its code is.
//!
//! The record counts by itself. What is left to do is to look now and then whether a fault came from code that is not
//! known yet, because it was loaded meanwhile: only then are the process's mappings read again.
//!
//! UNSAFETY: functions of the C library are looked up by their names.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use yonder_paging::Region;
use yonder_preload_protocol::{Modules, ProcessSlot, Recorder};

/// Functions of which the C library has several, without names, and takes one when the program starts.
const CHOSEN: [&CStr; 24] = [
    c"memcpy",
    c"memmove",
    c"memset",
    c"memcmp",
    c"memchr",
    c"memrchr",
    c"rawmemchr",
    c"strlen",
    c"strnlen",
    c"strcmp",
    c"strncmp",
    c"strcasecmp",
    c"strcpy",
    c"stpcpy",
    c"strncpy",
    c"strcat",
    c"strchr",
    c"strrchr",
    c"strchrnul",
    c"strspn",
    c"strcspn",
    c"strpbrk",
    c"strstr",
    c"wcslen",
];

/// The record of this process.
pub(crate) struct Recorded {
    recorder: Arc<Recorder>,
    folder: PathBuf,
    number: u64,
    known: Mutex<Known>,
}

struct Known {
    modules: Modules,
    /// Call sites that were looked at.
    sites: u64,
}

impl Recorded {
    /// Begins to record the faults of `region`. An error is no reason not to run.
    pub(crate) fn begin(region: &Region, folder: PathBuf, place: &ProcessSlot) -> Result<Self, String> {
        let number = place.number();
        let recorder = Recorder::create(&folder, number, place.began_ns());
        let recorder = Arc::new(recorder.map_err(|error| format!("faults are not recorded: {error}"))?);
        let known = Known { modules: Modules::of_this_process(chosen()), sites: 0 };
        let recorded = Self { recorder: Arc::clone(&recorder), folder, number, known: Mutex::new(known) };
        recorded.look().map_err(|error| format!("where code is cannot be recorded: {error}"))?;
        region.observe_faults(recorder);
        Ok(recorded)
    }

    /// Looks whether there is code that is not known yet.
    pub(crate) fn look_for_code(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let sites = self.recorder.sites();
        if sites == known.sites {
            return;
        }
        known.sites = sites;
        let is_known = |address: &u64| known.modules.find(*address).is_some();
        let is_all_known = self.recorder.addresses().iter().all(is_known);
        drop(known);
        if !is_all_known {
            // Then addresses stay without names.
            let _ = self.look();
        }
    }

    fn look(&self) -> std::io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.modules.look()?;
        known.modules.write(&self.folder, self.number)
    }
}

/// Where the functions are that were chosen.
fn chosen() -> Vec<(u64, String)> {
    let find = |name: &&CStr| {
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then(|| (address as u64, name.to_string_lossy().into_owned()))
    };
    CHOSEN.iter().filter_map(find).collect()
}
