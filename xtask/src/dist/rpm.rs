//! A package for Fedora, openSUSE and what comes of them.

use std::path::Path;

use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use super::archive::{Node, Tree};
use super::deb::AFTER_INSTALL;
use super::{HOME, Package, SUMMARY};

/// Where libraries of 64 bits are there, and what links with them.
const PLACES: [(&str, &str); 2] =
    [("usr/lib/libyonder.", "usr/lib64/libyonder."), ("usr/lib/pkgconfig", "usr/lib64/pkgconfig")];

/// Whether only this package has what is there: it is named after it, or below what is.
fn is_of_its_own(folder: &Path) -> bool {
    folder.iter().any(|name| name == "yonder")
}

pub(super) fn package(tree: &Tree, package: &Package) -> Result<(String, Vec<u8>), String> {
    let mut tree = tree.arranged(&PLACES);
    for (path, node) in &mut tree.0 {
        if let (Node::File { content, .. }, true) = (node, path.ends_with("yonder.pc")) {
            *content =
                String::from_utf8_lossy(content).replace("libdir=${prefix}/lib", "libdir=${prefix}/lib64").into();
        }
    }
    let Package { version, glibc, time } = package;
    let config = BuildConfig::default().compression(CompressionType::Gzip).source_date(*time);
    let mut builder = PackageBuilder::new("yonder", version, "MIT OR Apache-2.0", "x86_64", SUMMARY);
    builder
        .using_config(config)
        .release("1")
        .url(HOME)
        .description("A page that is not local is fetched when it is touched, and the page fault yields.")
        .requires(Dependency::any(format!("libc.so.6(GLIBC_{glibc})(64bit)")))
        // The first line says who runs it, which is told apart here.
        .post_install_script(AFTER_INSTALL.trim_start_matches("#!/bin/sh\n"));
    for (path, node) in &tree.0 {
        let to = format!("/{}", path.display());
        let added = match node {
            // Those of its own go when it is removed; the others are the system's.
            Node::Folder if !is_of_its_own(path) => continue,
            Node::Folder => builder.with_dir_entry(FileOptions::dir(to)),
            Node::File { content, mode } => {
                let mode = u16::try_from(0o100_000 | mode).expect("it is a mode");
                builder.with_file_contents(content.clone(), FileOptions::new(to).mode(mode))
            }
            Node::Link(target) => builder.with_symlink(FileOptions::symlink(to, target.display().to_string())),
        };
        added.map_err(|error| format!("'{}' cannot be packed: {error}", path.display()))?;
    }
    let built = builder.build().map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    built.write(&mut bytes).map_err(|error| error.to_string())?;
    Ok((format!("yonder-{version}-1.x86_64.rpm"), bytes))
}
