//! Clients of the stores that a memory node runs beside its memory (Clio-KV and Clio-MV, section 6).
//!
//! [`KeyValue`] gets, puts and deletes pairs; [`Versions`] creates objects, appends versions and reads any of them.
//! What is stored belongs to the address space of the client, so its processes and threads share it and nobody else
//! sees it. [`run`] puts both under load and checks every value, behind `yonder bench objects`.
//!
//! Neighbours: `core/offload` has the stores; `apps/load` chooses keys; [`Meter`](crate::Meter) counts. Invariant of
//! every run: a read returns what was written last before it, or what is written while it runs; anything else fails the
//! run.

mod key_value;
mod ledger;
mod run;
mod versions;
mod workload;

pub use key_value::KeyValue;
pub use run::{ObjectsResult, ObjectsSettings, run};
pub use versions::{Read, Versions};
pub use workload::Mix;
pub use yonder_offload::kv::{PutMode, PutOutcome, Stats};
pub use yonder_offload::mv::{Description, ObjectId, Version};
