//! What this process keeps of its faults: a record for `yonder run --report` ([`Recorded`], with where its code is), a
//! trace for `--trace`, and a sample for `yonder size`.
//!
//! The record counts by itself. What is left to do is to look now and then whether a fault came from code that is not
//! known yet, because it was loaded meanwhile: only then are the process's mappings read again.
//!
//! UNSAFETY: functions of the C library are looked up by their names.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use yonder_paging::{FaultObserver, Needed, Region, SeenFault};
use yonder_preload_protocol::{Modules, ProcessSlot, RECORDS_MAX, Recorder, Sampler, Settings, Tracer};

use crate::sampled;

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
    /// Begins a record.
    fn begin(folder: PathBuf, place: &ProcessSlot) -> Result<Self, String> {
        let number = place.number();
        let recorder = Recorder::create(&folder, number, place.began_ns());
        let recorder = Arc::new(recorder.map_err(|error| format!("faults are not recorded: {error}"))?);
        let known = Known { modules: Modules::of_this_process(chosen()), sites: 0 };
        let recorded = Self { recorder, folder, number, known: Mutex::new(known) };
        recorded.look().map_err(|error| format!("where code is cannot be recorded: {error}"))?;
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

/// Whoever is told of faults.
struct Observers {
    recorder: Option<Arc<Recorder>>,
    tracer: Option<Tracer>,
    sampler: Option<Arc<Sampler>>,
}

impl FaultObserver for Observers {
    fn saw(&self, fault: &SeenFault) {
        if let Some(recorder) = &self.recorder {
            recorder.saw(fault);
        }
        if let Some(tracer) = &self.tracer {
            tracer.saw(fault);
        }
        if let Some(sampler) = &self.sampler {
            sampler.saw(fault);
        }
    }

    fn brings(&self, offset: u64, needed: Needed) {
        if let Some(tracer) = &self.tracer {
            tracer.brings(offset, needed);
        }
        if let Some(sampler) = &self.sampler {
            sampler.brings(offset, needed);
        }
    }
}

/// Begins to keep what somebody wants of the faults of `region`. An error is no reason not to run: `complain` is told
/// of it. Returns the record, if there is one.
pub(crate) fn observe(
    region: &Region,
    settings: &Settings,
    place: &ProcessSlot,
    complain: impl Fn(&str),
) -> Option<Recorded> {
    // How many processes have no record is known at the end.
    let records = settings.records.clone().filter(|_| place.number() <= RECORDS_MAX);
    let recorded = records.and_then(|folder| Recorded::begin(folder, place).inspect_err(|error| complain(error)).ok());
    let begun = settings.trace.as_ref().map(|stem| Tracer::create(stem, place.number()));
    let tracer = begun.and_then(|begun| {
        begun.inspect_err(|error| complain(&format!("what it touches is not written down: {error}"))).ok()
    });
    let begun = settings.sample.as_ref().map(|stem| Sampler::create(stem, place.number()));
    let sampler = begun.and_then(|begun| {
        begun.inspect_err(|error| complain(&format!("what it touches is not sampled: {error}"))).ok().map(Arc::new)
    });
    if let Some(sampler) = &sampler {
        sampled::watch(Arc::clone(sampler));
    }
    let recorder = recorded.as_ref().map(|recorded| Arc::clone(&recorded.recorder));
    if recorder.is_some() || tracer.is_some() || sampler.is_some() {
        region.observe_faults(Arc::new(Observers { recorder, tracer, sampler }));
    }
    recorded
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
