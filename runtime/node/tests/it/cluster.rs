//! Several memory nodes and their controller, in one process over the loopback: regions that move.
//!
//! `scene` starts controllers and nodes; `router` is a client that goes where regions are; `target` is a node made by
//! the test, which takes regions over when the test says so; `lossy_path` loses what a node is told on its way, and on
//! `stalled_path` requests stand still. No test sleeps: they wait until something has happened, and fail after
//! [`scene::TIMEOUT`].

mod disk;
mod drain;
mod ends;
mod groups;
mod late_discard;
mod lossy_path;
mod lost_words;
mod named;
mod places_move;
mod pressure;
mod router;
mod scene;
mod shares;
mod slow;
mod spread;
mod stalled_path;
mod target;
