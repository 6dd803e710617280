//! [`PROGRAMS`]: what `bench programs` runs, and the work that each program is given.
//!
//! A program is a line of the table and a function that prepares its work: files in a folder, and the command. The same
//! work has the same output, byte for byte, however it is run. Sizes of the full scale take some hundred MB and some
//! seconds.

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_load::Protocol;

use super::Scale;
use super::servers::Load;

/// A program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// What it is called on the command line and in results.
    pub(super) name: &'static str,
    /// The Debian packages that have it.
    pub(super) package: &'static str,
    /// Commands that succeed where it is installed; the first one that does is the program. None for a workload of
    /// `yonder`.
    installed: &'static [&'static [&'static str]],
    /// Its work, with its files in a folder. The program is the word that is there; the folder's path is absolute.
    prepare: fn(&str, &Path, Scale) -> std::io::Result<Work>,
}

/// What a program has to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// To run to its end, and what it writes is compared.
    Batch {
        command: Vec<OsString>,
        output: Output,
        /// The file in the folder where it runs that it writes the seconds of its work to, if it knows them itself.
        seconds: Option<&'static str>,
    },
    /// To run to its end where its user is, with what it reads, and what it writes is compared.
    Own { command: Vec<OsString>, input: Option<PathBuf> },
    /// To serve a client that compares.
    Serve { protocol: Protocol, loads: Vec<Load> },
}

/// Where a program's output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Output {
    /// On standard output.
    Standard,
    /// In a file of this name in the folder where it runs.
    File(&'static str),
}

/// Where one of `yonder workload` writes how long its work took: making up its input is none of it.
const SECONDS: &str = "seconds";

/// Every program, in the order in which they run.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "redis-server",
        package: "redis-server",
        installed: &[&["redis-server", "--version"]],
        prepare: |_, _, scale| Ok(Work::Serve { protocol: Protocol::Redis, loads: loads(scale) }),
    },
    Program {
        name: "memcached",
        package: "memcached",
        installed: &[&["memcached", "--version"]],
        prepare: |_, _, scale| Ok(Work::Serve { protocol: Protocol::Memcached, loads: loads(scale) }),
    },
    Program { name: "sqlite3", package: "sqlite3", installed: &[&["sqlite3", "--version"]], prepare: prepare_sqlite },
    Program {
        name: "kmeans",
        package: "python3-numpy python3-sklearn",
        // A python that comes first on the path may be without the libraries of the system's.
        installed: &[&["python3", "-c", "import sklearn"], &["/usr/bin/python3", "-c", "import sklearn"]],
        prepare: prepare_kmeans,
    },
    Program { name: "sort", package: "coreutils", installed: &[&["sort", "--version"]], prepare: prepare_sort },
    Program { name: "gcc", package: "gcc", installed: &[&["gcc", "--version"]], prepare: prepare_gcc },
    workload("quicksort", |yonder, _, scale| own(yonder, "quicksort", scale.pick("4MiB", "256MiB"))),
    workload("k-means", |yonder, _, scale| own(yonder, "k-means", scale.pick("4MiB", "256MiB"))),
    workload("snappy-compress", |yonder, _, scale| own(yonder, "snappy-compress", scale.pick("4MiB", "256MiB"))),
    workload("snappy-decompress", |yonder, _, scale| own(yonder, "snappy-decompress", scale.pick("4MiB", "256MiB"))),
    workload("pagerank", |yonder, _, scale| own(yonder, "pagerank", scale.pick("4MiB", "64MiB"))),
    workload("bc", |yonder, _, scale| own(yonder, "bc", scale.pick("4MiB", "64MiB"))),
    workload("frame", |yonder, _, scale| own(yonder, "frame", scale.pick("4MiB", "256MiB"))),
    workload("linked-list", |yonder, _, scale| own(yonder, "linked-list", scale.pick("1MiB", "64MiB"))),
    workload("phases", |yonder, _, scale| own(yonder, "phases", scale.pick("2MiB", "128MiB"))),
];

/// One of `yonder workload`.
const fn workload(name: &'static str, prepare: fn(&str, &Path, Scale) -> std::io::Result<Work>) -> Program {
    Program { name, package: "yonder", installed: &[], prepare }
}

fn own(yonder: &str, name: &str, size: &str) -> std::io::Result<Work> {
    let words = [yonder, "workload", name, "--size", size, "--check", "--seconds-to", SECONDS];
    Ok(Work::Batch { command: words.map(OsString::from).into(), output: Output::Standard, seconds: Some(SECONDS) })
}

impl Program {
    /// Whether it is one of `yonder workload`.
    pub(super) fn is_workload(&self) -> bool {
        self.installed.is_empty()
    }

    /// Its work at a scale, with files in `folder`; `None` if it is not installed.
    pub(super) fn work(&self, folder: &Path, scale: Scale) -> std::io::Result<Option<Work>> {
        if self.is_workload() {
            // The tests of this crate are no `yonder`.
            let yonder = std::env::current_exe()?;
            let is_yonder = yonder.file_name().is_some_and(|name| name == "yonder");
            return yonder.to_str().filter(|_| is_yonder).map(|path| (self.prepare)(path, folder, scale)).transpose();
        }
        let Some(command) = self.installed.iter().find(|command| succeeds(command)) else { return Ok(None) };
        (self.prepare)(command[0], folder, scale).map(Some)
    }
}

fn succeeds(command: &[&str]) -> bool {
    let mut process = Command::new(command[0]);
    process.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    process.status().is_ok_and(|status| status.success())
}

/// What servers keep: half of it in values of a page, half in large ones.
fn loads(scale: Scale) -> Vec<Load> {
    let times: u64 = scale.pick(1, 60);
    let load = |bytes, keys, gets| Load { bytes, keys: keys * times, gets: gets * times };
    vec![load(4 << 10, 800, 3200), load(64 << 10, 50, 200)]
}

fn prepare_sqlite(program: &str, folder: &Path, scale: Scale) -> std::io::Result<Work> {
    let rows: u64 = scale.pick(40_000, 1_200_000);
    let script = folder.join("script.sql");
    std::fs::write(&script, include_str!("script.sql").replace(":rows", &rows.to_string()))?;
    let command = vec![program.into(), ":memory:".into(), format!(".read {}", script.display()).into()];
    Ok(Work::Batch { command, output: Output::Standard, seconds: None })
}

fn prepare_kmeans(program: &str, folder: &Path, scale: Scale) -> std::io::Result<Work> {
    let script = folder.join("kmeans.py");
    std::fs::write(&script, include_str!("kmeans.py"))?;
    let (points, rounds) = (scale.pick(20_000, 600_000_u64), scale.pick(3, 40_u64));
    let command = vec![program.into(), script.into(), points.to_string().into(), rounds.to_string().into()];
    Ok(Work::Batch { command, output: Output::Standard, seconds: None })
}

fn prepare_sort(program: &str, folder: &Path, scale: Scale) -> std::io::Result<Work> {
    let input = folder.join("lines");
    let mut lines = BufWriter::new(std::fs::File::create(&input)?);
    let mut random = SmallRng::seed_from_u64(3);
    for number in 0..scale.pick(200_000, 5_000_000_u64) {
        writeln!(lines, "{:016x}{:016x} {number:08}", random.random::<u64>(), random.random::<u64>())?;
    }
    lines.flush()?;
    // All of it in memory, and never in temporary files.
    let command = vec![program.into(), "--buffer-size=2G".into(), "--parallel=1".into(), input.into()];
    Ok(Work::Batch { command, output: Output::Standard, seconds: None })
}

fn prepare_gcc(program: &str, folder: &Path, scale: Scale) -> std::io::Result<Work> {
    let source = folder.join("source.c");
    let mut file = BufWriter::new(std::fs::File::create(&source)?);
    for number in 0..scale.pick(50, 1800) {
        write_function(&mut file, number)?;
    }
    file.flush()?;
    let command = vec![program.into(), "-O1".into(), "-c".into(), source.into(), "-o".into(), "source.o".into()];
    Ok(Work::Batch { command, output: Output::File("source.o"), seconds: None })
}

/// A function in C with loops, branches and a switch, not quite like the others.
fn write_function(file: &mut impl Write, number: u32) -> std::io::Result<()> {
    let (start, factor, bit, shift) = (number * 7 % 1000, number % 97 + 3, 1 << (number % 9), number % 5 + 1);
    write!(
        file,
        "int f{number}(int *a, int n) {{\n  int s = {number}, t = {start};\n  for (int i = 0; i < n; i++) {{\n    \
         s += a[i] * {factor};\n    if (s & {bit}) t ^= s >> {shift}; else t += a[(s & 0xff) % (n + 1)];\n    \
         switch (t % 5) {{ case 0: s -= t; break; case 1: a[i] = s; break; case 2: t *= 3; break; default: s ^= {number}; \
         }}\n  }}\n  return s + t;\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_has_no_work() {
        let nowhere: &[&[&str]] = &[&["/nowhere/at-all"], &["false"]];
        let prepare = |_: &str, _: &Path, _: Scale| unreachable!("it is not installed");
        let program = Program { name: "x", package: "x", installed: nowhere, prepare };
        assert!(program.work(Path::new("/"), Scale::Small).unwrap().is_none());
    }

    #[test]
    fn the_first_command_that_succeeds_is_the_program() {
        let prepare = |program: &str, _: &Path, _: Scale| {
            Ok(Work::Batch { command: vec![program.into()], output: Output::Standard, seconds: None })
        };
        let program = Program { name: "x", package: "x", installed: &[&["false"], &["true"], &["sh"]], prepare };
        let Some(Work::Batch { command, .. }) = program.work(Path::new("/"), Scale::Small).unwrap() else {
            panic!("it is installed")
        };
        assert_eq!(command, ["true"]);
    }

    #[test]
    fn names_are_different_and_the_full_scale_is_larger() {
        let mut names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
        let bytes = |scale| loads(scale).iter().map(|load| load.bytes as u64 * load.keys).sum::<u64>();
        assert!(bytes(Scale::Full) > 50 * bytes(Scale::Small));
    }
}
