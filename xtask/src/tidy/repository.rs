//! The repository in memory: every path, and the text of all files that have one.
//!
//! [`Repository::read`] walks the working tree; tests make one from snippets. Paths are relative
//! to the root and use `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use walkdir::{DirEntry, WalkDir};

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 3] = ["target", ".git", "demo-report"];
/// How the names of the files end that must be text. Others may be: one that is not counts as empty.
const TEXTS: [&str; 3] = [".rs", ".md", ".toml"];

/// Every file of the working tree.
pub(crate) struct Repository {
    files: BTreeMap<String, String>,
    folders: BTreeSet<String>,
}

impl Repository {
    /// Reads the working tree at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let is_ours = |entry: &DirEntry| {
            let is_skipped = SKIPPED.iter().any(|skipped| entry.file_name() == *skipped);
            entry.depth() == 0 || !(is_skipped && entry.file_type().is_dir())
        };
        let mut files = BTreeMap::new();
        for entry in WalkDir::new(root).into_iter().filter_entry(is_ours) {
            let entry = entry.map_err(|error| error.to_string())?;
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_string_lossy().into_owned();
            if !entry.file_type().is_dir() {
                let is_file = entry.file_type().is_file();
                let text = if is_file { fs::read_to_string(entry.path()) } else { Ok(String::new()) };
                let text = match text {
                    Err(error) if error.kind() == ErrorKind::InvalidData && !must_be_text(&path) => String::new(),
                    text => text.map_err(|error| format!("{path}: {error}"))?,
                };
                files.insert(path, text);
            }
        }
        Ok(Self::from_files(files))
    }

    /// A repository of snippets.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn from_files(files: BTreeMap<String, String>) -> Self {
        let folders = files
            .keys()
            .flat_map(|path| path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect::<Vec<_>>())
            .collect();
        Self { files, folders }
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Path and text of the files whose path ends in `ending`.
    pub(crate) fn files_ending(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(ending))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file or a folder has this path. The root's path is empty.
    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.files.contains_key(path) || self.folders.contains(path)
    }

    /// The folders of all crates: those that have a manifest of their own.
    pub(crate) fn crate_folders(&self) -> impl Iterator<Item = &str> {
        self.paths().filter_map(|path| path.strip_suffix("/Cargo.toml"))
    }
}

fn must_be_text(path: &str) -> bool {
    TEXTS.iter().any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_from_files() {
        let repository =
            Repository::of(&[("core/units/Cargo.toml", ""), ("core/units/src/lib.rs", ""), ("README.md", "")]);
        for path in ["", "core", "core/units", "core/units/src", "README.md"] {
            assert!(repository.exists(path), "{path}");
        }
        assert!(!repository.exists("core/unit"));
        assert_eq!(repository.crate_folders().collect::<Vec<_>>(), ["core/units"]);
    }
}
