//! The board as a shell sees it: whole messages in, whole answers out.
//!
//! `world` is a node on one thread; `requests` has a test for each rule, `repeats` for those of what comes twice or
//! too late; `model` compares long runs with an oracle of plain maps; `migration` moves ranges between two nodes,
//! `adoption` by messages; `quarantine` ends spaces that clients have mapped; `hostile` sends what no client would;
//! `strangers` is about those who have no right to anything; `threads` runs data threads beside frees.

mod adoption;
mod hostile;
mod migration;
mod model;
mod pieces;
mod quarantine;
mod repeats;
mod requests;
mod revoking;
mod strangers;
mod threads;
mod world;
