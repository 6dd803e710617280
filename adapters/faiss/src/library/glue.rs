//! [`Toolchain`]: what makes a shared library of `glue.cpp` and Debian's static Faiss, when it is first wanted.
//!
//! It is kept in a folder under a name that says what it was made of, and comes there whole: whoever finds the name may
//! load the file, however many processes make it at a time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::library::FaissError;

/// What calls Faiss.
const SOURCE: &str = include_str!("glue.cpp");
/// Functions are this library's alone, Faiss' and those that stand in for OpenMP's too; whatever is missing is missed
/// here.
const OPTIONS: [&str; 8] = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wl,--exclude-libs,ALL",
    "-Wl,-z,defs",
    "-pthread",
];
/// What Faiss calls when it learns where the lists are.
const LIBRARIES: [&str; 2] = ["-llapack", "-lblas"];

/// What the glue is compiled with, and where it is kept.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The compiler of C++, as one would type it.
    pub compiler: PathBuf,
    /// The folder. It is made if it is not there.
    pub folder: PathBuf,
}

impl Toolchain {
    /// The compiler `c++`, and the folder `yonder` among what programs of the user keep to be faster.
    ///
    /// # Errors
    /// If the environment has no such folder.
    pub fn of_user() -> Result<Self, FaissError> {
        let kept = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let kept =
            kept.or_else(|| std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".cache")));
        let folder = kept.ok_or_else(|| FaissError::Folder {
            folder: "nowhere".into(),
            cause: std::io::Error::other("neither XDG_CACHE_HOME nor HOME is set"),
        })?;
        Ok(Self { compiler: "c++".into(), folder: folder.join("yonder") })
    }

    /// Where the glue is, made now if it is not there.
    ///
    /// # Errors
    /// If the compiler or Faiss is missing, the folder cannot be had, or the compiler fails.
    pub fn build(&self) -> Result<PathBuf, FaissError> {
        let archive = self.archive()?;
        let glue = self.folder.join(format!("libyonder_faiss-{:016x}.so", self.identity(&archive)));
        if glue.is_file() {
            return Ok(glue);
        }
        self.make(&archive, &glue).map_err(|cause| FaissError::Folder { folder: self.folder.clone(), cause })??;
        Ok(glue)
    }

    /// Faiss itself, which the compiler knows where to find.
    fn archive(&self) -> Result<PathBuf, FaissError> {
        let output = self.run(["-print-file-name=libfaiss.a".into()])?;
        let found = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if found.is_absolute() { Ok(found) } else { Err(FaissError::Missing("there is no libfaiss.a".to_owned())) }
    }

    /// What the glue is made of, as a number. It has all of Faiss in it, so that one of another version would do as
    /// well: the number is there to use the newest.
    fn identity(&self, archive: &Path) -> u64 {
        let mut hasher = DefaultHasher::new();
        (SOURCE, OPTIONS, LIBRARIES, &self.compiler, archive).hash(&mut hasher);
        fs::metadata(archive).ok().map(|known| (known.len(), known.modified().ok())).hash(&mut hasher);
        hasher.finish()
    }

    /// Makes the glue in a folder of its own, and moves it to its name at once.
    fn make(&self, archive: &Path, glue: &Path) -> std::io::Result<Result<(), FaissError>> {
        fs::create_dir_all(&self.folder)?;
        let room = tempfile::Builder::new().prefix("faiss-").tempdir_in(&self.folder)?;
        let (source, made) = (room.path().join("glue.cpp"), room.path().join("glue.so"));
        fs::write(&source, SOURCE)?;
        let mut arguments: Vec<OsString> = OPTIONS.map(OsString::from).into();
        arguments.extend(["-o".into(), made.clone().into(), source.into(), archive.into()]);
        arguments.extend(LIBRARIES.map(OsString::from));
        if let Err(why) = self.run(arguments) {
            return Ok(Err(why));
        }
        // A machine that loses power must not find the name of a file that it had no time to write.
        File::open(&made)?.sync_all()?;
        fs::rename(&made, glue)?;
        Ok(Ok(()))
    }

    fn run(&self, arguments: impl IntoIterator<Item = OsString>) -> Result<Output, FaissError> {
        let output = Command::new(&self.compiler).args(arguments).output();
        let output = output.map_err(|cause| {
            FaissError::Missing(format!("cannot run the compiler {}: {cause}", self.compiler.display()))
        })?;
        if output.status.success() { Ok(output) } else { Err(FaissError::Refused(first_error(&output.stderr))) }
    }
}

/// The line of what a compiler has said that says why.
fn first_error(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next();
    lines
        .find(|line| line.contains("error") || line.contains("cannot"))
        .or(first)
        .unwrap_or("it says nothing")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_compiler_says_the_line_that_says_why_is_told() {
        let said =
            b"\nIn file included from glue.cpp:1:\nglue.cpp:3:10: fatal error: no such file\ncompilation terminated.\n";
        assert_eq!(first_error(said), "glue.cpp:3:10: fatal error: no such file");
        let said =
            b"/usr/bin/ld: cannot find -lblas: No such file or directory\ncollect2: error: ld returned 1 exit status\n";
        assert_eq!(first_error(said), "/usr/bin/ld: cannot find -lblas: No such file or directory");
        assert_eq!(first_error(b"something else\nand more"), "something else");
        assert_eq!(first_error(b" \n"), "it says nothing");
    }

    #[test]
    fn another_compiler_or_another_faiss_makes_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("libfaiss.a");
        fs::write(&archive, "one").unwrap();
        let with = |compiler: &str| Toolchain { compiler: compiler.into(), folder: folder.path().into() };
        let first = with("c++").identity(&archive);
        assert_eq!(with("c++").identity(&archive), first);
        assert_ne!(with("clang++").identity(&archive), first);
        fs::write(&archive, "another").unwrap();
        assert_ne!(with("c++").identity(&archive), first);
    }
}
