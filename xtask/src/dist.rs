//! `cargo xtask dist`: packages of what `install` installs, for machines without Rust: `.tar.gz`, `.deb`, `.rpm`, and
//! an image for containers.
//!
//! [`stage`] lays out the root of a file system; [`archive`] reads it and writes archives of it, [`deb`], [`rpm`] and
//! [`image`] what is around these, and [`trial`] tries them, with [`manifests`] those for Kubernetes that are shipped
//! beside the image. The same tree makes the same bytes: everything has the
//! time of the commit. What was built needs a C library as new as that of this machine, or as `--glibc` says; the
//! packages say which.

mod archive;
mod container;
mod deb;
mod image;
mod manifests;
mod pods;
mod rpm;
mod stage;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::target_folder;
use crate::install::Built;

use archive::Tree;
use stage::Stage;

const USAGE: &str = "type cargo xtask dist, with --only tar,deb,rpm,image for some of them, --to DIR for another \
                     folder than target/dist, --glibc 2.31 for machines with that C library or a later one, --from \
                     target/release for what was built before, and --try to install each in an empty root";
/// What can be made.
const FORMS: [&str; 4] = ["tar", "deb", "rpm", "image"];
/// What the packages say of themselves.
pub(crate) const SUMMARY: &str = "Far memory whose page faults yield: memory of other machines and of disks";
pub(crate) const HOME: &str = "https://github.com/yonder-memory/yonder";
pub(crate) const MAINTAINER: &str = "The maintainers of Yonder <maintainers@yonder-memory.example>";

/// What the arguments ask for.
#[derive(PartialEq, Eq, Debug)]
struct Wish {
    only: Vec<String>,
    to: Option<PathBuf>,
    from: Option<PathBuf>,
    /// The oldest C library that it is to run with; that of this machine if it is not said.
    glibc: Option<String>,
    is_tried: bool,
}

/// What all packages have.
pub(crate) struct Package {
    pub(crate) version: &'static str,
    /// The version of the C library that it needs.
    pub(crate) glibc: String,
    /// The time of the commit, in seconds since 1970.
    pub(crate) time: u32,
}

fn wish(arguments: &[&str]) -> Result<Wish, String> {
    let only = FORMS.map(str::to_owned).to_vec();
    let mut wish = Wish { only, to: None, from: None, glibc: None, is_tried: false };
    let mut rest = arguments;
    while !rest.is_empty() {
        if let ["--try", behind @ ..] = rest {
            (wish.is_tried, rest) = (true, behind);
            continue;
        }
        let (pair, behind) = rest.split_at(rest.len().min(2));
        rest = behind;
        match pair {
            ["--only", forms] => wish.only = forms.split(',').map(str::to_owned).collect(),
            ["--to", folder] => wish.to = Some(folder.into()),
            ["--from", folder] => wish.from = Some(folder.into()),
            ["--glibc", version] => wish.glibc = Some((*version).to_owned()),
            _ => return Err(format!("'{}' is not understood: {USAGE}", pair.join(" "))),
        }
    }
    if wish.from.is_some() && wish.glibc.is_some() {
        return Err(format!("--from is built already, and --glibc says how to build: {USAGE}"));
    }
    match wish.only.iter().find(|form| !FORMS.contains(&form.as_str())) {
        Some(form) => Err(format!("'{form}' cannot be made: {USAGE}")),
        None => Ok(wish),
    }
}

/// Builds, unless that was done, and makes packages.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let wish = wish(arguments)?;
    let built = match &wish.from {
        Some(folder) => Built::in_folder(root, &root.join(folder))?,
        None => Built::new(root, wish.glibc.as_deref())?,
    };
    let to = root.join(wish.to.unwrap_or_else(|| target_folder(root).join("dist")));
    fs::create_dir_all(&to).map_err(|error| format!("'{}' cannot be made: {error}", to.display()))?;
    let stage = Stage::lay_out(root, &built, env!("CARGO_PKG_VERSION"))?;
    let tree = Tree::read(stage.root())?;
    let glibc = tree.glibc().ok_or("what was built needs no C library")?;
    let package = Package { version: env!("CARGO_PKG_VERSION"), glibc, time: time_of_commit(root) };
    for form in &wish.only {
        let (name, bytes) = match form.as_str() {
            "tar" => archive::tarball(&tree, &package)?,
            "deb" => deb::package(&tree, &package)?,
            "rpm" => rpm::package(&tree, &package)?,
            _ => image::image(&tree, &built.command, &package)?,
        };
        let path = to.join(name);
        fs::write(&path, &bytes).map_err(|error| format!("'{}' cannot be written: {error}", path.display()))?;
        println!("made {} ({:.1} MB, glibc {} or later)", path.display(), bytes.len() as f64 / 1e6, package.glibc);
        if form == "image" {
            // Engines read it from a file of the machine.
            let beside = to.join(format!("yonder-{}-{}", package.version, manifests::PROFILE));
            let profile = manifests::files(root)?.into_iter().find(|(name, _)| *name == manifests::PROFILE);
            fs::write(&beside, profile.map(|(_, content)| content).unwrap_or_default())
                .map_err(|error| format!("'{}' cannot be written: {error}", beside.display()))?;
            println!("made {}", beside.display());
        }
        if wish.is_tried {
            trial::run(root, form, &path)?;
        }
    }
    Ok(())
}

/// What a night builds is packed and tried.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &["--try"])
}

/// When the commit was made that is built, as `SOURCE_DATE_EPOCH` says, or git.
fn time_of_commit(root: &Path) -> u32 {
    let told = std::env::var("SOURCE_DATE_EPOCH").ok();
    let asked = || {
        let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    told.or_else(asked).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        assert_eq!(wish(&[]).unwrap().only, FORMS);
        let some = wish(&["--only", "deb,image", "--try", "--from", "/t", "--to", "/d"]).unwrap();
        assert!(some.is_tried && !wish(&[]).unwrap().is_tried);
        assert_eq!((some.only.len(), some.from, some.to), (2, Some("/t".into()), Some("/d".into())));
        assert_eq!(wish(&["--glibc", "2.31"]).unwrap().glibc.as_deref(), Some("2.31"));
        for bad in [&["--only", "exe"][..], &["--only"], &["now"], &["--from", "/t", "--glibc", "2.31"]] {
            assert!(wish(bad).unwrap_err().contains("type cargo xtask dist"), "{bad:?}");
        }
    }
}
