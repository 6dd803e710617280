//! Indexes of Faiss, and how what calls them is compiled.

mod indexes;
mod toolchains;
