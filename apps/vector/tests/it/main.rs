//! Vector search with lists in far memory, files of vectors, and the example.

mod example;
mod far_lists;
mod files;
