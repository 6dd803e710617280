//! The crate from outside: words against a model of what places contain.

mod words;
