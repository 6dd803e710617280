//! A package for Debian and what comes of it: an `ar` of two archives, one of what the package is and one of its files.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::archive::{Node, Tree, gzip};
use super::{HOME, MAINTAINER, Package, SUMMARY};

/// Run as root once the files are there. Each is needed only where there is such a thing.
pub(super) const AFTER_INSTALL: &str = "\
#!/bin/sh
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then systemd-sysusers yonder.conf || true; fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    udevadm control --reload && udevadm trigger --name-match=userfaultfd || true
fi
";

/// Where Debian has what others have elsewhere.
const PLACES: [(&str, &str); 1] = [("usr/share/zsh/site-functions", "usr/share/zsh/vendor-completions")];

pub(super) fn package(tree: &Tree, package: &Package) -> Result<(String, Vec<u8>), String> {
    let tree = &tree.arranged(&PLACES);
    let file = |content: String, mode| Node::File { content: content.into_bytes(), mode };
    let control = Tree(vec![
        (PathBuf::from("control"), file(control(tree, package), 0o644)),
        (PathBuf::from("md5sums"), file(sums(tree), 0o644)),
        (PathBuf::from("postinst"), file(AFTER_INSTALL.to_owned(), 0o755)),
        (PathBuf::from("triggers"), file("activate-noawait ldconfig\n".to_owned(), 0o644)),
    ]);
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar("./", package.time)?, package.time)),
        ("data.tar.gz", gzip(&tree.tar("./", package.time)?, package.time)),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), content.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(package.time.into());
        archive.append(&header, content.as_slice()).map_err(|error| format!("{name} cannot be packed: {error}"))?;
    }
    let bytes = archive.into_inner().map_err(|error| error.to_string())?;
    Ok((format!("yonder_{}_amd64.deb", package.version), bytes))
}

fn control(tree: &Tree, package: &Package) -> String {
    let kib: usize = tree.files().map(|(_, content)| content.len().div_ceil(1024)).sum();
    let Package { version, glibc, .. } = package;
    format!(
        "Package: yonder\nVersion: {version}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\nInstalled-Size: {kib}\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\nSection: utils\nPriority: optional\nHomepage: {HOME}\n\
         Description: {SUMMARY}\n A page that is not local is fetched when it is touched, and the page fault \
         yields:\n other requests are served meanwhile. With memory nodes, a controller, a key-value\n server, and \
         `yonder run` for programs as they are.\n"
    )
}

fn sums(tree: &Tree) -> String {
    tree.files().fold(String::new(), |mut lines, (path, content)| {
        writeln!(lines, "{:x}  {}", md5::compute(content), path.display()).expect("text can be written");
        lines
    })
}
