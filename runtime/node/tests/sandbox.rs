//! A node that serves in its sandbox cannot do what it has no need of, alone or as one of several, and can what it
//! needs.
//!
//! Each attempt needs a process of its own, with a node, which is the test itself with arguments.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::net::{AddressFamily, SocketType};
use yonder_controller::{ControllerServer, EmbeddedStore};
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig};
use yonder_process::{Entered, has_filters, landlock_version};

/// Regions of the controller of the test.
const REGION_BYTES: u64 = 1 << 20;
const SIGABRT: i32 = 6;
const SIGSYS: i32 = 31;

/// What a process in the sandbox does.
struct Attempt {
    name: &'static str,
    make: fn(&Place) -> io::Result<()>,
    ends: Ends,
    /// The same, for a node with a controller.
    ends_of_several: Ends,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Done,
    Refused,
    Killed(i32),
}

/// Where the test has put things.
struct Place {
    folder: PathBuf,
    controller: String,
}

const fn attempt(name: &'static str, ends: Ends, make: fn(&Place) -> io::Result<()>) -> Attempt {
    Attempt { name, make, ends, ends_of_several: ends }
}

const fn of_one(name: &'static str, make: fn(&Place) -> io::Result<()>) -> Attempt {
    Attempt { name, make, ends: Ends::Refused, ends_of_several: Ends::Done }
}

const ATTEMPTS: &[Attempt] = &[
    attempt("end well", Ends::Done, |_| Ok(())),
    attempt("read a file", Ends::Refused, |_| done(std::fs::read("/etc/passwd"))),
    attempt("read what was asked for", Ends::Done, |place| done(std::fs::read(place.folder.join("readable")))),
    attempt("write to it", Ends::Refused, |place| std::fs::write(place.folder.join("readable"), "")),
    attempt("make a file beside the socket", Ends::Refused, |place| std::fs::write(place.folder.join("new"), "")),
    attempt("start a process", Ends::Refused, |_| done(Command::new("/bin/true").spawn())),
    attempt("become a program", Ends::Killed(SIGSYS), |_| Err(Command::new("/bin/true").exec())),
    attempt("start a thread", Ends::Done, |_| {
        std::thread::Builder::new().name("a-thread".to_owned()).spawn(|| ())?.join().expect("it does nothing");
        Ok(())
    }),
    attempt("make a thread less urgent", Ends::Done, |_| {
        done(rustix::process::setpriority_process(None, 15).map_err(io::Error::from))
    }),
    attempt("make it more urgent again", Ends::Refused, |_| {
        done(rustix::process::setpriority_process(None, 0).map_err(io::Error::from))
    }),
    attempt("make others less urgent", Ends::Refused, |_| {
        done(rustix::process::setpriority_pgrp(None, 15).map_err(io::Error::from))
    }),
    attempt("have packets", Ends::Refused, |_| {
        done(rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None).map_err(io::Error::from))
    }),
    attempt("connect to a socket of the file system", Ends::Refused, |place| {
        done(UnixStream::connect(place.folder.join("other.sock")))
    }),
    of_one("connect", |place| done(TcpStream::connect(place.controller.as_str()))),
    of_one("have datagrams", |_| done(UdpSocket::bind("127.0.0.1:0"))),
    of_one("look up a name", |_| done("localhost:7400".to_socket_addrs())),
    attempt("listen", Ends::Refused, |_| done(TcpListener::bind("127.0.0.1:0"))),
    attempt("panic", Ends::Killed(SIGABRT), |_| {
        let panics = std::thread::spawn(|| panic!("on purpose"));
        assert!(panics.join().is_err());
        std::process::abort()
    }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..) {
        Some([attempt, number, folder, listen, controllers]) if attempt == "attempt" => {
            let (attempt, controllers) = (&ATTEMPTS[number.parse::<usize>().expect("a number")], controllers.as_str());
            in_sandbox(attempt, folder.into(), listen, controllers);
        }
        // Arguments of the harness that is not there.
        _ => test(),
    }
}

fn test() {
    if !has_filters() || landlock_version().is_none_or(|version| version < 4) {
        println!("SKIP: this kernel has not both filters of system calls and rules for files and ports");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("readable"), "something").expect("a file");
    let _other = UnixListener::bind(folder.path().join("other.sock")).expect("a socket");
    let store = EmbeddedStore::open(&folder.path().join("state")).expect("a store");
    let config = yonder_placement::Config { region_bytes: REGION_BYTES, ..yonder_placement::Config::default() };
    let listen = "127.0.0.1:0".parse().expect("an address");
    let controller = ControllerServer::start(listen, config, Box::new(store)).expect("a controller");
    let port = controller.address().port();
    for (number, attempt) in ATTEMPTS.iter().enumerate() {
        for (controllers, expected) in [
            (String::new(), attempt.ends),
            (format!("127.0.0.1:{port}"), attempt.ends_of_several),
            (format!("localhost:{port}"), attempt.ends_of_several),
        ] {
            // A name is looked up only for a controller that has one.
            if attempt.name == "look up a name" && controllers.starts_with("127") {
                continue;
            }
            let ended = this(number, folder.path(), &controller.address().to_string(), &controllers);
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            let found = match (ended.status.code(), ended.status.signal()) {
                (Some(0), _) => Ends::Done,
                (Some(1), _) => Ends::Refused,
                (_, signal) => Ends::Killed(signal.unwrap_or(0)),
            };
            assert_eq!(found, expected, "to {}, with controllers '{controllers}': {said}", attempt.name);
            if attempt.name == "panic" {
                let names_lines = said.contains("on purpose") && said.contains("tests/sandbox.rs");
                assert!(names_lines && said.contains("sandbox::ATTEMPTS"), "{said}");
            }
            if !matches!(found, Ends::Killed(_)) {
                assert!(!folder.path().join("node.sock").exists(), "the socket is left: {said}");
            }
        }
        println!("test to {} ... ok", attempt.name);
    }
}

fn this(number: usize, folder: &Path, controller: &str, controllers: &str) -> Output {
    let itself = std::env::current_exe().expect("a running test knows its executable");
    let mut child = Command::new(itself);
    child.args(["attempt", &number.to_string()]).arg(folder).args([controller, controllers]);
    child.env("RUST_BACKTRACE", "1").output().expect("the test can be started again")
}

fn in_sandbox(attempt: &Attempt, folder: PathBuf, controller: &str, controllers: &str) {
    let any = "127.0.0.1:0".to_owned();
    let listen = vec![Listen::Tcp(any.clone()), Listen::Udp(any), Listen::Shm(folder.join("node.sock"))];
    let addresses = controllers.to_owned();
    let joined = ControllerConfig::new(addresses, REGION_BYTES);
    let bound = Node::bind(NodeConfig {
        controller: (!controllers.is_empty()).then_some(joined),
        page_bytes: Some(64 << 10),
        ..NodeConfig::new(listen, 1 << 20)
    });
    let bound = bound.expect("a node");
    let entered = bound.sandbox([folder.join("readable")]).enter();
    assert_eq!(entered, Entered { filter: Ok(()), landlock: Ok(()) });
    let node = bound.serve().expect("it serves");
    let made = (attempt.make)(&Place { folder, controller: controller.to_owned() });
    node.stop();
    if let Err(refused) = made {
        eprintln!("{refused}");
        std::process::exit(1);
    }
}

fn done<T>(result: io::Result<T>) -> io::Result<()> {
    result.map(|_| ())
}
