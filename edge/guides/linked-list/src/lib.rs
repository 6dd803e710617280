//! x
#![forbid(unsafe_code)]
