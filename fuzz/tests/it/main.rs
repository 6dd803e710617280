//! Tests of the fuzzer: its driver, all targets and their corpora, and what the corpus of `handshake` begins with.

mod driver;
mod handshake;
