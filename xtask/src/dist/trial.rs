//! Packages are tried as somebody would who has nothing yet: each in an empty root of its own.
//!
//! The image runs as a user who is root nowhere else; the package for Debian in a Debian that has only what each has,
//! which takes root and `debootstrap`; the tarball in an empty folder. What this machine cannot do prints `SKIP`.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::cargo::typed;

/// The Debian that is tried, and where it comes from.
const DEBIAN: [&str; 2] = ["bookworm", "http://deb.debian.org/debian"];
/// What each package has to do: to start, and to look at the machine.
const FIRST_COMMANDS: [&str; 2] = ["--version", "doctor"];

/// Tries what was made.
pub(super) fn run(form: &str, path: &Path) -> Result<(), String> {
    let root = tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?;
    let start = match form {
        "image" => image(path, root.path()),
        "deb" => debian(path, root.path()),
        "tar" => tarball(path, root.path()),
        _ => Err("there is no such system here".to_owned()),
    };
    match start {
        Ok(seconds) => println!("tried {}: installed and looked at the machine in {seconds:.1} s", path.display()),
        Err(cause) if cause.starts_with("SKIP") => println!("{cause}"),
        Err(cause) => return Err(format!("'{}': {cause}", path.display())),
    }
    Ok(())
}

/// Runs a command, and returns what it says.
fn said(command: &mut Command) -> Result<String, String> {
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

fn debian(path: &Path, root: &Path) -> Result<f64, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("SKIP: the package for Debian is tried by root only".to_owned());
    }
    let [suite, mirror] = DEBIAN;
    let made = said(Command::new("debootstrap").args(["--variant=minbase", suite]).arg(root).arg(mirror));
    if let Err(cause) = made {
        return Err(format!("SKIP: there is no Debian to try its package in: {cause}"));
    }
    let package = root.join("tmp/yonder.deb");
    std::fs::copy(path, &package).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let inside = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "chroot"]).arg(root).arg(program);
        command
    };
    said(inside("dpkg").args(["--install", "/tmp/yonder.deb"]))?;
    first_commands(|| inside("yonder"))?;
    let seconds = start.elapsed().as_secs_f64();
    said(inside("dpkg").args(["--purge", "yonder"]))?;
    let left = said(inside("find").args(["/usr", "-name", "*yonder*", "-not", "-path", "/usr/share/doc/*"]))?;
    if left.is_empty() { Ok(seconds) } else { Err(format!("what was purged is still there: {left}")) }
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
