//! What servers give up before they serve: a node's threads are all in its sandbox, and what root starts becomes a
//! user's.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use yonder::clib::{Permission, Process as Space};
use yonder_e2e::{Client, Content, Process, Yonder, busy};

/// A user that every system has.
const NOBODY: &str = "nobody";
const NODE_FLAGS: [&str; 7] = ["node", "--memory", "16MiB", "--page-size", "64KiB", "--metrics", "127.0.0.1:0"];
/// With eight times as much far memory as local memory.
const KV_FLAGS: [&str; 7] = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB"];
const TPCC_FLAGS: [&str; 12] = [
    "serve",
    "tpcc",
    "--listen",
    "127.0.0.1:0",
    "--memory",
    "30MiB",
    "--local",
    "20%",
    "--shrink",
    "10",
    "--orders",
    "100000",
];

/// The ways to start a server that can become a user's.
const SERVERS: [&[&str]; 4] = [
    &["node", "--memory", "16MiB", "--listen", "tcp://127.0.0.1:0"],
    &["controller", "--listen", "tcp://127.0.0.1:0"],
    &KV_FLAGS,
    &TPCC_FLAGS,
];

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

/// The user, and its first group, that servers of root's become; else prints `SKIP`.
fn nobody() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can become another user");
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let nobody = users.lines().find_map(|line| line.strip_prefix(NOBODY)?.strip_prefix(':')).expect("nobody is a user");
    let number = |field| nobody.split(':').nth(field).and_then(|number| number.parse().ok()).expect("a number");
    Some((number(1), number(2)))
}

/// Fails unless all threads of a server that serves are that user's for good.
fn assert_is_for_good(server: &Process, (user, group): (u32, u32)) {
    let ids = ["Uid", "Gid", "Groups", "NoNewPrivs"];
    let rights = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let four = |id: u32| [id.to_string().as_str(); 4].join(" ");
    let mut expected = vec![four(user), four(group), group.to_string(), "1".to_owned()];
    expected.extend(rights.map(|_| "0000000000000000".to_owned()));
    let threads = threads(server, &[&ids[..], &rights].concat());
    assert!(threads.len() >= 2 && threads.iter().all(|thread| *thread == expected), "{threads:?}");
}

/// A folder of a user, and its name.
fn folder_of(user: u32) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    chown(folder.path(), Some(user), None).expect("root may");
    let path = folder.path().display().to_string();
    (folder, path)
}

#[test]
fn what_root_starts_becomes_a_user_for_good() {
    let yonder = Yonder::found();
    let Some(nobody @ (user, _)) = nobody() else { return };
    let (folder, _) = folder_of(user);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("root may");
    let socket = folder.path().join("node.sock");
    let (listen, state) =
        (format!("tcp://127.0.0.1:0,udp://127.0.0.1:0,shm://{}", socket.display()), folder.path().join("state"));
    let mut node = yonder.serve(&[&NODE_FLAGS[..], &["--listen", &listen, "--user", NOBODY]].concat());
    let flags = ["--state", state.to_str().expect("a plain name"), "--user", NOBODY, "--metrics", "127.0.0.1:0"];
    let mut controller = yonder.serve(&[&["controller", "--listen", "tcp://127.0.0.1:0"], &flags[..]].concat());
    // Root may use the node by each way too.
    use_it(&mut node);
    let url = controller.url("tcp").replace("tcp://", "controller://");
    let _space = Space::create(&url).expect("the controller serves");
    let metrics = metrics(&mut controller);
    assert!(metrics.contains("\nyonder_controller_nodes 0"), "{metrics}");
    for server in [&node, &controller] {
        assert_is_for_good(server, nobody);
    }
    let made = fs::metadata(&socket).expect("the socket is there");
    assert_eq!((made.uid(), made.mode() & 0o777), (user, 0o600));
    assert_eq!(fs::metadata(&state).expect("the state is there").uid(), user);
    for server in [node, controller] {
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    assert!(!socket.exists(), "the socket is left");
}

/// Items of which most are far are stored and read, as the user, wherever far memory is.
#[test]
fn kv_becomes_a_user_for_good_and_serves_from_far_memory() {
    let Some(yonder) = Yonder::ready() else { return };
    let Some(nobody @ (user, _)) = nobody() else { return };
    let (folder, files) = folder_of(user);
    // The server's own, which root may not use, and root's.
    let (key, roots) = (format!("{files}/key"), tempfile::tempdir().expect("a temporary folder"));
    let roots = roots.path().join("key").display().to_string();
    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    fs::copy(&key, &roots).expect("there is a key");
    chown(folder.path().join("key"), Some(user), None).expect("root may");
    let node = yonder.serve(&["node", "--listen", "udp://127.0.0.1:0", "--memory", "256MiB", "--key", &roots]);
    let (emu, file, far) = ("emu://".to_owned(), format!("file://{files}"), node.url("udp"));
    for (far, flags) in [(emu, &[][..]), (file, &[]), (far, &["--key", &key])] {
        let together = yonder.together();
        chown(together.runtime(), Some(user), None).expect("root may");
        let metrics = ["--metrics", "127.0.0.1:0", "--udp", "127.0.0.1:0", "--user", NOBODY];
        let mut server = together.serve(&[&KV_FLAGS[..], &["--far", &far], &metrics, flags].concat());
        let content = Content { name: "users", keys: 20_000, value_bytes: 1000 };
        let mut client = Client::connect(server.address());
        client.fill(&content, 0..content.keys, 1);
        client.verify(&content, 0..content.keys, 1);
        let stats = client.stats();
        assert!(stats.number("fetched_bytes") > 0 && stats.number("paging_errors") == 0, "{far}");
        assert_is_for_good(&server, nobody);
        let at = server.metrics_address().to_string();
        let shown: &[&str] = if flags.is_empty() { &[] } else { &["--key", &roots] };
        let seen = yonder.run(&[&["top", "--once", "--interval", "10ms", "--attach", &at], shown].concat());
        assert!(seen.code == Some(0) && seen.stdout.contains("kv gets"), "{seen:?}");
        // The folder that the environment names is the user's, so that is where it is asked.
        let asked = together.run(&["ctl", "get", "local"]);
        assert!(asked.code == Some(0) && asked.stdout.contains("4MiB"), "{asked:?}");
        let ended = server.stop();
        assert_eq!((ended.code, ended.stderr.contains("WARN")), (Some(0), false), "{}", ended.stderr);
    }
}

#[test]
fn an_application_becomes_a_user_for_good_and_answers() {
    let Some(yonder) = Yonder::ready() else { return };
    let Some(nobody @ (user, _)) = nobody() else { return };
    let _busy = busy();
    let mut server = yonder.serve(&[&TPCC_FLAGS[..], &["--metrics", "127.0.0.1:0", "--user", NOBODY]].concat());
    let target = server.udp_address().to_string();
    let words = format!("load tpcc --target {target} --rate 300 --duration 800ms --patience 20s --json");
    let loaded = yonder.run(&words.split(' ').collect::<Vec<_>>()).object();
    assert_eq!((&loaded["failed"], &loaded["lost"]), (&0.into(), &0.into()), "{loaded}");
    assert!(metrics(&mut server).contains("\nyonder_requests_total "));
    assert_is_for_good(&server, nobody);
    // The folder that the environment names is root's.
    let folder = Path::new("/tmp").join(format!("yonder-{user}"));
    let socket = folder.join(format!("{}.sock", server.pid()));
    for (path, mode) in [(&folder, 0o700), (&socket, 0o600)] {
        let made = fs::metadata(path).expect("it is made for the user");
        assert_eq!((made.uid(), made.mode() & 0o777), (user, mode), "{}", path.display());
    }
    let ended = server.stop();
    assert_eq!((ended.code, ended.stderr.contains("WARN")), (Some(0), false), "{}", ended.stderr);
    assert!(!socket.exists(), "the socket is left");
}

#[test]
fn what_the_user_may_not_open_is_one_line_with_the_name() {
    let Some(yonder) = Yonder::ready() else { return };
    if nobody().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (key, far) = (file("key"), format!("file://{}", file("pages")));
    assert_eq!(yonder.run(&["cluster", "key", &key]).code, Some(0));
    let readable = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::set_permissions(readable.path(), fs::Permissions::from_mode(0o644)).expect("root may");
    let readable = readable.path().display().to_string();
    let refuses = |server: &[&str], flags: [&str; 2], expected: &str| {
        let ended = yonder.run(&[server, &["--user", NOBODY], &flags].concat());
        let said = ended.complaint(1);
        assert!(said.starts_with("yonder: as 'nobody': ") && said.contains(expected), "{said}");
    };
    for server in SERVERS {
        refuses(server, ["--key", &key], "Permission denied");
        refuses(server, ["--key", &readable], &format!("`chown nobody {readable}` as root"));
    }
    for server in [&KV_FLAGS[..], &TPCC_FLAGS] {
        refuses(server, ["--far", &far], "type a path");
    }
}

#[test]
fn a_user_that_is_none_is_one_line() {
    let yonder = Yonder::found();
    for server in SERVERS {
        for (user, expected) in [("no-such-user", "there is no user 'no-such-user'"), ("root", "all rights of root")] {
            let ended = yonder.run(&[server, &["--user", user]].concat());
            assert!(ended.complaint(1).contains(expected), "{}", ended.stderr);
        }
    }
}

#[test]
fn only_root_makes_a_server_another_users() {
    let yonder = Yonder::found();
    let root = rustix::process::geteuid().is_root();
    for server in SERVERS {
        let mut command = Command::new(yonder.path());
        command.args(server).args(["--user", NOBODY]).current_dir("/");
        if let Some((user, group)) = root.then(nobody).flatten() {
            command.uid(user).gid(group);
        }
        let ended = match command.output() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                println!("SKIP: other users may not execute {}", yonder.path());
                return;
            }
            ended => ended.expect("it can be started"),
        };
        let said = String::from_utf8_lossy(&ended.stderr);
        let expected = "yonder: only root can become 'nobody': start as root, or leave --user out\n";
        assert_eq!((ended.status.code(), &*said), (Some(1), expected));
    }
}
