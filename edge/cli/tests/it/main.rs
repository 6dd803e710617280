//! The yonder command as its users have it: what it prints, refuses, and does with files.

#![forbid(unsafe_code)]

mod cluster;
mod usage;
