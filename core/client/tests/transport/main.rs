//! A client against a model of a node: `rules` and `ending` look at one rule at a time, `network` at all of them under
//! a network that loses, repeats, delays, reorders and corrupts messages.

mod ending;
#[cfg(feature = "tracing")]
mod events;
mod lane;
mod network;
mod node;
mod rules;
mod world;
