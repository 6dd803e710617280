//! The predictor on synthetic traces, and what it gains for the queue of a worker.

mod cache;
mod keys;
mod queueing;
mod traces;
