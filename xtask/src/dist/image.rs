//! An image for containers, in the layout of the Open Container Initiative: the command, what it preloads, and of this
//! machine the C library that it was built with. `podman load`, `docker load` and `skopeo` take it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::archive::{Node, Tree, gzip};
use super::{HOME, Package, SUMMARY};

/// The user that runs in it, who has no rights.
const USER: u32 = 10_001;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(super) fn image(tree: &Tree, command: &Path, package: &Package) -> Result<(String, Vec<u8>), String> {
    let layer = root_of(tree, &libraries(command)?)?.tar("", package.time)?;
    let packed = gzip(&layer, package.time);
    let created = "1970-01-01T00:00:00Z";
    let config = json!({
        "created": created, "architecture": "amd64", "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"), "Entrypoint": ["/usr/bin/yonder"], "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin", "HOME=/tmp"], "WorkingDir": "/tmp",
            "Labels": {
                "org.opencontainers.image.title": "yonder", "org.opencontainers.image.description": SUMMARY,
                "org.opencontainers.image.source": HOME, "org.opencontainers.image.version": package.version,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    });
    let mut blobs = Vec::new();
    let mut keep = |kind: &str, content: Vec<u8>| -> Value {
        let described = json!({ "mediaType": kind, "digest": digest(&content), "size": content.len() });
        blobs.push(content);
        described
    };
    let layer = keep("application/vnd.oci.image.layer.v1.tar+gzip", packed);
    let config = keep("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = keep(MANIFEST, manifest.to_string().into_bytes());
    let name = format!("yonder:{}", package.version);
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    let file = |content: Vec<u8>| Node::File { content, mode: 0o644 };
    let mut nodes = vec![
        (PathBuf::from("oci-layout"), file(json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes())),
        (PathBuf::from("index.json"), file(index.to_string().into_bytes())),
        (PathBuf::from("blobs"), Node::Folder),
        (PathBuf::from("blobs/sha256"), Node::Folder),
    ];
    nodes.extend(blobs.into_iter().map(|blob| {
        let name = digest(&blob).replace(':', "/");
        (Path::new("blobs").join(name), file(blob))
    }));
    Ok((format!("yonder-{}-oci.tar", package.version), Tree(nodes).tar("", package.time)?))
}

fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// What the command loads when it starts, and what loads it.
fn libraries(command: &Path) -> Result<Vec<PathBuf>, String> {
    let asked = Command::new("ldd").arg(command).output().map_err(|error| format!("ldd: {error}"))?;
    let words = String::from_utf8_lossy(&asked.stdout).into_owned();
    let found: Vec<PathBuf> =
        words.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    if found.is_empty() { Err(format!("ldd says nothing of '{}'", command.display())) } else { Ok(found) }
}

/// The command and what it needs to start, and nothing to build with.
fn root_of(tree: &Tree, libraries: &[PathBuf]) -> Result<Tree, String> {
    let is_kept = |path: &Path| {
        ["usr/bin", "usr/lib/yonder"]
            .iter()
            .any(|folder| path.starts_with(folder) || Path::new(folder).starts_with(path))
    };
    let mut nodes: Vec<(PathBuf, Node)> = tree.0.iter().filter(|(path, _)| is_kept(path)).cloned().collect();
    for library in libraries {
        let content = fs::read(library).map_err(|error| format!("'{}' cannot be read: {error}", library.display()))?;
        let path = library.strip_prefix("/").expect("it is a whole path").to_owned();
        let folders: Vec<&Path> = path.ancestors().skip(1).filter(|folder| *folder != Path::new("")).collect();
        for folder in folders.into_iter().rev() {
            if nodes.iter().all(|(known, _)| known != folder) {
                nodes.push((folder.to_owned(), Node::Folder));
            }
        }
        nodes.push((path, Node::File { content, mode: 0o755 }));
    }
    let users = format!("root:x:0:0:root:/:/none\nyonder:x:{USER}:{USER}:Yonder:/tmp:/none\n");
    let groups = format!("root:x:0:\nyonder:x:{USER}:\n");
    nodes.push((PathBuf::from("etc"), Node::Folder));
    for (name, content) in [("etc/passwd", users), ("etc/group", groups)] {
        nodes.push((PathBuf::from(name), Node::File { content: content.into_bytes(), mode: 0o644 }));
    }
    nodes.push((PathBuf::from("tmp"), Node::Folder));
    Ok(Tree(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_what_its_command_needs_to_start() {
        let program = std::env::current_exe().unwrap();
        let libraries = libraries(&program).unwrap();
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
        let file = Node::File { content: b"x".to_vec(), mode: 0o755 };
        let tree = Tree(vec![
            ("usr".into(), Node::Folder),
            ("usr/bin".into(), Node::Folder),
            ("usr/bin/yonder".into(), file.clone()),
            ("usr/include".into(), Node::Folder),
            ("usr/include/yonder.h".into(), file),
        ]);
        let root = root_of(&tree, &libraries).unwrap();
        let has = |name: &str| root.0.iter().any(|(path, _)| path == Path::new(name));
        assert!(has("usr/bin/yonder") && has("etc/passwd") && has("tmp") && !has("usr/include"));
        let (name, bytes) =
            image(&tree, &program, &Package { version: "1.2.3", glibc: String::new(), time: 7 }).unwrap();
        assert_eq!(name, "yonder-1.2.3-oci.tar");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut hashes = 0;
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if let Some(hash) = path.strip_prefix("blobs/sha256/").filter(|hash| !hash.is_empty()) {
                assert_eq!(digest(&content), format!("sha256:{hash}"));
                hashes += 1;
            }
        }
        assert_eq!(hashes, 3);
    }
}
