//! Programs in C, of the folder `programs`: compiled once, with whatever `cc` is.
//!
//! Each checks what a program can do with its memory, prints a line for each check, and ends with 0 if all came true.
//! It prints the same with and without far memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binary::profile_folder;
use crate::process::{Ended, Process};

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linked {
    /// As programs are.
    Dynamically,
    /// With everything in it.
    Statically,
    /// With the parts that the C library once had, as programs are that were linked before 2021.
    WithOldParts,
}

/// Where the header for guides is.
const GUIDE_HEADER: &str = "../../sys/plugin/include";

/// A compiled guide.
#[derive(Clone, Debug)]
pub struct Guide {
    path: PathBuf,
}

impl Guide {
    /// The guide of this name, compiled with `flags`; prints `SKIP` if there is no compiler.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn compiled(name: &str, flags: &[&str]) -> Option<Self> {
        let (here, name_of_file) = (Path::new(env!("CARGO_MANIFEST_DIR")), format!("{name}{}.so", flags.concat()));
        let source = here.join("programs").join(name).with_extension("c");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC"]).args(flags).arg("-I").arg(here.join(GUIDE_HEADER));
        let path = compile(command, &source, &name_of_file)?.unwrap_or_else(|why| panic!("{name}: {why}"));
        Some(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.to_str().expect("the target folder has a name that can be printed")
    }
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The program of this name; prints `SKIP` if there is no compiler.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn compiled(name: &str) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
        Self::compile(&source, name, Linked::Dynamically)
    }

    /// As [`Program::compiled`], linked with the parts that the C library once had; prints `SKIP` if they are not here.
    ///
    /// # Panics
    /// If its name cannot be made.
    #[must_use]
    pub fn compiled_with_old_parts(name: &str) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
        Self::compile(&source, &format!("{name}-old"), Linked::WithOldParts)
    }

    /// A program that does nothing, linked in this way; prints `SKIP` if that is not possible here.
    ///
    /// # Panics
    /// If its source cannot be written.
    #[must_use]
    pub fn idle(folder: &Path, linked: Linked) -> Option<Self> {
        let source = folder.join("idle.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("the folder is writable");
        let name = if linked == Linked::Statically { "idle-static" } else { "idle" };
        Self::compile(&source, name, linked)
    }

    fn compile(source: &Path, name: &str, linked: Linked) -> Option<Self> {
        let mut command = Command::new("cc");
        command.arg("-pthread");
        match linked {
            Linked::Dynamically => {}
            Linked::Statically => _ = command.arg("-static"),
            Linked::WithOldParts => {
                command.args(["-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-l:librt.so.1"]);
            }
        }
        match compile(command, source, name)? {
            Ok(path) => Some(Self { path }),
            Err(_) if linked == Linked::Statically => {
                println!("SKIP: nothing can be linked statically here");
                None
            }
            Err(_) if linked == Linked::WithOldParts => {
                println!("SKIP: the C library has no parts here");
                None
            }
            Err(why) => panic!("{name}: {why}"),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.to_str().expect("the target folder has a name that can be printed")
    }

    /// Starts it, with its memory where memory is.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(&self, args: &[&str]) -> Process {
        Process::spawn(&self.path, args)
    }

    /// Runs it to its end, with its memory where memory is.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Ended {
        self.spawn(args).end()
    }
}

/// Runs a compiler on `source`: where the result is, or what it says is wrong. Prints `SKIP` if there is none.
fn compile(mut command: Command, source: &Path, name: &str) -> Option<Result<PathBuf, String>> {
    let folder = profile_folder().join("e2e-programs");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let path = folder.join(name);
    // Two tests may compile the same program at a time: each gets one that is whole.
    let fresh = tempfile::NamedTempFile::new_in(&folder).expect("the target folder is writable").into_temp_path();
    command.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&fresh);
    match command.arg("-lutil").stdin(Stdio::null()).output() {
        Err(error) => {
            println!("SKIP: there is no C compiler: {error}");
            None
        }
        Ok(output) if !output.status.success() => Some(Err(String::from_utf8_lossy(&output.stderr).into_owned())),
        Ok(_) => {
            fresh.persist(&path).expect("the target folder is writable");
            Some(Ok(path))
        }
    }
}
