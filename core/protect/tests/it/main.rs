//! The crate from outside: words against a model of what places contain, and whole programs by seeds.

mod sim;
mod words;
