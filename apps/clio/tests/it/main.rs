//! The five applications against a memory node of this process.

mod frame;
mod measured_node;
mod service;
mod stores;
mod tree;
