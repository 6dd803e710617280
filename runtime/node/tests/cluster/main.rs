//! Several memory nodes and their controller, in one process over the loopback: regions that move.
//!
//! `scene` starts controllers and nodes; `router` is a client that goes where regions are; `target` is a node made by the
//! test, which takes regions over when the test says so. No test sleeps: they wait until something has happened, and fail
//! after [`scene::PATIENCE`].

mod drain;
mod ends;
mod pressure;
mod router;
mod scene;
mod target;
