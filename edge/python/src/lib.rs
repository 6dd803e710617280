//! The extension behind the Python package `yonder`: far memory that NumPy's arrays lie in.
//!
//! Python speaks of arrays, this crate of addresses and bytes. `memory` has the far memories of the process, `place`
//! finds far bytes and does things with them, `block` is a piece of a memory that Python can see as a buffer, `sealed`
//! a region that is read-only, `handler` far memory as an allocator of NumPy's own, `attempt` calls of NumPy whose
//! paging errors become exceptions, `forks` what a fork does before and after, `signals` whether faults still arrive,
//! `table` the key-value store of a node, `error` the exceptions. The package's own Python is in
//! `edge/python/python/yonder`, its tests in `edge/python/tests`.
//!
//! It stands on `yonder::alloc` and not on `edge/capi`: that heap keeps each thread's magazine, as many far memories
//! may be open as a program likes, and one ends when the last array in it is gone. The C interface has one memory a
//! process, which is closed when everything is freed, and would put C between Rust and Rust.
//!
//! Invariants: an array keeps its far memory (`block::Block` and `handler`'s capsule have an `Arc` of it). What was
//! given out in the parent of this process is not given back here.

mod attempt;
mod block;
mod error;
mod forks;
mod handler;
mod memory;
mod place;
mod sealed;
mod signals;
mod table;

use pyo3::prelude::*;

#[pymodule]
fn _yonder(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PagingError", module.py().get_type::<error::PagingError>())?;
    module.add("NodeError", module.py().get_type::<error::NodeError>())?;
    module.add_class::<memory::PythonMemory>()?;
    module.add_class::<block::Block>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(memory::bytes_of, module)?)?;
    module.add_function(wrap_pyfunction!(place::is_far, module)?)?;
    module.add_function(wrap_pyfunction!(place::advise, module)?)?;
    module.add_function(wrap_pyfunction!(place::prefetch, module)?)?;
    module.add_function(wrap_pyfunction!(place::read, module)?)?;
    module.add_function(wrap_pyfunction!(place::write, module)?)?;
    module.add_function(wrap_pyfunction!(handler::set_handler, module)?)?;
    module.add_function(wrap_pyfunction!(attempt::attempt, module)?)?;
    Ok(())
}
