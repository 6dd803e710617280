//! Packages are tried as somebody would who has nothing yet: each in an empty root of its own.
//!
//! The image runs as a user who is root nowhere else, and in containers ([`manifests`]); the packages for Debian and
//! for Fedora each in a Debian that has only what all have, which takes root and `debootstrap`; the tarball in an empty
//! folder. What this machine cannot do prints `SKIP`.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::cargo::typed;

use super::{container, manifests};

/// The Debian that is tried, and where it comes from.
const DEBIAN: [&str; 2] = ["bookworm", "http://deb.debian.org/debian"];
/// What each package has to do: to start, and to look at the machine.
const FIRST_COMMANDS: [&str; 2] = ["--version", "doctor"];

/// Tries what was made.
pub(super) fn run(repository: &Path, form: &str, path: &Path) -> Result<(), String> {
    let root = tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?;
    let start = match form {
        "image" => image(path, root.path()),
        "tar" => tarball(path, root.path()),
        form => debian(form, path, root.path()),
    };
    if form == "image" && start.is_ok() {
        match container::missing() {
            Some(cause) => println!("SKIP: {cause}"),
            None => {
                manifests::run(repository, root.path()).map_err(|cause| format!("'{}': {cause}", path.display()))?
            }
        }
    }
    match start {
        Ok(seconds) => println!("tried {}: installed and looked at the machine in {seconds:.1} s", path.display()),
        Err(cause) if cause.starts_with("SKIP") => println!("{cause}"),
        Err(cause) => return Err(format!("'{}': {cause}", path.display())),
    }
    Ok(())
}

/// Runs a command, and returns what it says.
pub(super) fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", typed(command)))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("'{}' ended with {}: {}", typed(command), output.status, text(&output.stderr)))
}

/// Has `yonder` as its caller finds it do what it is asked first.
fn first_commands(command: impl Fn() -> Command) -> Result<(), String> {
    for argument in FIRST_COMMANDS {
        let words = said(command().arg(argument))?;
        println!("  yonder {argument}: {}", words.lines().last().unwrap_or_default());
    }
    Ok(())
}

fn image(path: &Path, root: &Path) -> Result<f64, String> {
    let start = Instant::now();
    let layer = layer_of(&std::fs::read(path).map_err(|error| error.to_string())?)?;
    tar::Archive::new(GzDecoder::new(layer.as_slice())).unpack(root).map_err(|error| error.to_string())?;
    let inside = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "chroot"]).arg(root).arg("/usr/bin/yonder");
        command
    };
    if let Err(cause) = said(Command::new("unshare").args(["--user", "--map-root-user", "true"])) {
        return Err(format!("SKIP: the image is not tried: {cause}"));
    }
    first_commands(inside)?;
    Ok(start.elapsed().as_secs_f64())
}

/// The layer of an image that has one.
fn layer_of(image: &[u8]) -> Result<Vec<u8>, String> {
    let index: Value = json(&file_of(image, "index.json")?)?;
    let manifest: Value = json(&file_of(image, &blob(&index["manifests"][0])?)?)?;
    file_of(image, &blob(&manifest["layers"][0])?)
}

fn blob(described: &Value) -> Result<String, String> {
    let digest = described["digest"].as_str().ok_or("the image names no blob")?;
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn file_of(archive: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().map_err(|error| error.to_string())? {
        let mut entry = entry.map_err(|error| error.to_string())?;
        if entry.path().is_ok_and(|path| path == Path::new(name)) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|error| error.to_string())?;
            return Ok(content);
        }
    }
    Err(format!("there is no {name}"))
}

/// In a Debian: with its own package manager, or with that of Fedora, which knows nothing of what a Debian has.
fn debian(form: &str, path: &Path, root: &Path) -> Result<f64, String> {
    if !rustix::process::geteuid().is_root() {
        return Err(format!("SKIP: the package .{form} is tried by root only"));
    }
    if form == "rpm" && said(Command::new("rpm").arg("--version")).is_err() {
        return Err("SKIP: there is no rpm to try its package with: type apt-get install rpm".to_owned());
    }
    let [suite, mirror] = DEBIAN;
    let made = said(Command::new("debootstrap").args(["--variant=minbase", suite]).arg(root).arg(mirror));
    if let Err(cause) = made {
        return Err(format!("SKIP: there is no Debian to try a package in: {cause}"));
    }
    let inside = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "chroot"]).arg(root).arg(program);
        command
    };
    let rpm = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--root").arg(root).args(words);
        command
    };
    let start = Instant::now();
    if form == "deb" {
        let package = root.join("tmp/yonder.deb");
        std::fs::copy(path, &package).map_err(|error| error.to_string())?;
        said(inside("dpkg").args(["--install", "/tmp/yonder.deb"]))?;
    } else {
        said(Command::new("rpm").args(["--checksig", "--nosignature"]).arg(path))?;
        said(rpm(&["--install", "--nodeps"]).arg(path))?;
        said(&mut rpm(&["--verify", "--nodeps", "yonder"]))?;
    }
    first_commands(|| inside("yonder"))?;
    let seconds = start.elapsed().as_secs_f64();
    match form {
        "deb" => said(inside("dpkg").args(["--purge", "yonder"]))?,
        _ => said(&mut rpm(&["--erase", "--nodeps", "yonder"]))?,
    };
    let left = said(inside("find").args(["/usr", "-name", "*yonder*", "-not", "-path", "/usr/share/doc/*"]))?;
    if left.is_empty() { Ok(seconds) } else { Err(format!("what was removed is still there: {left}")) }
}

fn tarball(path: &Path, root: &Path) -> Result<f64, String> {
    let start = Instant::now();
    let content = std::fs::read(path).map_err(|error| error.to_string())?;
    tar::Archive::new(GzDecoder::new(content.as_slice())).unpack(root).map_err(|error| error.to_string())?;
    let mut folders = std::fs::read_dir(root).map_err(|error| error.to_string())?;
    let folder = folders.next().ok_or("nothing is in it")?.map_err(|error| error.to_string())?.path();
    first_commands(|| Command::new(folder.join("bin/yonder")))?;
    Ok(start.elapsed().as_secs_f64())
}
