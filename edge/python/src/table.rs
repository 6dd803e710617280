//! [`Table`]: the key-value store of one node, beside whose memory its offload runs (`yonder::clib`).
//!
//! What is stored belongs to an address space. Who makes one keeps it, and others use it by a ticket. Each call is one
//! round trip; threads that call at the same time have a flow to the node each, kept for the next.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use yonder::clib::offload::kv::{Answer, KEY_BYTES_MAX, NUMBER, PAIR_BYTES_MAX, PutMode, PutOutcome, Request};
use yonder::clib::{ClibError, Process, ProcessConfig, Rights, Thread, Ticket, TicketError};
use yonder::units::parse_duration;
use yonder_trap::hold_back;

use crate::error::{of_call, of_node};

/// Flows that are kept while nothing is asked.
const IDLE_FLOWS_MAX: usize = 16;

/// The store of one node's address space.
#[pyclass(frozen, module = "yonder._yonder")]
pub(crate) struct Table {
    url: String,
    /// The process that has opened it: a child's copies of its flows would speak in between.
    owner: u32,
    /// Until it is closed.
    space: Mutex<Option<Arc<Space>>>,
}

struct Space {
    process: Process,
    idle: Mutex<Vec<Thread>>,
}

impl Space {
    fn idle(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the store for something.
    fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, ClibError> {
        let kept = self.idle().pop();
        let mut thread = kept.map_or_else(|| self.process.thread(), Ok)?;
        let answer = thread.call(NUMBER, &request.encode());
        let mut idle = self.idle();
        if idle.len() < IDLE_FLOWS_MAX {
            idle.push(thread);
        }
        answer
    }
}

impl Table {
    fn ask<T>(
        &self,
        py: Python<'_>,
        request: &Request<'_>,
        understand: impl FnOnce(Answer<'_>) -> Option<PyResult<T>>,
    ) -> PyResult<T> {
        let space = self.space()?;
        let answer = py.detach(|| space.call(request)).map_err(|error| of_call(py, &self.url, &error))?;
        let understood = Answer::decode(&answer).ok().and_then(understand);
        let strange = || of_node(py, &self.url, "the node answers something else: use one release on both sides");
        understood.unwrap_or_else(|| Err(strange()))
    }

    fn space(&self) -> PyResult<Arc<Space>> {
        if !self.is_here() {
            // The lock may be another thread's of the parent.
            return Err(PyRuntimeError::new_err(
                "this dictionary is of the process that has forked this one: open it by yonder.Dictionary(url, ticket)",
            ));
        }
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.clone().ok_or_else(|| PyValueError::new_err("this dictionary was closed: open another"))
    }

    fn is_here(&self) -> bool {
        self.owner == std::process::id()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.is_here() {
            // Connections are the parent's, and threads are not here.
            mem::forget(self.space.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

fn check(key: &[u8], value: &[u8]) -> PyResult<()> {
    let (bytes, both) = (key.len(), key.len() + value.len());
    if bytes > KEY_BYTES_MAX {
        return Err(PyValueError::new_err(format!("a key of {bytes} bytes: give one of {KEY_BYTES_MAX} at most")));
    }
    if both > PAIR_BYTES_MAX {
        return Err(PyValueError::new_err(format!("key and value of {both} bytes: give {PAIR_BYTES_MAX} at most")));
    }
    Ok(())
}

#[pymethods]
impl Table {
    #[new]
    fn new(py: Python<'_>, url: String, ticket: Option<&str>, deadline: &str, lease: &str) -> PyResult<Self> {
        if url.starts_with("controller://") || url.starts_with("yonder://") {
            let message = format!("'{url}' is a controller's: give the URLs of nodes, with commas between them");
            return Err(PyValueError::new_err(message));
        }
        let duration = |text| parse_duration(text).map_err(|error| PyValueError::new_err(error.to_string()));
        let config = ProcessConfig { deadline: duration(deadline)?, lease: duration(lease)?, ..Default::default() };
        let bad_ticket = |error: TicketError| PyValueError::new_err(error.to_string());
        let ticket: Option<Ticket> = ticket.map(str::parse).transpose().map_err(bad_ticket)?;
        // Signals are for Python's threads: those that begin here hold them back.
        let open = || match ticket {
            None => Process::create_with(&url, config),
            Some(ticket) => Process::open_with(&url, ticket, config),
        };
        let opened = py.detach(|| hold_back(open)).map_err(|error| of_call(py, &url, &error))?;
        let space = Arc::new(Space { process: opened, idle: Mutex::default() });
        Ok(Self { url, owner: std::process::id(), space: Mutex::new(Some(space)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    #[getter]
    fn closed(&self) -> bool {
        self.space().is_err()
    }

    /// Lets go of the address space, which ends if it was made here.
    fn close(&self, py: Python<'_>) {
        if self.is_here() {
            let space = self.space.lock().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| drop(space));
        }
    }

    /// A ticket for others, who may also change what is there.
    fn ticket(&self, py: Python<'_>) -> PyResult<String> {
        let space = self.space()?;
        let ticket = py.detach(|| space.process.ticket(Rights::ReadWrite));
        ticket.map(|ticket| ticket.to_string()).map_err(|error| of_call(py, &self.url, &error))
    }

    /// The value of a key.
    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        check(key, &[])?;
        self.ask(py, &Request::Get { key }, |answer| match answer {
            Answer::Value(value) => Some(Ok(Some(PyBytes::new(py, value)))),
            Answer::Absent => Some(Ok(None)),
            _ => None,
        })
    }

    /// Gives a key a value, or only a key that has none. Whether it was given.
    #[pyo3(signature = (key, value, *, only_new))]
    fn put(&self, py: Python<'_>, key: &[u8], value: &[u8], only_new: bool) -> PyResult<bool> {
        check(key, value)?;
        let mode = if only_new { PutMode::Create } else { PutMode::Always };
        self.ask(py, &Request::Put { key, value, mode }, |answer| match answer {
            Answer::Put(outcome) => Some(Ok(outcome != PutOutcome::Refused)),
            _ => None,
        })
    }

    /// Removes a key. Whether it was there.
    fn delete(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        check(key, &[])?;
        self.ask(py, &Request::Delete { key }, |answer| match answer {
            Answer::Deleted => Some(Ok(true)),
            Answer::Absent => Some(Ok(false)),
            _ => None,
        })
    }

    /// Some keys, from a position on that is 0 at first, and the next position, which is 0 at last.
    fn keys<'py>(&self, py: Python<'py>, position: u64) -> PyResult<(Bound<'py, PyList>, u64)> {
        self.ask(py, &Request::Keys { from: position }, |answer| match answer {
            Answer::Keys { next, keys } => {
                let list = PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)).collect::<Vec<_>>());
                Some(list.map(|list| (list, next)))
            }
            _ => None,
        })
    }

    /// How many keys there are.
    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, &Request::Stats, |answer| match answer {
            Answer::Stats(stats) => Some(Ok(stats.keys)),
            _ => None,
        })
    }
}
