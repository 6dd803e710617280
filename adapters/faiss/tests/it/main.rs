//! Faiss as Debian has it, with its lists in local and in far memory.

mod example;
mod far_lists;
mod files;
mod indexes;
mod toolchains;
