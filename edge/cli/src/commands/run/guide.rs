//! The guide that a program runs with: found by its name or its path, loaded once to see whether that works.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use yonder_plugin::Loaded;

/// What the names of guides' files begin and end with.
const FILE: (&str, &str) = ("libyonder_guide_", ".so");

/// The library of the guide `named`, which is checked; `folder` has those that are installed.
pub(crate) fn find(named: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = if named.contains('/') { PathBuf::from(named) } else { by_name(named, folder)? };
    Loaded::open(&path)?;
    // The program may run elsewhere.
    let path = std::path::absolute(&path).with_context(|| format!("cannot find {}", path.display()))?;
    ensure!(path.to_str().is_some(), "{} has a name that is no text: copy it to another folder", path.display());
    Ok(path)
}

fn by_name(name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let choices = || match names(folder).join(", ") {
        none if none.is_empty() => format!("no guides are in {}: type the path of a library", folder.display()),
        names => format!("type one of {names}, or the path of a library"),
    };
    ensure!(is_name, "'{name}' is no name of a guide, which has letters, digits and dashes: {}", choices());
    let path = folder.join(format!("{}{}{}", FILE.0, name.replace('-', "_"), FILE.1));
    ensure!(path.is_file(), "there is no guide '{name}': {}", choices());
    Ok(path)
}

/// The guides in a folder.
fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let file = file.file_name().into_string().ok()?;
            let name = file.strip_prefix(FILE.0)?.strip_suffix(FILE.1)?;
            Some(name.replace('_', "-"))
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(named: &str, folder: &Path) -> String {
        let refusal = find(named, folder).unwrap_err().to_string();
        assert!(!refusal.contains('\n'), "{refusal}");
        refusal
    }

    #[test]
    fn guides_are_named_as_their_files_are() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refusal("tree", folder.path()).contains("there is no guide 'tree': no guides are in"));
        for file in ["libyonder_guide_linked_list.so", "libyonder_guide_b2.so", "libyonder_preload.so", "notes.so"] {
            std::fs::write(folder.path().join(file), "no library").unwrap();
        }
        assert_eq!(names(folder.path()), ["b2", "linked-list"]);
        assert_eq!(
            refusal("tree", folder.path()),
            "there is no guide 'tree': type one of b2, linked-list, or the path of a library"
        );
        assert!(refusal("linked-list", folder.path()).contains("libyonder_guide_linked_list.so cannot be loaded"));
    }

    #[test]
    fn what_is_no_name_is_no_path_either() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "linked_list", "a b", "guide.so", "é"] {
            assert!(refusal(name, folder.path()).contains("is no name of a guide"), "{name}");
        }
        assert!(refusal("./guide", folder.path()).contains("there is no guide at ./guide"));
        assert!(refusal("/gone/guide.so", folder.path()).contains("there is no guide at /gone/guide.so"));
    }
}
