//! The heap as its users see it.
//!
//! `world` is a heap with its magazines beside an oracle of plain maps; `model` drives it by proptest and by seeds;
//! `rules` has a test for each rule; `threads` has owners that store while a reclaimer asks what is live; `cost` prints
//! what operations cost.

mod cost;
mod model;
mod rules;
mod threads;
mod world;
