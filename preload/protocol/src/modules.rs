//! [`Modules`]: which process left a record, and where its code is.
//!
//! A process writes this as a file of lines beside its record, whenever it has met code that it did not know yet; one
//! that is killed leaves its last. What was there once is kept, so that code that is unloaded can still be named.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::create_private;

/// A piece of a file that is mapped as code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Where it is.
    pub addresses: Range<u64>,
    /// Where in the file its first byte is.
    pub offset: u64,
    /// The file; something else if the code is of no file.
    pub path: String,
}

/// A process, and where its code is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Modules {
    /// The process's number.
    pub process: u32,
    /// Its program.
    pub program: String,
    /// Its code. What came later stands later.
    pub modules: Vec<Module>,
    /// Functions that the linker has chosen among several: where they are, and their names.
    pub chosen: Vec<(u64, String)>,
}

impl Modules {
    /// This process's, without code.
    #[must_use]
    pub fn of_this_process(chosen: Vec<(u64, String)>) -> Self {
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy().into_owned();
        Self { process: std::process::id(), program, modules: Vec::new(), chosen }
    }

    /// Adds the code that the process has now.
    pub fn look(&mut self) -> io::Result<()> {
        self.add(&std::fs::read_to_string("/proc/self/maps")?);
        Ok(())
    }

    /// Adds what is code in a text such as the kernel writes.
    fn add(&mut self, maps: &str) {
        for module in maps.lines().filter_map(code) {
            if !self.modules.contains(&module) {
                self.modules.push(module);
            }
        }
    }

    /// The piece of code that `address` is in: the one that came last.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Module> {
        self.modules.iter().rev().find(|module| module.addresses.contains(&address))
    }

    /// Writes this beside the record with a number, in place of what was there.
    pub fn write(&self, folder: &Path, number: u64) -> io::Result<()> {
        let mut text = format!("process {:x} {}\n", self.process, self.program);
        for Module { addresses, offset, path } in &self.modules {
            let _ = writeln!(text, "code {:x} {:x} {offset:x} {path}", addresses.start, addresses.end);
        }
        for (address, name) in &self.chosen {
            let _ = writeln!(text, "chosen {address:x} {name}");
        }
        let new = folder.join(format!("modules-{number}.new"));
        // It may be left of a process that was ended.
        let _ = std::fs::remove_file(&new);
        create_private(&new)?.write_all(text.as_bytes())?;
        std::fs::rename(new, path(folder, number))
    }

    /// What the process with a number has left; nothing is known if it has not.
    pub(crate) fn read(folder: &Path, number: u64) -> Self {
        let mut read = Self::default();
        for line in std::fs::read(path(folder, number)).unwrap_or_default().split(|byte| *byte == b'\n') {
            let _ = read.take(&String::from_utf8_lossy(line));
        }
        read
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (first, rest) = rest.split_once(' ')?;
        match kind {
            "process" => (self.process, self.program) = (hex(first)? as u32, rest.to_owned()),
            "chosen" => self.chosen.push((hex(first)?, rest.to_owned())),
            "code" => {
                let (end, rest) = rest.split_once(' ')?;
                let (offset, path) = rest.split_once(' ')?;
                let addresses = hex(first)?..hex(end)?;
                self.modules.push(Module { addresses, offset: hex(offset)?, path: path.to_owned() });
            }
            _ => {}
        }
        Some(())
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("modules-{number}"))
}

/// The code of a line such as `7f00-7f10 r-xp 00002000 08:01 1234   /usr/lib/libc.so.6`.
fn code(line: &str) -> Option<Module> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(word)
    };
    let (addresses, access, offset) = (word()?, word()?, word()?);
    let (_device, _file) = (word()?, word());
    let path = if _file.is_some() { rest.trim() } else { "" };
    let (start, end) = addresses.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let path = if path.is_empty() { "[made at run time]" } else { path };
    let module = Module { addresses: hex(start)?..hex(end)?, offset: hex(offset)?, path: path.to_owned() };
    access.contains('x').then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
555500000000-555500002000 r--p 00000000 08:01 123                        /usr/bin/a program
555500002000-555500008000 r-xp 00002000 08:01 123                        /usr/bin/a program
7f0000000000-7f0000001000 r-xp 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00001000 08:01 124                        /usr/lib/libc.so.6
7ffff0000000-7ffff0002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut modules = Modules::of_this_process(vec![(0x7f00_0000_2010, "memcpy".into())]);
        modules.add(MAPS);
        modules.add(MAPS);
        let names: Vec<_> = modules.modules.iter().map(|module| module.path.as_str()).collect();
        assert_eq!(names, ["/usr/bin/a program", "[made at run time]", "/usr/lib/libc.so.6", "[vdso]"]);
        assert_eq!(modules.find(0x5555_0000_2abc).unwrap().offset, 0x2000);
        assert_eq!(modules.find(0x5555_0000_1abc), None, "this is no code");
        // Something else is loaded where the library was.
        modules.add("7f0000002000-7f0000002800 r-xp 00003000 08:01 125 /usr/lib/libm.so.6\n");
        assert_eq!(modules.find(0x7f00_0000_2010).unwrap().path, "/usr/lib/libm.so.6");
        assert_eq!(modules.find(0x7f00_0000_2900).unwrap().path, "/usr/lib/libc.so.6");
        modules.write(folder.path(), 7).unwrap();
        modules.write(folder.path(), 7).unwrap();
        assert_eq!(Modules::read(folder.path(), 7), modules);
        assert_eq!(Modules::read(folder.path(), 8), Modules::default());
    }

    #[test]
    fn this_process_has_code() {
        let mut modules = Modules::of_this_process(Vec::new());
        modules.look().unwrap();
        let own = modules.find(this_process_has_code as *const () as u64).unwrap();
        assert_eq!(own.path, modules.program);
    }
}
