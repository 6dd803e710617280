//! A cluster whose members have identities, as the guide makes one: what its servers count is for its operators.

use std::path::Path;
use std::process::Command;

use yonder_e2e::{Ended, Process, Yonder};

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
        let at = server.metrics_address().to_string();
        self.yonder.run(&[&["top", "--once", "--interval", "10ms", "--attach", &at], shown].concat())
    }
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
    let lines: Vec<String> =
        (0..200_000u32).map(|number| format!("{:08x} word", number.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(&words, lines.join("\n") + "\n").expect("the folder is writable");
    // Not one of the six.
    let mut sorted = lines;
    sorted.sort_unstable();

    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let flags = ["controller", "--listen", "tcp://127.0.0.1:0", "--state", &state, "--key", &key];
    let controller = yonder.serve(&flags);
    let at = controller.url("tcp").replace("tcp://", "");
    let flags = ["node", "--listen", "udp://127.0.0.1:0", "--memory", "512MiB", "--controller", &at, "--key", &key];
    let nodes: Vec<Process> = (0..3).map(|_| yonder.serve(&flags)).collect();
    let far = nodes[1].url("udp");
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
    let ended = run(Some(&key));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&ended.stdout).lines().eq(sorted.iter().map(String::as_str)), "{said}");
    assert!(said.contains("MiB fetched"), "{said}");
    let refused = run(None);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("YONDER_KEY=FILE"), "{said}");
    let listed = yonder.run(&["controller", "nodes", "--at", &at, "--key", &key]);
    assert_eq!(listed.stdout.matches("serving").count(), 3, "{}", listed.stdout);
}
