//! The simulators as a whole: seeds hold and repeat themselves, and each sabotage is caught.

mod checker;
mod clocks;
mod moves;
mod order;
