//! The interface of guides with the C compiler of this machine: the header and the structures are the same, and
//! libraries are loaded, checked and called.
//!
//! UNSAFETY: none here; the libraries that are loaded are compiled by the tests.

mod header;
mod loading;
mod toolchain;
