//! Where inputs lie: the corpus of a target, and inputs that fail.

use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

/// The folder with the corpus of a target.
#[must_use]
pub fn corpus_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The files of a folder, by name; none if there is no such folder.
///
/// # Errors
/// One line if a file cannot be read.
pub fn read_corpus(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    let read = |path: PathBuf| fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    paths.into_iter().filter(|path| path.is_file()).map(read).collect()
}

/// Saves an input under a name made of `prefix` and its content, and returns where.
///
/// # Errors
/// One line if it cannot be written.
pub fn save(folder: &Path, prefix: &str, input: &[u8]) -> Result<PathBuf, String> {
    let path = folder.join(format!("{prefix}-{:016x}", xxh3_64(input)));
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(folder).map_err(wrong)?;
    fs::write(&path, input).map_err(wrong)?;
    Ok(path)
}
