//! `yonder cluster`: what it writes, says and refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn yonder(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yonder"))
        .args(args)
        .current_dir(folder)
        .env_remove("YONDER_LOG")
        .env("XDG_CONFIG_HOME", folder)
        .output()
        .expect("the binary can be started")
}

fn says(folder: &Path, args: &[&str]) -> String {
    let output = yonder(folder, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn complaint(folder: &Path, args: &[&str]) -> String {
    let output = yonder(folder, args);
    let line = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{args:?}: {line}");
    assert!(output.stdout.is_empty() && line.starts_with("yonder: "), "{args:?}: {line}");
    line
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn members_are_made_listed_and_revoked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let said = says(at, &["cluster", "init"]);
    assert!(said.contains("yonder/cluster") && said.contains("type `yonder cluster add controller NAME`"), "{said}");
    for (role, next) in [
        ("controller", "yonder controller --listen tcp://0.0.0.0:7400 --identity my-controller.pem"),
        ("node", "--controller HOST:7400 --identity my-node.pem"),
        ("tenant", "YONDER_IDENTITY=my-tenant.pem PROGRAM"),
        ("operator", "yonder controller nodes --at HOST:7400 --identity my-operator.pem"),
    ] {
        let name = format!("my-{role}");
        let said = says(at, &["cluster", "add", role, &name]);
        assert!(said.starts_with(&format!("{name}.pem is the identity of {role} {name}")), "{said}");
        assert!(said.trim_end().ends_with(next), "{said}");
        assert_eq!(mode(&at.join(format!("{name}.pem"))), 0o600);
    }
    let made: Value = serde_json::from_str(&says(at, &["cluster", "add", "node", "n2", "--out", "n2", "--json"]))
        .expect("it is one object");
    assert_eq!((&made["role"], &made["file"], &made["state"]), (&"node".into(), &"n2".into(), &"good".into()));
    let said = says(at, &["cluster", "revoke", "n2"]);
    assert!(said.contains("revoked.pem into the folder of each identity"), "{said}");
    let listed = says(at, &["cluster", "list", "--json"]);
    let states: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an object")["state"].to_string())
        .collect();
    assert_eq!(states, ["\"good\"", "\"good\"", "\"good\"", "\"good\"", "\"revoked\""]);
    assert_eq!(says(at, &["cluster", "list"]).lines().count(), 6);
    says(at, &["cluster", "add", "node", "my-node", "--renew", "--out", "again.pem"]);
}

#[test]
fn a_key_is_a_file_for_its_user_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let said = says(at, &["cluster", "key", "cluster.key"]);
    assert!(said.contains("--key cluster.key"), "{said}");
    assert_eq!(mode(&at.join("cluster.key")), 0o600);
    let text = fs::read_to_string(at.join("cluster.key")).expect("it is text");
    assert!(text.starts_with("yonder-key-1:") && !said.contains(text.trim()), "{said}");
    assert!(complaint(at, &["cluster", "key", "cluster.key"]).contains("type another file"));
}

#[test]
fn what_cannot_be_done_is_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    assert!(complaint(at, &["cluster", "list"]).contains("make one with `yonder cluster init`"));
    says(at, &["cluster", "init", "--folder", "own"]);
    assert!(complaint(at, &["cluster", "init", "--folder", "own"]).contains("type another --folder"));
    let add = |more: &[&str]| complaint(at, &[&["cluster", "add", "node"], more, &["--folder", "own"]].concat());
    assert!(add(&["N1"]).contains("type lowercase letters"));
    assert!(add(&["../n1"]).contains("type lowercase letters"));
    says(at, &["cluster", "add", "node", "n1", "--folder", "own"]);
    assert!(add(&["n1"]).contains("type another --out"));
    assert!(add(&["n1", "--out", "other.pem"]).contains("--renew"));
    assert!(!at.join("other.pem").exists());
    let unknown = complaint(at, &["cluster", "revoke", "n9", "--folder", "own"]);
    assert!(unknown.contains("no member is called n9") && unknown.contains("yonder cluster list"), "{unknown}");
    fs::set_permissions(at.join("own"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(complaint(at, &["cluster", "list", "--folder", "own"]).contains("chmod 700 own"));
}
