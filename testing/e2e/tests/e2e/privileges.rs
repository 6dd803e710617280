//! What servers give up before they serve: a node's threads are all in its sandbox, and what root starts becomes a
//! user's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use yonder::clib::{Permission, Process as Space};
use yonder_e2e::{Process, Yonder};

/// A user that every system has.
const NOBODY: &str = "nobody";
const NODE_FLAGS: [&str; 7] = ["node", "--memory", "16MiB", "--page-size", "64KiB", "--metrics", "127.0.0.1:0"];

/// What the kernel says of each thread of a process: the values of `names`.
fn threads(process: &Process, names: &[&str]) -> Vec<Vec<String>> {
    let folder = format!("/proc/{}/task", process.pid());
    let tasks = fs::read_dir(folder).expect("the process runs").map(|task| task.expect("it can be read").path());
    let status = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok());
    let value = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    status.map(|status| names.iter().map(|name| value(&status, name)).collect()).collect()
}

/// Writes to the node in every way that it offers, reads it back, and asks for its metrics.
fn use_it(node: &mut Process) {
    for scheme in ["tcp", "udp", "shm"] {
        let space = Space::create(&node.url(scheme)).expect("the node serves");
        let mut thread = space.thread().expect("the space can be used");
        let address = thread.ralloc(64 << 10, Permission::ReadWrite).expect("there is room");
        thread.rwrite(address, scheme.as_bytes()).expect("it can be written");
        let mut found = [0; 3];
        thread.rread(address, &mut found).expect("it can be read");
        assert_eq!(found, scheme.as_bytes());
    }
    let metrics = metrics(node);
    assert!(metrics.contains("\nyonder_node_spaces ") && metrics.contains("\nyonder_node_limit_bytes "), "{metrics}");
}

fn metrics(server: &mut Process) -> String {
    let mut stream = TcpStream::connect(server.metrics_address()).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn all_threads_of_a_node_are_in_its_sandbox_unless_it_is_to_be_without() {
    let (yonder, folder) = (Yonder::found(), tempfile::tempdir().expect("a temporary folder"));
    let socket = folder.path().join("node.sock");
    let listen = format!("tcp://127.0.0.1:0,udp://127.0.0.1:0,shm://{}", socket.display());
    for (flags, expected) in [(&[][..], ["2", "1"]), (&["--no-sandbox"], ["0", "0"])] {
        let mut node = yonder.serve(&[&NODE_FLAGS[..], &["--listen", &listen], flags].concat());
        use_it(&mut node);
        let threads = threads(&node, &["Seccomp", "NoNewPrivs"]);
        assert!(threads.len() >= 7, "{threads:?}");
        assert!(threads.iter().all(|thread| thread == &expected), "{flags:?}: {threads:?}");
        let ended = node.stop();
        assert!(ended.code == Some(0) && ended.stderr.contains("writes served"), "{}", ended.stderr);
        assert!(!socket.exists(), "the socket is left");
        assert!(!ended.stderr.contains("serves without"), "{}", ended.stderr);
    }
}

#[test]
fn data_threads_have_cpus_that_the_others_of_the_node_leave_to_them() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("it can be asked");
    if allowed.count() < 2 {
        println!("SKIP: only one CPU: none is left for other threads");
        return;
    }
    let first = (0..).find(|cpu| allowed.is_set(*cpu)).expect("there is one").to_string();
    let flags = ["--listen", "tcp://127.0.0.1:0,udp://127.0.0.1:0", "--data-cpus", &first];
    let node = Yonder::found().serve(&[&NODE_FLAGS[..], &flags].concat());
    let found = threads(&node, &["Name", "Cpus_allowed_list"]);
    let of = |name: &'static str| found.iter().filter(move |thread| thread[0] == name).map(|thread| thread[1].clone());
    for name in ["yonder-datagram", "yonder-stream"] {
        assert!(of(name).count() > 0 && of(name).all(|cpus| cpus == first), "{name}: {found:?}");
    }
    for name in ["yonder-slow", "yonder-extend", "yonder-control"] {
        let shares = |cpus: String| cpus.split([',', '-']).any(|cpu| cpu == first);
        assert!(of(name).count() > 0 && !of(name).any(shares), "{name}: {found:?}");
    }
    assert_eq!(node.stop().code, Some(0));
}

#[test]
fn what_root_starts_becomes_a_user_for_good() {
    let yonder = Yonder::found();
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let user = owner_of_nobody();
    chown(folder.path(), Some(user), None).expect("root may");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("root may");
    let socket = folder.path().join("node.sock");
    let (listen, state) =
        (format!("tcp://127.0.0.1:0,udp://127.0.0.1:0,shm://{}", socket.display()), folder.path().join("state"));
    let mut node = yonder.serve(&[&NODE_FLAGS[..], &["--listen", &listen, "--user", NOBODY]].concat());
    let controller = yonder.serve(&[
        "controller",
        "--listen",
        "tcp://127.0.0.1:0",
        "--state",
        state.to_str().expect("a plain name"),
        "--user",
        NOBODY,
    ]);
    for server in [&node, &controller] {
        let threads = threads(server, &["Uid", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs"]);
        let uid = [user.to_string().as_str(); 4].join(" ");
        let none = "0000000000000000";
        assert!(threads.iter().all(|thread| thread == &[&uid, none, none, none, "1"]), "{threads:?}");
    }
    let made = fs::metadata(&socket).expect("the socket is there");
    assert_eq!((made.uid(), made.mode() & 0o777), (user, 0o600));
    assert_eq!(fs::metadata(&state).expect("the state is there").uid(), user);
    // Root may use the node by each way too.
    use_it(&mut node);
    for server in [node, controller] {
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    assert!(!socket.exists(), "the socket is left");
}

fn owner_of_nobody() -> u32 {
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let nobody = users.lines().find_map(|line| line.strip_prefix(NOBODY)?.strip_prefix(':')?.split(':').nth(1));
    nobody.expect("nobody is a user").parse().expect("a number")
}

#[test]
fn a_user_that_is_none_is_one_line() {
    let yonder = Yonder::found();
    let node = [&NODE_FLAGS[..], &["--listen", "tcp://127.0.0.1:0"]].concat();
    for server in [&node[..], &["controller", "--listen", "tcp://127.0.0.1:0"]] {
        for (user, expected) in [("no-such-user", "there is no user 'no-such-user'"), ("root", "all rights of root")] {
            let ended = yonder.run(&[server, &["--user", user]].concat());
            assert!(ended.complaint(1).contains(expected), "{}", ended.stderr);
        }
    }
}
