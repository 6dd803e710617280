//! The compilers of this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Warnings that are errors: the header must be clean wherever it is included.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion"];

/// Whether this machine has a compiler; else prints `SKIP`.
pub(crate) fn has(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("SKIP: no {compiler}: type apt-get install g++");
    }
    is_there
}

/// Compiles `source` with the header; everything has to be clean.
pub(crate) fn compile(compiler: &str, standard: &str, flags: &[&str], source: &Path) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT).arg("-I").arg(include).args(flags).arg(source);
    let output = command.stdin(Stdio::null()).output().expect("the compiler was there");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A library of this source in C.
pub(crate) fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&file, source).expect("the folder is writable");
    let output = library.to_str().expect("temporary folders have names that can be printed");
    compile("cc", "c11", &["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o", output], &file);
    library
}
