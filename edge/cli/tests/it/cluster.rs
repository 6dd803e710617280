//! `yonder cluster`: what it writes, says and refuses.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yonder"));
    command.args(args).current_dir(folder).env("XDG_CONFIG_HOME", folder);
    for name in ["YONDER_LOG", "YONDER_IDENTITY", "YONDER_KEY"] {
        command.env_remove(name);
    }
    command
}

fn yonder(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the binary can be started")
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

/// A process that is ended with the test, and what it says on standard error.
struct Running {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Running {
    /// Starts a command, and waits for the line in which it says that it runs.
    fn start(folder: &Path, args: &[&str]) -> (Self, String) {
        let mut child = command(folder, args).stderr(Stdio::piped()).spawn().expect("the binary can be started");
        let mut line = String::new();
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut running = Self { child, said };
        running.said.read_line(&mut line).expect("it says something");
        (running, line)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in a line such as `yonder controller: nodes and clients at tcp://0.0.0.0:7400, regions of 1 GiB`.
fn port(line: &str) -> String {
    let after = line.split_once("tcp://").unwrap_or_else(|| panic!("{line}")).1;
    after.split([',', ';', ' ']).next().and_then(|address| address.rsplit(':').next()).expect("a port").to_owned()
}

#[test]
fn a_cluster_with_strangers_is_run_by_its_members() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    says(at, &["cluster", "init"]);
    for (role, name) in [("controller", "c1"), ("node", "n1"), ("tenant", "app"), ("operator", "me")] {
        says(at, &["cluster", "add", role, name]);
    }
    let listen = ["controller", "--listen", "tcp://0.0.0.0:0", "--state", "state", "--region-size", "1MiB"];
    assert!(complaint(at, &listen).contains("--identity FILE"));
    let wrong = complaint(at, &[&listen[..], &["--identity", "n1.pem"]].concat());
    assert!(wrong.contains("is the identity of a node, and a controller is needed"), "{wrong}");
    let (_controller, said) = Running::start(at, &[&listen[..], &["--identity", "c1.pem"]].concat());
    let address = format!("127.0.0.1:{}", port(&said));
    let node = [
        "node",
        "--listen",
        "tcp://127.0.0.1:0",
        "--memory",
        "16MiB",
        "--region-size",
        "1MiB",
        "--controller",
        &address,
    ];
    let refused = complaint(at, &node);
    assert!(refused.contains("type --identity FILE or --key FILE"), "{refused}");
    let wrong = complaint(at, &[&node[..], &["--identity", "app.pem"]].concat());
    assert!(wrong.contains("is the identity of a tenant, and a node is needed"), "{wrong}");
    let (_node, said) = Running::start(at, &[&node[..], &["--identity", "n1.pem"]].concat());
    assert!(said.contains("lending 16 MiB"), "{said}");
    let nodes = ["controller", "nodes", "--json", "--at", &address];
    let shown = says(at, &[&nodes[..], &["--identity", "me.pem"]].concat());
    let shown: Value = serde_json::from_str(&shown).expect("one node");
    assert_eq!((&shown["name"], &shown["condition"]), (&"n1".into(), &"serving".into()));
    let drained = says(at, &["controller", "drain", "n1", "--at", &address, "--identity", "me.pem"]);
    assert!(drained.contains("n1 is drained"), "{drained}");
    let refused = complaint(at, &[&nodes[..], &["--identity", "app.pem"]].concat());
    assert!(refused.contains("tenant app may not ask that: use an operator's identity"), "{refused}");
    let tenants = ["controller", "tenants", "--json", "--at", &address];
    says(at, &[&tenants[..], &["--identity", "me.pem"]].concat());
    let refused = complaint(at, &[&tenants[..], &["--identity", "app.pem"]].concat());
    assert!(refused.contains("tenant app may not ask that: use an operator's identity"), "{refused}");
    assert!(complaint(at, &nodes).contains("type --identity FILE or --key FILE"));
    let by_environment = command(at, &nodes).env("YONDER_IDENTITY", "me.pem").output().expect("it starts");
    assert!(by_environment.status.success(), "{by_environment:?}");
    says(at, &["cluster", "revoke", "me"]);
    fs::copy(at.join("yonder/cluster/revoked.pem"), at.join("revoked.pem")).expect("it can be copied");
    let refused = complaint(at, &[&nodes[..], &["--identity", "me.pem"]].concat());
    assert!(refused.contains("its certificate was revoked"), "{refused}");
}

#[test]
fn what_serves_programs_takes_a_credential_of_theirs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    says(at, &["cluster", "init"]);
    for (role, name) in [("tenant", "app"), ("operator", "me")] {
        says(at, &["cluster", "add", role, name]);
    }
    for server in [&["kv"][..], &["serve", "rocksdb"]] {
        let typed = |more: &[&str]| complaint(at, &[server, more].concat());
        let near = |more: &[&str]| typed(&[&["--listen", "127.0.0.1:0"], more].concat());
        let missing = near(&["--key", "none.key"]);
        assert!(missing.starts_with("yonder: none.key: "), "{missing}");
        let wrong = near(&["--identity", "me.pem"]);
        assert!(wrong.contains("is the identity of an operator, and a tenant is needed"), "{wrong}");
        // Its metrics can ask who looks, and its own port cannot.
        let metrics = near(&["--metrics", "0.0.0.0:0"]);
        assert!(metrics.contains("0.0.0.0:0 is reached from other machines"), "{metrics}");
        assert!(metrics.contains("or --identity FILE or --key FILE"), "{metrics}");
        let own = typed(&["--listen", "0.0.0.0:0", "--identity", "app.pem"]);
        assert!(own.contains("0.0.0.0:0 is reached from other machines") && !own.contains("--identity"), "{own}");
        let both = yonder(at, &[server, &["--identity", "app.pem", "--key", "cluster.key"]].concat());
        assert_eq!(both.status.code(), Some(2), "{both:?}");
    }
}
