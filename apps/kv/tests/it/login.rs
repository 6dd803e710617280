//! A server with passwords: what strangers get, which is nothing, and what becomes of them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use yonder_kv::{KvConfig, KvError, KvServer, ShutdownCommand};

use crate::driven::{Driven, SECOND};
use crate::harness::{Running, ask, stat};
use crate::memory::FlatMemory;

const LOGIN: &[u8] = b"set k 0 0 12\r\nalice secret\r\n";
const WRONG_LOGIN: &[u8] = b"set k 0 0 12\r\nalice secreX\r\n";
const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";

/// A file that its user alone may read.
pub(crate) fn private_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a temporary folder takes files");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn with_passwords(config: &mut KvConfig, folder: &TempDir) {
    config.auth_file = Some(private_file(folder.path(), "auth", "alice:secret\n"));
    config.udp = None;
}

#[test]
fn strangers_may_do_nothing_and_friends_everything() {
    let folder = folder();
    let server = Running::start(FlatMemory::new(16 << 20), |config| {
        with_passwords(config, &folder);
        config.shutdown = ShutdownCommand::Obeyed;
    });
    let mut friend = server.connect();
    assert_eq!(ask(&mut friend, LOGIN, b"\r\n"), b"STORED\r\n");
    assert_eq!(ask(&mut friend, b"set k 0 0 1\r\n1\r\n", b"\r\n"), b"STORED\r\n");
    let mut stranger = server.connect();
    for command in [
        "get k",
        "gets k",
        "gat 0 k",
        "touch k 1",
        "delete k",
        "incr k 1",
        "flush_all",
        "stats",
        "stats settings",
        "stats conns",
        "stats reset",
        "version",
        "verbosity 1",
        "mn",
        "mg k v",
        "md k",
        "ma k",
        "me k",
        "ms k 1",
        "refresh_certs",
        "shutdown",
        "quit",
        "",
    ] {
        let answer = ask(&mut stranger, format!("{command}\r\n").as_bytes(), b"\r\n");
        assert_eq!(answer.escape_ascii().to_string(), UNAUTHENTICATED.escape_ascii().to_string(), "{command}");
    }
    assert_eq!(ask(&mut stranger, WRONG_LOGIN, b"\r\n"), FAILURE);
    assert_eq!(ask(&mut friend, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\n1\r\nEND\r\n");
    assert_eq!((stat(&mut friend, "auth_cmds"), stat(&mut friend, "auth_errors")), (2, 1));
    ask(&mut friend, b"stats reset\r\n", b"RESET\r\n");
    assert_eq!((stat(&mut friend, "auth_cmds"), stat(&mut friend, "auth_errors")), (0, 0));
    // One that was refused may still become a friend, and what it sends at once is served.
    let both = [LOGIN, b"get k\r\nincr k 1\r\nquit\r\n"].concat();
    stranger.write_all(&both).expect("the server listens");
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).expect("the server answers");
    assert_eq!(answer, b"STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n2\r\n");
}

#[test]
fn what_a_stranger_sends_is_bounded() {
    let folder = folder();
    let server = Running::start(FlatMemory::new(16 << 20), |config| with_passwords(config, &folder));
    for (input, expected) in [
        ([b"set k 0 0 1000000\r\n".as_slice(), &[b'x'; 100_000]].concat(), UNAUTHENTICATED),
        (vec![b'x'; 100_000], b""),
        (b"set k 0 0 100\r\nhalf".to_vec(), b""),
    ] {
        assert_eq!(server.converse(&input).escape_ascii().to_string(), expected.escape_ascii().to_string());
    }
    let mut friend = server.connect();
    assert_eq!(ask(&mut friend, LOGIN, b"\r\n"), b"STORED\r\n");
    assert!(stat(&mut friend, "bytes_read") < 100_000, "more was read than a stranger may say");
}

/// What has come so far; `None` if there was none, and an empty one at the end.
fn heard(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    match client.read(&mut bytes) {
        Ok(read) => Some(bytes[..read].to_vec()),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(Vec::new()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn strangers_who_keep_guessing_give_way() {
    let folder = folder();
    let mut server = Driven::start(|config| {
        with_passwords(config, &folder);
        config.connections_max = 1;
    });
    let mut stranger = server.connect();
    for _ in 0..20 {
        server.now += SECOND / 10;
        stranger.write_all(WRONG_LOGIN).expect("the server listens");
        assert_eq!(server.until(|| heard(&mut stranger)), FAILURE);
    }
    let mut friend = server.connect();
    friend.write_all(LOGIN).expect("the server has a place");
    assert_eq!(server.until(|| heard(&mut friend)), b"STORED\r\n");
    assert_eq!(server.until(|| heard(&mut stranger)), b"");
    // A friend who does nothing keeps the place.
    server.now += 10 * SECOND;
    let mut other = server.connect();
    assert_eq!(server.until(|| heard(&mut other)), b"ERROR Too many open connections\r\n");
    friend.write_all(b"get k\r\n").expect("the server has a place");
    assert_eq!(server.until(|| heard(&mut friend)), b"END\r\n");
}

#[test]
fn idle_clients_are_closed_and_busy_ones_are_not() {
    let mut server = Driven::start(|config| config.idle_timeout = Some(std::time::Duration::from_secs(5)));
    let (mut idle, mut busy) = (server.connect(), server.connect());
    for _ in 0..3 {
        server.now += 2 * SECOND;
        busy.write_all(b"get k\r\n").expect("the server listens");
        assert_eq!(server.until(|| heard(&mut busy)), b"END\r\n");
    }
    assert_eq!(server.until(|| heard(&mut idle)), b"");
    busy.write_all(b"stats\r\n").expect("the server listens");
    let stats = String::from_utf8(server.until(|| heard(&mut busy))).expect("statistics are text");
    assert!(stats.contains("STAT idle_kicks 1\r\n") && stats.contains("STAT curr_connections 1\r\n"), "{stats}");
}

#[test]
fn passwords_and_datagrams_exclude_one_another() {
    let folder = folder();
    let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = KvConfig::new(here);
    with_passwords(&mut config, &folder);
    config.udp = Some(here);
    let refused = KvServer::bind(config, FlatMemory::new(16 << 20)).err().expect("it is refused");
    assert!(matches!(refused, KvError::UdpProvesNothing), "{refused}");
    assert!(refused.to_string().contains("leave out --udp") && !refused.to_string().contains('\n'), "{refused}");
}
