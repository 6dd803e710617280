//! What systemd says of the services that `cargo xtask install` brings: that it understands them, and how much they may
//! do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use yonder_e2e::Yonder;

/// Where they are.
const SERVICES: &str = "../../edge/cli/systemd";
/// Tenths of a point, of ten points: a service without any setting has 96.
const EXPOSURE_MAX: &str = "20";

/// Asks systemd, if it is here.
fn analyze(arguments: &[&str], service: &Path) -> Option<Output> {
    match Command::new("systemd-analyze").args(arguments).arg(service).output() {
        Ok(answered) => Some(answered),
        Err(error) => {
            println!("SKIP: systemd-analyze cannot be asked: {error}");
            None
        }
    }
}

fn said(answered: &Output) -> String {
    [&answered.stdout, &answered.stderr].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat()
}

#[test]
fn systemd_understands_the_services_and_lets_servers_do_little() {
    let (yonder, folder) = (Yonder::found(), tempfile::tempdir().expect("a temporary folder"));
    fs::create_dir(folder.path().join("bin")).expect("a folder");
    std::os::unix::fs::symlink(yonder.path(), folder.path().join("bin/yonder")).expect("a link");
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(SERVICES)).expect("there are services") {
        let source = entry.expect("the folder can be read").path();
        let name = source.file_name().expect("it has one").to_str().expect("a plain name");
        let place = folder.path().join(name);
        let prefix = folder.path().to_str().expect("a plain name");
        let service = fs::read_to_string(&source).expect("it can be read").replace("@PREFIX@", prefix);
        fs::write(&place, service).expect("it can be written");
        let Some(answered) = analyze(&["verify", "--man=no"], &place) else { return };
        let complaints = said(&answered);
        assert!(answered.status.success() && !complaints.contains(name), "{complaints}");
        if name == "yonder-governor.service" {
            // It is root's, and reaches into programs of all users.
            continue;
        }
        let limit = format!("--threshold={EXPOSURE_MAX}");
        let Some(answered) = analyze(&["security", "--no-pager", "--offline=yes", &limit], &place) else { return };
        let complaints = said(&answered);
        if complaints.contains("offline") {
            println!("SKIP: this systemd judges only services that are loaded: {complaints}");
            continue;
        }
        assert!(answered.status.success(), "{complaints}");
    }
}
