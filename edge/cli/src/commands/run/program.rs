//! Whether a program can be run with a preloaded library: found, executable, linked dynamically, not set-uid.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

/// Scripts that are run by scripts, at most.
const SCRIPTS_MAX: usize = 4;
/// Bytes of a file that say what it is.
const HEAD_BYTES: u64 = 4096;

/// Says in one line why `program` cannot be run.
pub(crate) fn check(program: &OsStr) -> anyhow::Result<()> {
    check_content(program)?;
    let path = find(program)?;
    let mode = path.metadata().with_context(|| format!("{} cannot be read", path.display()))?.mode();
    ensure!(mode & 0o111 != 0, "{0} is not executable: type chmod +x {0}", path.display());
    Ok(())
}

fn check_content(program: &OsStr) -> anyhow::Result<()> {
    let mut path = find(program)?;
    for _ in 0..SCRIPTS_MAX {
        let shown = path.display().to_string();
        let file = File::open(&path).with_context(|| format!("{shown} cannot be read"))?;
        let mode = file.metadata().with_context(|| format!("{shown} cannot be read"))?.mode();
        ensure!(
            mode & 0o6000 == 0,
            "{shown} is set-uid, and the system preloads nothing into such programs: run a copy without that bit"
        );
        let mut head = Vec::new();
        file.take(HEAD_BYTES).read_to_end(&mut head).with_context(|| format!("{shown} cannot be read"))?;
        match interpreter(&head) {
            Some(interpreter) => path = find(&interpreter)?,
            None => return check_elf(&head, &shown),
        }
    }
    bail!("{} is a script of scripts: name the program that runs it", program.to_string_lossy())
}

/// The file that a shell would run.
fn find(program: &OsStr) -> anyhow::Result<PathBuf> {
    let shown = program.to_string_lossy();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        ensure!(path.is_file(), "{shown} is not there: type the path of a program, or the name of an installed one");
        return Ok(path);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0);
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(is_program);
    found.with_context(|| {
        format!("'{shown}' is not installed: type the path of a program, or the name of an installed one")
    })
}

/// The program that runs a script.
fn interpreter(head: &[u8]) -> Option<OsString> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = words.next()?;
    // `env` finds the program that is meant.
    let is_env = Path::new(OsStr::from_bytes(first)).file_name() == Some(OsStr::new("env"));
    let meant = if is_env { words.find(|word| !word.starts_with(b"-")).unwrap_or(first) } else { first };
    Some(OsStr::from_bytes(meant).to_owned())
}

fn check_elf(head: &[u8], shown: &str) -> anyhow::Result<()> {
    const MAGIC: &[u8] = b"\x7fELF";
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: u16 = 62;
    const INTERPRETER: u32 = 3;
    /// What the dynamic linker of the other C library is called.
    const MUSL: &[u8] = b"ld-musl-";
    let half = |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let word = |at: usize| half(at).zip(half(at + 2)).map(|(low, high)| u32::from(low) | u32::from(high) << 16);
    ensure!(head.starts_with(MAGIC), "{shown} is neither a program nor a script that names its interpreter");
    ensure!(
        head.get(4) == Some(&CLASS_64) && half(18) == Some(MACHINE_X86_64),
        "{shown} is a program for another kind of processor: only x86-64 ones can be run"
    );
    // The offset of the program headers fits 32 bits in anything that is run; then the size and number of them.
    let (headers, size, count) = (word(32).unwrap_or(0), half(54).unwrap_or(0), half(56).unwrap_or(0));
    let mut headers = (0..usize::from(count)).map(|index| headers as usize + index * usize::from(size));
    let Some(interpreter) = headers.find(|header| word(*header) == Some(INTERPRETER)) else {
        bail!("{shown} is linked statically, and nothing can be preloaded into it: link it dynamically");
    };
    // The offset of its path, which follows the headers.
    let path = word(interpreter + 8).and_then(|offset| head.get(offset as usize..)).unwrap_or_default();
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    ensure!(
        !name.starts_with(MUSL),
        "{shown} is linked with musl, and what would be preloaded needs the GNU C library: take a build of it for \
         that, such as one of Debian's"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(program: &str) -> String {
        check(OsStr::new(program)).unwrap_err().to_string()
    }

    #[test]
    fn programs_and_scripts_can_be_run() {
        check(OsStr::new("sort")).unwrap();
        check(OsStr::new("/bin/sh")).unwrap();
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(script.path(), "#!/usr/bin/env -S sh\nexit 0\n").unwrap();
        assert!(refusal(script.path().to_str().unwrap()).contains("not executable"));
        std::fs::set_permissions(script.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        check(script.path().as_os_str()).unwrap();
    }

    #[test]
    fn what_cannot_be_run_is_said_in_one_line() {
        assert!(refusal("no-such-program-anywhere").contains("is not installed"));
        assert!(refusal("/no/such/file").contains("is not there"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, "text").unwrap();
        assert!(refusal(path).contains("neither a program nor a script"));
        // An x86-64 program without program headers asks for no dynamic linker.
        let mut elf = vec![0; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[18] = 62;
        std::fs::write(path, &elf).unwrap();
        assert!(refusal(path).contains("linked statically"));
        // One that asks for that of another C library.
        let mut musl = elf.clone();
        musl.resize(64 + 56, 0);
        (musl[32], musl[54], musl[56]) = (64, 56, 1);
        (musl[64], musl[72]) = (3, 120);
        musl.extend(b"/lib/ld-musl-x86_64.so.1\0");
        std::fs::write(path, &musl).unwrap();
        assert!(refusal(path).contains("linked with musl"));
        elf[18] = 40;
        std::fs::write(path, &elf).unwrap();
        assert!(refusal(path).contains("another kind of processor"));
        let mut permissions = file.as_file().metadata().unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o4755);
        file.as_file().set_permissions(permissions).unwrap();
        assert!(refusal(path).contains("set-uid"));
    }
}
