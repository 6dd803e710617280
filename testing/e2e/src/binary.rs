//! The binary under test: where it is, whether this machine can run it, and how it is started.
//!
//! In this order: what the variable `YONDER_BIN` names; `yonder` beside the test executable's folder, where
//! `cargo test --workspace` puts it; else it is built once, with cargo, in the test's own profile. Cargo does not
//! rebuild it for `cargo test -p yonder-e2e` when it is there already: build `-p yonder-cli` first after a change.
//! The library that `yonder run` preloads, and guides, cargo builds with the tests: they are put beside the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

use crate::process::{Ended, Process};
use crate::terminal::Terminal;

/// Environment variable that names the binary to test.
const BINARY_VARIABLE: &str = "YONDER_BIN";
/// Environment variable that names the binary of the release before.
const BEFORE_VARIABLE: &str = "YONDER_BEFORE";
/// Whose binary it is.
const PACKAGE: &str = "yonder-cli";
/// Where the guides are, a folder for each.
const GUIDES: &str = "../../edge/guides";
/// What `yonder run` preloads.
const LIBRARY: &str = "libyonder_preload.so";

/// The `yonder` binary. Each command that it starts has a folder of its own for the sockets at which processes are
/// asked for their settings, so that none finds those of other tests; [`Yonder::together`] is for those that are to
/// find one another.
#[derive(Clone, Copy, Debug)]
pub struct Yonder {
    path: &'static Path,
}

impl Yonder {
    /// The binary, if this machine can run far memory; else prints `SKIP` and what the doctor says.
    ///
    /// # Panics
    /// If the binary cannot be found or built.
    #[must_use]
    pub fn ready() -> Option<Self> {
        static DIAGNOSIS: OnceLock<Result<(), String>> = OnceLock::new();
        let yonder = Self::found();
        let diagnosis = DIAGNOSIS.get_or_init(|| {
            let doctor = yonder.run(&["doctor"]);
            if doctor.code == Some(0) { Ok(()) } else { Err(doctor.stdout) }
        });
        match diagnosis {
            Ok(()) => Some(yonder),
            Err(why) => {
                println!("SKIP: this machine cannot run Yonder: {why}");
                None
            }
        }
    }

    /// The binary, whatever the machine can do.
    ///
    /// # Panics
    /// If the binary cannot be found or built.
    #[must_use]
    pub fn found() -> Self {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        Self { path: PATH.get_or_init(locate) }
    }

    /// The binary of the release before, if one is named.
    #[must_use]
    pub fn before() -> Option<Self> {
        static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
        let path = PATH.get_or_init(|| std::env::var_os(BEFORE_VARIABLE).map(PathBuf::from));
        path.as_deref().map(|path| Self { path })
    }

    /// The binary with what `yonder run` needs, if this machine can run far memory; else prints `SKIP` as
    /// [`Yonder::ready`].
    ///
    /// # Panics
    /// If the binary cannot be found or built, or the library is not there.
    #[must_use]
    pub fn ready_to_run() -> Option<Self> {
        Self::ready().map(Self::with_library)
    }

    /// The same binary, with the library that `yonder run` preloads beside it.
    ///
    /// # Panics
    /// If the library is not there.
    #[must_use]
    pub fn with_library(self) -> Self {
        static LIBRARY_IS_THERE: OnceLock<()> = OnceLock::new();
        LIBRARY_IS_THERE.get_or_init(|| {
            self.put_beside(LIBRARY);
        });
        self
    }

    /// The same binary, with the guides that are found by name beside it.
    ///
    /// # Panics
    /// If they are not there.
    #[must_use]
    pub fn with_guides(self) -> Self {
        static GUIDES_ARE_THERE: OnceLock<()> = OnceLock::new();
        GUIDES_ARE_THERE.get_or_init(|| {
            let guides = Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDES);
            for guide in guides.read_dir().expect("there are guides") {
                let name = guide.expect("the folder can be read").file_name();
                let name = name.to_str().expect("guides have plain names");
                self.put_beside(&format!("libyonder_guide_{}.so", name.replace('-', "_")));
            }
        });
        self
    }

    /// Puts a library that cargo has built with this test beside the binary, unless the binary was named: then it is
    /// there.
    fn put_beside(self, library: &str) {
        let folder = self.path.parent().expect("the binary is in a folder");
        let place = folder.join(library);
        if std::env::var_os(BINARY_VARIABLE).is_some() {
            assert!(place.exists(), "{library} is not in {}", folder.display());
            return;
        }
        // A place of its own first: a process may have the one that is there now.
        let built = tests_folder().join(library);
        let new = folder.join(format!("{library}.{}", std::process::id()));
        fs::hard_link(&built, &new).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        fs::rename(&new, &place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
        // Two names of one file stay what they are.
        let _ = fs::remove_file(&new);
    }

    /// Where the binary is.
    ///
    /// # Panics
    /// If that cannot be printed.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.path.to_str().expect("the target folder has a name that can be printed")
    }

    /// The same binary in a folder of its own, whose processes find one another and no others.
    ///
    /// # Panics
    /// If there can be no such folder.
    #[must_use]
    pub fn together(self) -> Together {
        Together { yonder: self, runtime: tempfile::tempdir().expect("a temporary folder") }
    }

    /// Starts a server (`kv` or `node`) and returns once it has said where it listens.
    ///
    /// # Panics
    /// If it ends instead, or says nothing for long.
    #[must_use]
    pub fn serve(self, args: &[&str]) -> Process {
        self.spawn(args).listening()
    }

    /// Starts a command without waiting for anything.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(self, args: &[&str]) -> Process {
        Process::spawn(self.path, args)
    }

    /// Starts a command on a terminal of its own.
    ///
    /// # Panics
    /// If it cannot be started, or the system has no pseudo-terminals.
    #[must_use]
    pub fn on_a_terminal(self, args: &[&str]) -> Terminal {
        Terminal::spawn(self.path, args)
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it cannot be started, or does not end.
    #[must_use]
    pub fn run(self, args: &[&str]) -> Ended {
        self.spawn(args).end()
    }
}

/// The `yonder` binary, with a folder in which its processes find one another.
#[derive(Debug)]
pub struct Together {
    yonder: Yonder,
    runtime: TempDir,
}

impl Together {
    /// The folder that `XDG_RUNTIME_DIR` names.
    #[must_use]
    pub fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// As [`Yonder::serve`].
    ///
    /// # Panics
    /// If it ends instead, or says nothing for long.
    #[must_use]
    pub fn serve(&self, args: &[&str]) -> Process {
        self.spawn(args).listening()
    }

    /// As [`Yonder::spawn`].
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(&self, args: &[&str]) -> Process {
        Process::spawn_in(self.yonder.path, args, self.runtime(), Stdio::piped())
    }

    /// As [`Yonder::run`].
    ///
    /// # Panics
    /// If it cannot be started, or does not end.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Ended {
        self.spawn(args).end()
    }
}

fn locate() -> PathBuf {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        return path.into();
    }
    let profile = profile_folder();
    let path = profile.join("yonder");
    if !path.exists() {
        build(&profile);
    }
    assert!(path.exists(), "{} is not there: type cargo build -p {PACKAGE}", path.display());
    path
}

/// The folder of the profile of this test, in the target folder.
pub(crate) fn profile_folder() -> PathBuf {
    tests_folder().parent().expect("cargo puts tests into TARGET/PROFILE/deps").to_owned()
}

/// The folder of this test, and of the libraries that it depends on.
fn tests_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running test knows its executable");
    test.parent().expect("a program is in a folder").to_owned()
}

/// Builds the binary into `profile`, the folder of the profile of this test.
fn build(profile: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = profile.parent().expect("a profile's folder is in the target folder");
    let mut command = Command::new(cargo);
    command.args(["build", "--package", PACKAGE, "--features", "etcd", "--target-dir"]).arg(target);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status().expect("cargo can be started");
    assert!(status.success(), "cargo build --package {PACKAGE} ended with {status}");
}
