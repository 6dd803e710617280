//! A thin owned layer over userfaultfd.
//!
//! Three steps: `raw` has the kernel's structures with their sizes asserted, [`Uffd`] owns the descriptor, and results
//! are typed: `UFFDIO_COPY` that found a page there, or an address space in motion, is an answer and not an error. The
//! errno is kept in every other case.
//!
//! Faults are delivered as SIGBUS in the thread that touched the page (`UFFD_FEATURE_SIGBUS`), which `sys/trap`
//! handles, or as messages to whoever reads them ([`Delivery`]). Closing while a fault is in flight would map a zero
//! page, so a [`Uffd`] is closed only by its owner's drop, when no thread can touch its ranges.
//!
//! UNSAFETY: ioctls that take addresses; every address comes from a mapping whose bounds are checked.

mod descriptor;
mod lending;
mod protection;
mod raw;

pub use descriptor::{Abilities, CopyOutcome, Delivery, OpenError, Source, Uffd, UffdError, probe};
