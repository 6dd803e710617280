//! [`Toolchain`]: the C compiler of this machine and this build's library, under the name that programs know it by.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Warnings that are errors: the header must be clean wherever it is included.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion"];

pub(crate) struct Toolchain {
    folder: tempfile::TempDir,
}

impl Toolchain {
    /// The toolchain, if this machine has one; else prints `SKIP`.
    pub(crate) fn ready() -> Option<Self> {
        if !has("cc") {
            println!("SKIP: no C compiler: type apt-get install gcc");
            return None;
        }
        let toolchain = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["libyonder.so", "libyonder.so.0"] {
            symlink(library(), toolchain.folder.path().join(name)).unwrap();
        }
        Some(toolchain)
    }

    /// A folder for whatever a test makes.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Checks that `source` compiles without a warning.
    pub(crate) fn check(&self, compiler: &str, standard: &str, source: &Path) {
        let mut command = Command::new(compiler);
        command.arg(format!("-std={standard}")).args(STRICT).arg("-fsyntax-only").arg(include_flag()).arg(source);
        succeed(&mut command);
    }

    /// Builds the program `source`, and returns where it is.
    pub(crate) fn build(&self, source: &Path) -> PathBuf {
        let program = self.folder().join(source.file_stem().unwrap());
        let folder = self.folder().to_str().unwrap();
        let mut command = Command::new("cc");
        command.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-g", "-O1"]).args(STRICT).arg(include_flag());
        command.arg(source).arg("-o").arg(&program);
        command.args(["-L", folder, "-lyonder", "-lpthread"]).arg(format!("-Wl,-rpath,{folder}"));
        succeed(&mut command);
        program
    }
}

/// The shared library that cargo has built with this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libyonder_capi.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A file of this crate.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether this machine has a program.
pub(crate) fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}:\n{out}{errors}", output.status);
    output
}

fn include_flag() -> String {
    format!("-I{}", file("include").display())
}
