//! `cargo xtask install --prefix DIR`: the command, the library that `yonder run` preloads, the guides beside it, the C
//! library, its headers and its pkg-config file, the header for guides, and services for systemd, where this machine
//! finds them.
//!
//! [`Built`] is what cargo has made: of a release build, or what lies in a folder of cargo's that `--from` names, for
//! who has built already. Each file is written beside its place and then renamed, so that a program that runs keeps
//! what it has. Neighbours: `edge/capi` has the headers and the template, and its build script the same
//! [`ABI_VERSION`].

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cargo::{cargo, made, typed};

/// The version of the C library's binary interface, which is in the name that programs ask for when they start.
const ABI_VERSION: &str = "0";
/// What is built for, where that is said.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Where the header and the template are.
const INTERFACE: &str = "edge/capi";
/// Where services for systemd are, and what they are called.
const SERVICES: &str = "edge/cli/systemd";
const SERVICE_NAMES: [&str; 3] = ["yonder-controller.service", "yonder-governor.service", "yonder-node.service"];
/// Where the header for guides is, and where the guides are.
const GUIDE_HEADER: &str = "sys/plugin/include/yonder_guide.h";
const GUIDES: &str = "edge/guides";
/// What to type.
const USAGE: &str = "type cargo xtask install --prefix DIR, such as /usr/local or $HOME/.local, and --from target/release \
                     to install what was built before";

/// What the arguments ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    prefix: PathBuf,
    from: Option<PathBuf>,
}

/// What cargo has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Built {
    pub(crate) command: PathBuf,
    preloaded: PathBuf,
    shared: PathBuf,
    archive: PathBuf,
    guides: Vec<PathBuf>,
}

/// Permissions of an installed file.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Run,
    Read,
}

/// Reads the arguments after `install`.
pub(crate) fn wish(arguments: &[&str]) -> Result<Wish, String> {
    let (mut prefix, mut from) = (None, None);
    for pair in arguments.chunks(2) {
        match pair {
            ["--prefix", folder] if !folder.is_empty() => prefix = Some(absolute(folder)?),
            ["--from", folder] if !folder.is_empty() => from = Some(absolute(folder)?),
            _ => return Err(format!("'{}' is not understood: {USAGE}", pair.join(" "))),
        }
    }
    let prefix = prefix.ok_or_else(|| format!("it is not said where to: {USAGE}"))?;
    if prefix.to_str().is_none_or(|text| text.contains(|letter: char| letter.is_whitespace() || letter == '$')) {
        return Err(format!("'{}' has a character that pkg-config cannot take: {USAGE}", prefix.display()));
    }
    Ok(Wish { prefix, from })
}

fn absolute(folder: &str) -> Result<PathBuf, String> {
    std::path::absolute(folder).map_err(|error| format!("'{folder}': {error}"))
}

/// Builds, unless that was done, installs, and says what it did.
pub(crate) fn run(root: &Path, wish: &Wish) -> Result<(), String> {
    let built = match &wish.from {
        Some(folder) => Built::in_folder(root, folder)?,
        None => Built::new(root, None)?,
    };
    for path in install(root, &built, &Places::at(&wish.prefix), env!("CARGO_PKG_VERSION"))? {
        println!("installed {}", path.display());
    }
    let pkgconfig = wish.prefix.join("lib/pkgconfig");
    println!(
        "build C programs with: cc program.c $(PKG_CONFIG_PATH={} pkg-config --cflags --libs yonder)",
        pkgconfig.display()
    );
    let libraries = wish.prefix.join("lib");
    println!(
        "if they do not find libyonder.so.{ABI_VERSION}: type ldconfig, or export LD_LIBRARY_PATH={}",
        libraries.display()
    );
    Ok(())
}

/// The names of the guides, which are those of their folders.
fn guides(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join(GUIDES);
    let problem = |error| format!("'{}' cannot be read: {error}", folder.display());
    let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(problem)?;
    let folders = entries.into_iter().filter(|entry| entry.path().join("Cargo.toml").is_file());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// What cargo calls the library of a guide, and what its file is called without its ending.
fn guide_target(name: &str) -> String {
    format!("yonder_guide_{}", name.replace('-', "_"))
}

impl Built {
    /// Builds for release, and asks cargo where what it has made is. With the version of a C library, for machines with
    /// that one or a later one, by `cargo zigbuild`, whose linker has them all.
    pub(crate) fn new(root: &Path, glibc: Option<&str>) -> Result<Self, String> {
        let guides = guides(root)?;
        let build = if glibc.is_some() { "zigbuild" } else { "build" };
        let mut command = cargo(root, &[build, "--release", "--package=yonder-cli", "--features=yonder-cli/etcd"]);
        command.args(glibc.map(|version| format!("--target={TARGET}.{version}")));
        command.args(["--package=yonder-preload", "--package=yonder-capi"]);
        command.args(guides.iter().map(|name| format!("--package=yonder-guide-{name}")));
        command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
        let output = command.output().map_err(|error| format!("{}: {error}", typed(&command)))?;
        if !output.status.success() {
            return Err(format!("'{}' ended with {}", typed(&command), output.status));
        }
        Self::from_messages(&String::from_utf8_lossy(&output.stdout), &guides)
    }

    /// Reads what cargo says about what it has made.
    fn from_messages(messages: &str, guides: &[String]) -> Result<Self, String> {
        let made = |target: &str, ending: &str| made(messages, target, ending);
        Ok(Self {
            command: made("yonder", "/yonder")?,
            preloaded: made("yonder_preload", ".so")?,
            shared: made("yonder_capi", ".so")?,
            archive: made("yonder_capi", ".a")?,
            guides: guides.iter().map(|name| made(&guide_target(name), ".so")).collect::<Result<_, _>>()?,
        })
    }

    /// What is in a folder of cargo's, such as `target/release`.
    pub(crate) fn in_folder(root: &Path, folder: &Path) -> Result<Self, String> {
        let find = |names: [&str; 2]| -> Result<PathBuf, String> {
            let mut paths = names.into_iter().map(|name| folder.join(name));
            paths.find(|path| path.is_file()).ok_or_else(|| {
                let name = names[1];
                format!(
                    "no {name} in '{}': type cargo build --release and cargo build --release -p yonder-capi first",
                    folder.display()
                )
            })
        };
        let guide = |name: &String| {
            let file = format!("lib{}.so", guide_target(name));
            find([&format!("deps/{file}"), &file])
        };
        // Cargo links what it was asked for from `deps`, so what is there is never the older one.
        Ok(Self {
            command: find(["yonder", "yonder"])?,
            preloaded: find(["deps/libyonder_preload.so", "libyonder_preload.so"])?,
            shared: find(["deps/libyonder_capi.so", "libyonder_capi.so"])?,
            archive: find(["deps/libyonder_capi.a", "libyonder_capi.a"])?,
            guides: guides(root)?.iter().map(guide).collect::<Result<_, _>>()?,
        })
    }
}

/// Where things are put, and where they will be.
pub(crate) struct Places {
    /// As files name it.
    prefix: PathBuf,
    /// In which they are written.
    folder: PathBuf,
}

impl Places {
    fn at(prefix: &Path) -> Self {
        Self { prefix: prefix.to_owned(), folder: prefix.to_owned() }
    }

    /// Below a folder that will be the root of a file system.
    pub(crate) fn below(root: &Path, prefix: &str) -> Self {
        Self { prefix: prefix.into(), folder: root.join(prefix.trim_start_matches('/')) }
    }
}

/// Puts everything into its place, and returns the places.
pub(crate) fn install(root: &Path, built: &Built, places: &Places, version: &str) -> Result<Vec<PathBuf>, String> {
    let Places { prefix: named, folder: prefix } = places;
    let template = root.join(INTERFACE).join("yonder.pc.in");
    let headers = root.join(INTERFACE).join("include");
    let filled_in = |template: &Path| -> Result<String, String> {
        let text = String::from_utf8_lossy(&read(template)?).replace("@PREFIX@", &named.to_string_lossy());
        Ok(text.replace("@VERSION@", version))
    };
    let real = format!("libyonder.so.{version}");
    let soname = format!("libyonder.so.{ABI_VERSION}");
    let mut made = vec![
        place(&read(&built.command)?, prefix.join("bin/yonder"), Use::Run)?,
        place(&read(&built.preloaded)?, prefix.join("lib/yonder/libyonder_preload.so"), Use::Run)?,
        place(&read(&built.shared)?, prefix.join("lib").join(&real), Use::Run)?,
        link(&real, prefix.join("lib").join(&soname))?,
        link(&soname, prefix.join("lib/libyonder.so"))?,
        place(&read(&built.archive)?, prefix.join("lib/libyonder.a"), Use::Read)?,
        place(&read(&headers.join("yonder.h"))?, prefix.join("include/yonder.h"), Use::Read)?,
        place(&read(&headers.join("yonder_threads.h"))?, prefix.join("include/yonder_threads.h"), Use::Read)?,
        place(&read(&headers.join("yonder.hpp"))?, prefix.join("include/yonder.hpp"), Use::Read)?,
        place(&read(&root.join(GUIDE_HEADER))?, prefix.join("include/yonder_guide.h"), Use::Read)?,
        place(filled_in(&template)?.as_bytes(), prefix.join("lib/pkgconfig/yonder.pc"), Use::Read)?,
    ];
    for name in SERVICE_NAMES {
        let service = filled_in(&root.join(SERVICES).join(name))?;
        made.push(place(service.as_bytes(), prefix.join("lib/systemd/system").join(name), Use::Read)?);
    }
    // `yonder run` looks for guides in the folder of what it preloads.
    for guide in &built.guides {
        let file = guide.file_name().expect("what was built has a name");
        made.push(place(&read(guide)?, prefix.join("lib/yonder").join(file), Use::Run)?);
    }
    Ok(made)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("'{}' cannot be read: {error}", path.display()))
}

/// Writes a file.
pub(crate) fn place(content: &[u8], path: PathBuf, purpose: Use) -> Result<PathBuf, String> {
    let mode = match purpose {
        Use::Run => 0o755,
        Use::Read => 0o644,
    };
    into_place(path, |beside| {
        fs::write(beside, content)?;
        fs::set_permissions(beside, fs::Permissions::from_mode(mode))
    })
}

/// Makes a symbolic link to `target` in the same folder.
fn link(target: &str, path: PathBuf) -> Result<PathBuf, String> {
    into_place(path, |beside| symlink(target, beside))
}

/// Makes something beside `path`, and renames it to that.
fn into_place(path: PathBuf, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<PathBuf, String> {
    let folder = path.parent().expect("what is installed is in a folder");
    let name = path.file_name().expect("what is installed has a name").to_string_lossy();
    let beside = folder.join(format!(".{name}.new"));
    let made = fs::create_dir_all(folder).and_then(|()| {
        // One that an interrupted run has left.
        if beside.symlink_metadata().is_ok() {
            fs::remove_file(&beside)?;
        }
        make(&beside)?;
        fs::rename(&beside, &path)
    });
    let problem = |error| {
        format!("'{}' cannot be written: {error}; choose a --prefix that is yours, or type sudo", path.display())
    };
    made.map_err(problem)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files, which is gone after the test.
    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn with(self, files: &[(&str, &str)]) -> Self {
            for (name, content) in files {
                let path = self.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            self
        }
    }

    const BUILT: [(&str, &str); 5] = [
        ("yonder", "command"),
        ("deps/libyonder_preload.so", "preloaded"),
        ("deps/libyonder_capi.so", "shared"),
        ("libyonder_capi.so", "older"),
        ("libyonder_capi.a", "archive"),
    ];

    #[test]
    fn everything_is_in_its_place_and_can_be_replaced() {
        let root = crate::repository_root();
        let guides = guides(&root).unwrap();
        assert!(guides.contains(&"linked-list".to_owned()), "{guides:?}");
        let files: Vec<String> = guides.iter().map(|name| format!("lib{}.so", guide_target(name))).collect();
        let from = Scratch::new().with(&BUILT);
        let from = files.iter().fold(from, |from, file| from.with(&[(file, "guide")]));
        let to = Scratch::new().with(&[("lib/.libyonder.a.new", "of an interrupted run"), ("bin/yonder", "old")]);
        let built = Built::in_folder(&root, from.0.path()).unwrap();
        for _ in 0..2 {
            let installed = install(&root, &built, &Places::at(to.0.path()), "1.2.3").unwrap();
            assert!(
                installed.len() == 11 + SERVICE_NAMES.len() + guides.len()
                    && installed.iter().all(|path| path.starts_with(to.0.path()) && path.exists())
            );
        }
        let read = |name: &str| fs::read_to_string(to.0.path().join(name)).unwrap();
        assert_eq!((read("bin/yonder"), read("lib/libyonder.a")), ("command".to_owned(), "archive".to_owned()));
        for name in ["libyonder.so", "libyonder.so.0", "libyonder.so.1.2.3"] {
            assert_eq!(read(&format!("lib/{name}")), "shared", "{name}");
        }
        assert_eq!(read("lib/yonder/libyonder_preload.so"), "preloaded");
        assert!(files.iter().all(|file| read(&format!("lib/yonder/{file}")) == "guide"));
        assert!(read("include/yonder_guide.h").contains("YONDER_GUIDE_VERSION"));
        let described = read("lib/pkgconfig/yonder.pc");
        assert!(described.contains("\nVersion: 1.2.3\n") && !described.contains('@'), "{described}");
        assert!(described.starts_with(&format!("prefix={}\n", to.0.path().display())), "{described}");
        assert!(read("include/yonder.h").contains("yonder_process_create"));
        assert!(read("include/yonder_threads.h").contains("yonder_spawn"));
        assert!(read("include/yonder.hpp").contains("class allocator"));
        for name in SERVICE_NAMES {
            let (service, prefix) = (read(&format!("lib/systemd/system/{name}")), to.0.path().display());
            let command = name.strip_prefix("yonder-").and_then(|rest| rest.strip_suffix(".service")).unwrap();
            assert!(service.contains(&format!("\nExecStart={prefix}/bin/yonder {command} ")), "{service}");
        }
        let mode = |name: &str| fs::metadata(to.0.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bin/yonder"), mode("lib/libyonder.a")), (0o755, 0o644));
        assert_eq!(fs::read_dir(to.0.path().join("lib")).unwrap().count(), 7, "nothing is left beside");
    }

    #[test]
    fn every_service_is_installed() {
        let folder = fs::read_dir(crate::repository_root().join(SERVICES)).unwrap();
        let mut names: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, SERVICE_NAMES);
    }

    #[test]
    fn what_was_not_built_is_said() {
        let from = Scratch::new().with(&BUILT[..2]);
        let message = Built::in_folder(&crate::repository_root(), from.0.path()).unwrap_err();
        assert!(message.starts_with("no libyonder_capi.so in ") && message.contains("type cargo build"), "{message}");
    }

    #[test]
    fn what_cargo_says_is_understood() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"yonder\"},\"filenames\":[\"/t/libyonder.rlib\"]}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"yonder_capi\"},\"filenames\":[\"/t/libyonder_capi.so\",\"/t/libyonder_capi.a\"]}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"yonder_preload\"},\"filenames\":[\"/t/libyonder_preload.so\"]}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"yonder_guide_a_b\"},\"filenames\":[\"/t/libyonder_guide_a_b.so\",\"/t/libyonder_guide_a_b.rlib\"]}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"yonder\"},\"filenames\":[\"/t/yonder\"]}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        let guides = ["a-b".to_owned()];
        let built = Built::from_messages(messages, &guides).unwrap();
        assert_eq!(built.guides, [PathBuf::from("/t/libyonder_guide_a_b.so")]);
        assert_eq!((built.command, built.preloaded), ("/t/yonder".into(), "/t/libyonder_preload.so".into()));
        assert_eq!((built.shared, built.archive), ("/t/libyonder_capi.so".into(), "/t/libyonder_capi.a".into()));
        assert!(Built::from_messages("", &guides).is_err());
    }

    #[test]
    fn arguments_are_checked() {
        let wanted = wish(&["--prefix", "/opt/x", "--from", "/t"]).unwrap();
        assert_eq!(wanted, Wish { prefix: "/opt/x".into(), from: Some("/t".into()) });
        assert!(wish(&["--prefix", "here"]).unwrap().prefix.is_absolute());
        for bad in [&[][..], &["--prefix"], &["--prefix", ""], &["--from", "/t"], &["/opt"], &["--prefix", "/a b"]] {
            assert!(wish(bad).unwrap_err().contains("type cargo xtask install --prefix DIR"), "{bad:?}");
        }
    }

    #[test]
    fn the_binary_interface_has_one_version() {
        let script = fs::read_to_string(crate::repository_root().join(INTERFACE).join("build.rs")).unwrap();
        assert!(script.contains(&format!("-soname,libyonder.so.{ABI_VERSION}\"")));
    }

    #[test]
    fn a_prefix_that_is_not_ours_is_one_line() {
        let to = Scratch::new().with(&[("lib", "a file where a folder should be")]);
        let message = place(b"", to.0.path().join("lib/x"), Use::Read).unwrap_err();
        assert!(message.contains("cannot be written") && message.contains("--prefix") && !message.contains('\n'));
    }
}
