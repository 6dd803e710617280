//! A cluster whose members have identities or a key, as the guide makes one: what its servers count is for its
//! operators, and what a program shows is typed or stands in its environment.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use yonder_e2e::{Client, Content, Ended, Process, Yonder};

/// A server with eight times as much far memory as local memory.
const KV: [&str; 7] = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB"];

/// The files of an authority and its members, made by the command itself.
struct Members {
    yonder: Yonder,
    folder: tempfile::TempDir,
}

impl Members {
    fn new() -> Self {
        let (yonder, folder) = (Yonder::found(), tempfile::tempdir().expect("a temporary folder"));
        let members = Self { yonder, folder };
        assert_eq!(members.cluster(&["init"]).code, Some(0));
        members
    }

    /// `yonder cluster` with the authority of this test.
    fn cluster(&self, args: &[&str]) -> Ended {
        let folder = self.file("authority");
        self.yonder.run(&[&["cluster"], args, &["--folder", &folder]].concat())
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn add(&self, role: &str, name: &str) -> String {
        let path = self.file(&format!("{name}.pem"));
        let ended = self.cluster(&["add", role, name, "--out", &path]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        path
    }

    fn top(&self, server: &mut Process, shown: &[&str]) -> Ended {
        top(self.yonder, server, shown)
    }
}

/// One look at what a server counts.
fn top(yonder: Yonder, server: &mut Process, shown: &[&str]) -> Ended {
    let at = server.metrics_address().to_string();
    yonder.run(&[&["top", "--once", "--interval", "10ms", "--attach", &at], shown].concat())
}

/// Writes lines to a file, and returns them sorted.
fn write_words(path: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        (0..200_000u32).map(|number| format!("{:08x} word", number.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(path, lines.join("\n") + "\n").expect("the folder is writable");
    lines.sort_unstable();
    lines
}

/// Fails unless a program that sorts has printed what it should, and had its memory far.
fn assert_sorted(ended: &Output, sorted: &[String]) {
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&ended.stdout).lines().eq(sorted.iter().map(String::as_str)), "{said}");
    assert!(said.contains("MiB fetched"), "{said}");
}

#[test]
fn metrics_of_members_are_for_operators() {
    let members = Members::new();
    let (controller, node) = (members.add("controller", "c1"), members.add("node", "n1"));
    let (operator, tenant) = (members.add("operator", "prometheus"), members.add("tenant", "app"));
    let state = members.file("state");
    // Reached from other machines, and not open.
    let far = "0.0.0.0:0";
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state, "--identity", &controller];
    let mut serves_controller = members.yonder.serve(&[&flags[..], &["--metrics", far]].concat());
    let flags = ["node", "--listen", "tcp://0.0.0.0:0", "--memory", "16MiB", "--identity", &node];
    let mut serves_node = members.yonder.serve(&[&flags[..], &["--metrics", far]].concat());
    for (server, shows) in [(&mut serves_controller, "controller nodes"), (&mut serves_node, "node limit bytes")] {
        let seen = members.top(server, &["--identity", &operator]);
        assert!(seen.code == Some(0) && seen.stdout.contains(shows), "{seen:?}");
        for (shown, says) in [(&[][..], "asks who you are"), (&["--identity", &tenant][..], "to operators")] {
            let refused = members.top(server, shown);
            let complaint = refused.complaint(1);
            assert!(complaint.contains(says) && complaint.contains("identity"), "{complaint}");
        }
    }
    // A revoked operator is one no more, once the list is where the node looks for it.
    assert_eq!(members.cluster(&["revoke", "prometheus"]).code, Some(0));
    let list = Path::new(&members.file("authority")).join("revoked.pem");
    std::fs::copy(list, members.file("revoked.pem")).expect("the authority writes a list");
    let refused = members.top(&mut serves_node, &["--identity", &operator]);
    assert!(refused.complaint(1).contains("was revoked"), "{refused:?}");
}

#[test]
fn an_etcd_of_another_machine_is_not_spoken_with_in_the_clear() {
    let refused =
        Yonder::found().run(&["controller", "--listen", "tcp://127.0.0.1:0", "--etcd", "http://10.0.0.2:2379"]);
    let complaint = refused.complaint(1);
    assert!(complaint.contains("type https://10.0.0.2:2379 with --etcd-ca FILE"), "{complaint}");
}

/// The guide's way from nothing to a program whose pages are encrypted on the way to one of three nodes, on loopback.
#[test]
fn six_commands_make_a_cluster_that_a_program_uses() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (key, state, words) = (file("cluster.key"), file("state"), file("words"));
    let sorted = write_words(&words);

    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state, "--key", &key];
    let mut controller = yonder.serve(&flags);
    let at = controller.url("tcp").replace("tcp://", "");
    let flags = ["node", "--listen", "udp://127.0.0.1:0", "--memory", "512MiB", "--controller", &at, "--key", &key];
    let mut nodes: Vec<Process> = (0..3).map(|_| yonder.serve(&flags)).collect();
    let far = nodes[1].url("udp");
    for server in [&mut controller].into_iter().chain(&mut nodes) {
        server.wait_for("protected, for members alone");
    }
    let run = |key: Option<&str>| {
        let mut command = Command::new(yonder.path());
        command.args([
            "run",
            "--far",
            &far,
            "--memory",
            "256MiB",
            "--local",
            "8MiB",
            "--",
            "sort",
            "--parallel=1",
            "-S",
            "64M",
            &words,
        ]);
        command.env("LC_ALL", "C").envs(key.map(|key| ("YONDER_KEY", key)));
        command.output().expect("it starts")
    };
    assert_sorted(&run(Some(&key)), &sorted);
    // Each mistake on the way says what to type.
    let (other, open) = (file("other.key"), file("open.key"));
    assert_eq!(yonder.run(&["cluster", "key", &other]).code, Some(0));
    std::fs::copy(&key, &open).expect("it is copied");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let says = |key: Option<&str>| {
        let refused = run(key);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    for (key, told) in [(None, "YONDER_KEY=FILE"), (Some(&other[..]), "key"), (Some(&open), "chmod 600")] {
        let said = says(key);
        assert!(said.contains(told), "{key:?}: {said}");
    }
    let listed = yonder.run(&["controller", "nodes", "--at", &at, "--key", &key]);
    assert_eq!(listed.stdout.matches("serving").count(), 3, "{}", listed.stdout);
}

/// Far memory at a node that asks who connects, and metrics that ask as well.
#[test]
fn a_key_that_is_typed_opens_nodes_to_kv_and_closes_its_metrics() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let key = folder.path().join("cluster.key").display().to_string();
    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let node = yonder.serve(&["node", "--listen", "udp://127.0.0.1:0", "--memory", "256MiB", "--key", &key]);
    let far = node.url("udp");
    let flags = [&KV[..], &["--far", &far, "--metrics"]].concat();
    let refused = yonder.run(&[&flags[..], &["127.0.0.1:0"]].concat());
    assert!(refused.complaint(1).contains("YONDER_KEY=FILE"), "{refused:?}");
    let refused = yonder.run(&[&flags[..], &["0.0.0.0:0"]].concat());
    assert!(refused.complaint(1).contains("--identity FILE or --key FILE"), "{refused:?}");

    // Metrics that other machines reach, and not open.
    let mut server = yonder.serve(&[&flags[..], &["0.0.0.0:0", "--key", &key]].concat());
    let said = server.wait_for("metrics on ");
    assert!(said.ends_with(&format!(" --key {key}` shows them")), "{said}");
    let content = Content { name: "typed", keys: 20_000, value_bytes: 1000 };
    let mut client = Client::connect(server.address());
    client.fill(&content, 0..content.keys, 1);
    client.verify(&content, 0..content.keys, 1);
    let stats = client.stats();
    assert!(stats.number("fetched_bytes") > 0 && stats.number("paging_errors") == 0);
    let seen = top(yonder, &mut server, &["--key", &key]);
    assert!(seen.code == Some(0) && seen.stdout.contains("kv gets"), "{seen:?}");
    let refused = top(yonder, &mut server, &[]);
    let complaint = refused.complaint(1);
    assert!(complaint.contains("asks who you are") && complaint.contains("--key FILE"), "{complaint}");
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn metrics_of_a_tenant_are_for_operators_and_for_itself() {
    let Some(yonder) = Yonder::ready() else { return };
    let members = Members::new();
    let (node, app, other) = (members.add("node", "n1"), members.add("tenant", "app"), members.add("tenant", "other"));
    let operator = members.add("operator", "me");
    let flags = ["node", "--listen", "tcp://127.0.0.1:0", "--memory", "256MiB", "--identity", &node];
    let far = yonder.serve(&flags);
    let url = far.url("tcp");
    let flags = [&KV[..], &["--far", &url, "--metrics", "127.0.0.1:0"]].concat();
    let refused = yonder.run(&[&flags[..], &["--identity", &operator]].concat());
    assert!(refused.complaint(1).contains("of an operator, and a tenant is needed"), "{refused:?}");
    let mut server = yonder.serve(&[&flags[..], &["--identity", &app]].concat());
    assert_eq!(Client::connect(server.address()).set("key", b"value"), "STORED");
    for shown in [&operator, &app] {
        let seen = members.top(&mut server, &["--identity", shown]);
        assert!(seen.code == Some(0) && seen.stdout.contains("kv sets"), "{seen:?}");
    }
    let refused = members.top(&mut server, &["--identity", &other]);
    assert!(refused.complaint(1).contains("to operators, and not to tenant other"), "{refused:?}");
}

/// A key that is named from the folder in which the run was started once was looked for where the program had gone.
#[test]
fn a_program_that_changes_its_folder_finds_the_key_of_its_run() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (key, words) = (file("cluster.key"), file("words"));
    let sorted = write_words(&words);
    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let node = yonder.serve(&["node", "--listen", "udp://127.0.0.1:0", "--memory", "512MiB", "--key", &key]);
    let far = node.url("udp");
    let script = format!("cd / && exec sort --parallel=1 -S 64M '{words}'");
    let start = |command: &str, flags: &[&str], variables: &[(&str, &str)]| {
        let mut start = Command::new(yonder.path());
        start.current_dir(folder.path()).args([command, "--far", &far, "--memory", "256MiB"]).args(flags);
        start.args(["--", "sh", "-c", &script]);
        start.env_remove("YONDER_IDENTITY").env_remove("YONDER_KEY").env("LC_ALL", "C");
        start.envs(variables.iter().copied()).output().expect("it starts")
    };
    let local = ["--local", "8MiB"];
    let typed = ["--local", "8MiB", "--key", "cluster.key"];
    assert_sorted(&start("run", &typed, &[]), &sorted);
    assert_sorted(&start("run", &local, &[("YONDER_KEY", "cluster.key")]), &sorted);
    // What is typed counts, whatever the environment names.
    assert_sorted(&start("run", &typed, &[("YONDER_IDENTITY", "none.pem"), ("YONDER_KEY", "none.key")]), &sorted);
    let refused = start("run", &["--key", "none.key"], &[("YONDER_KEY", "cluster.key")]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.starts_with("yonder: none.key: "), "{said}");

    let sized = start("size", &["--points", "2", "--key", "cluster.key"], &[]);
    let said = String::from_utf8_lossy(&sized.stderr);
    assert!(sized.status.code() == Some(0) && said.contains(&format!("with {far}")), "{said}");
    assert!(String::from_utf8_lossy(&sized.stdout).lines().eq(sorted.iter().map(String::as_str)), "{said}");
    let refused = start("size", &["--points", "2"], &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("YONDER_KEY=FILE"), "{said}");
}

/// Programs with such a socket have all of a node's memory, so that members would not be kept apart.
#[test]
fn a_node_of_members_hands_its_memory_to_no_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (yonder, key, socket) = (Yonder::found(), file("cluster.key"), format!("shm://{}", file("node.sock")));
    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let listen = format!("udp://127.0.0.1:0,{socket}");
    let refused = yonder.run(&["node", "--listen", &listen, "--memory", "64MiB", "--key", &key]);
    assert!(refused.complaint(1).contains("start another node for it, without --identity and --key"), "{refused:?}");
    let alone = yonder.serve(&["node", "--listen", &socket, "--memory", "64MiB", "--key", &key]);
    assert_eq!(alone.stop().code, Some(0));
}
