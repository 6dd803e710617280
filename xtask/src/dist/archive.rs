//! [`Tree`]: files of a package, in memory, and archives of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use walkdir::WalkDir;

use super::Package;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Folder,
    File { content: Vec<u8>, mode: u32 },
    Link(PathBuf),
}

/// Files of a package by their paths below the root, each folder before what is in it.
#[derive(Clone, Default, Debug)]
pub(super) struct Tree(pub(super) Vec<(PathBuf, Node)>);

impl Tree {
    /// What is below a folder.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for entry in WalkDir::new(root).min_depth(1).sort_by_file_name() {
            let entry = entry.map_err(|error| error.to_string())?;
            let problem = |error| format!("'{}' cannot be read: {error}", entry.path().display());
            let node = match entry.file_type() {
                kind if kind.is_dir() => Node::Folder,
                kind if kind.is_symlink() => Node::Link(fs::read_link(entry.path()).map_err(problem)?),
                _ => Node::File {
                    content: fs::read(entry.path()).map_err(problem)?,
                    mode: fs::metadata(entry.path()).map_err(problem)?.permissions().mode() & 0o777,
                },
            };
            let path = entry.path().strip_prefix(root).expect("it was found below");
            nodes.push((path.to_owned(), node));
        }
        Ok(Self(nodes))
    }

    /// With what begins with some paths at others, as a distribution has it; folders are those that are needed.
    pub(super) fn arranged(&self, places: &[(&str, &str)]) -> Self {
        let mut arranged: BTreeMap<PathBuf, Node> = BTreeMap::new();
        for (path, node) in self.0.iter().filter(|(_, node)| *node != Node::Folder) {
            let text = path.to_string_lossy();
            let to = places.iter().find_map(|(from, to)| Some(format!("{to}{}", text.strip_prefix(from)?)));
            let path = to.map_or_else(|| path.clone(), PathBuf::from);
            for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
                arranged.insert(folder.to_owned(), Node::Folder);
            }
            arranged.insert(path, node.clone());
        }
        Self(arranged.into_iter().collect())
    }

    /// Files with their contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.0.iter().filter_map(|(path, node)| match node {
            Node::File { content, .. } => Some((path.as_path(), content.as_slice())),
            Node::Folder | Node::Link(_) => None,
        })
    }

    /// The latest version of the C library of which anything uses a symbol.
    pub(super) fn glibc(&self) -> Option<String> {
        let programs = self.files().filter(|(path, content)| {
            content.starts_with(b"\x7fELF") && path.extension().is_none_or(|ending| ending != "a")
        });
        let latest = programs.flat_map(|(_, content)| glibc_versions(content)).max()?;
        Some(format!("{}.{}", latest.0, latest.1))
    }

    /// As a tar archive, in which each path begins with `before`.
    pub(super) fn tar(&self, before: &str, time: u32) -> Result<Vec<u8>, String> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, node) in &self.0 {
            let path = Path::new(before).join(path);
            let mut header = tar::Header::new_gnu();
            header.set_mtime(time.into());
            header.set_uid(0);
            header.set_gid(0);
            let written = match node {
                Node::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(if path.ends_with("tmp") { 0o1777 } else { 0o755 });
                    header.set_size(0);
                    archive.append_data(&mut header, path.join(""), &[][..])
                }
                Node::File { content, mode } => {
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    archive.append_data(&mut header, &path, content.as_slice())
                }
                Node::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    archive.append_link(&mut header, &path, target)
                }
            };
            written.map_err(|error| format!("'{}' cannot be packed: {error}", path.display()))?;
        }
        archive.into_inner().map_err(|error| error.to_string())
    }
}

/// Versions like `GLIBC_2.34` that are named in a program.
fn glibc_versions(content: &[u8]) -> Vec<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let mut versions = Vec::new();
    let mut rest = content;
    while let Some(at) = rest.windows(PREFIX.len()).position(|window| window == PREFIX) {
        rest = &rest[at + PREFIX.len()..];
        let digits: String = rest.iter().map_while(|byte| byte.is_ascii_digit().then_some(char::from(*byte))).collect();
        versions.extend(digits.parse().map(|minor| (2, minor)));
    }
    versions
}

/// Compresses bytes, the same to the same.
pub(super) fn gzip(content: &[u8], time: u32) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(time).write(Vec::new(), Compression::default());
    encoder.write_all(content).and_then(|()| encoder.finish()).expect("memory can be written")
}

/// What is unpacked in any folder.
pub(super) fn tarball(tree: &Tree, package: &Package) -> Result<(String, Vec<u8>), String> {
    let name = format!("yonder-{}-x86_64-linux-gnu", package.version);
    // Without /usr: it is the folder that it is unpacked in.
    let nodes = tree.0.iter().filter_map(|(path, node)| {
        let path = path.strip_prefix("usr").ok().filter(|path| *path != Path::new(""))?;
        Some((path.to_owned(), node.clone()))
    });
    let folder = (PathBuf::new(), Node::Folder);
    let tree = Tree([folder].into_iter().chain(nodes).collect());
    Ok((format!("{name}.tar.gz"), gzip(&tree.tar(&name, package.time)?, package.time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_archived_as_it_is_and_always_the_same() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::write(root.path().join("usr/bin/x"), "\x7fELF..GLIBC_2.9..GLIBC_2.34.").unwrap();
        std::os::unix::fs::symlink("x", root.path().join("usr/bin/y")).unwrap();
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.glibc().as_deref(), Some("2.34"));
        let paths = |tree: &Tree| tree.0.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&tree.arranged(&[])), paths(&tree));
        let elsewhere = tree.arranged(&[("usr/bin/x", "opt/z/x")]);
        assert_eq!(paths(&elsewhere), ["opt", "opt/z", "opt/z/x", "usr", "usr/bin", "usr/bin/y"]);
        let package = Package { version: "1.2.3", glibc: "2.34".to_owned(), time: 1_700_000_000 };
        let (name, bytes) = tarball(&tree, &package).unwrap();
        assert_eq!(
            (name.as_str(), &bytes),
            ("yonder-1.2.3-x86_64-linux-gnu.tar.gz", &tarball(&tree, &package).unwrap().1)
        );
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let found: Vec<String> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        let within = |name: &str| format!("yonder-1.2.3-x86_64-linux-gnu/{name}");
        assert_eq!(found, ["", "bin/", "bin/x", "bin/y"].map(within));
    }
}
