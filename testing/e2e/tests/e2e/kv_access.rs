//! Whom `yonder kv` serves: TLS with certificates that OpenSSL has made, through Python and OpenSSL, and passwords that
//! are read again on SIGHUP.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use yonder_e2e::{TIMEOUT, Yonder};

/// What each server has.
const KV: [&str; 5] = ["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB"];

fn secret(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a temporary folder takes files");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
    path
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// What OpenSSL makes certificates by: an authority that is also the server at 127.0.0.1, and a client.
const KINDS: &str = "[req]
distinguished_name=name
[name]
[authority]
basicConstraints=critical,CA:TRUE
subjectAltName=IP:127.0.0.1
[client]
basicConstraints=CA:FALSE
extendedKeyUsage=clientAuth
";

/// A certificate of this kind and its key, signed by another or by itself; `None` where OpenSSL is missing.
fn certified(folder: &Path, kind: &str, by: Option<&[PathBuf; 2]>) -> Option<[PathBuf; 2]> {
    let [cert, key] = ["cert", "key"].map(|what| folder.join(format!("{kind}.{what}")));
    let kinds = secret(folder, "kinds", KINDS);
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args(["-config", shown(&kinds), "-extensions", kind, "-subj", &format!("/CN={kind}")]);
    command.args(["-out", shown(&cert), "-keyout", shown(&key)]);
    if let Some([cert, key]) = by {
        command.args(["-CA", shown(cert), "-CAkey", shown(key)]);
    }
    match command.output() {
        Ok(made) => assert!(made.status.success(), "{made:?}"),
        Err(error) => {
            println!("SKIP: openssl cannot be run ({error}): apt-get install openssl");
            return None;
        }
    }
    Some([cert, key])
}

/// What `openssl s_client` says when it has sent this.
fn s_client(server: SocketAddr, said: &str, more: &[&str]) -> Output {
    let address = server.to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-quiet", "-verify_return_error", "-verify_quiet"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl was there before");
    // It may be refused before it has sent anything.
    let _ = child.stdin.as_mut().expect("piped").write_all(said.as_bytes());
    child.wait_with_output().expect("it ends")
}

#[test]
fn python_and_openssl_speak_tls_with_the_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(own) = certified(folder.path(), "authority", None) else { return };
    let Some(clients) = certified(folder.path(), "client", Some(&own)) else { return };
    let Some(yonder) = Yonder::ready() else { return };
    let users = secret(folder.path(), "users", "alice:secret\n");
    let ([cert, key], [client_cert, client_key]) =
        (own.each_ref().map(|path| shown(path)), clients.each_ref().map(|path| shown(path)));
    let tls = ["--tls-cert", cert, "--tls-key", key, "--tls-ca", cert];
    let server = yonder.serve(&[&KV[..], &tls[..], &["--auth-file", shown(&users)]].concat());
    let login = "set k 0 0 12\r\nalice secret\r\nmn\r\nquit\r\n";
    let answer = s_client(server.address(), login, &["-CAfile", cert]);
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "STORED\r\nMN\r\n", "{answer:?}");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/tls.py");
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    match Command::new("python3").args([script, &host, &port, cert]).output() {
        Ok(done) => assert!(done.status.success(), "{done:?}"),
        Err(error) => println!("SKIP: python3 cannot be run ({error}): apt-get install python3"),
    }

    let server = yonder.serve(&[&KV[..], &tls[..], &["--tls-verify"]].concat());
    let answer =
        s_client(server.address(), "mn\r\nquit\r\n", &["-CAfile", cert, "-cert", client_cert, "-key", client_key]);
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "MN\r\n", "{answer:?}");
    let answer = s_client(server.address(), "mn\r\nquit\r\n", &["-CAfile", cert]);
    assert!(answer.stdout.is_empty() && String::from_utf8_lossy(&answer.stderr).contains("alert"), "{answer:?}");
}

/// What the server answers first.
fn answer(server: SocketAddr, said: &str) -> String {
    let mut client = TcpStream::connect(server).expect("the server listens");
    client.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
    client.write_all(said.as_bytes()).expect("the server listens");
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).expect("the server answers");
    line
}

#[test]
fn passwords_are_read_again_on_sighup() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let users = secret(folder.path(), "users", "alice:old\n");
    let mut server = yonder.serve(&[&KV[..], &["--auth-file", shown(&users)]].concat());
    let (old, new) = ("set k 0 0 9\r\nalice old\r\n", "set k 0 0 9\r\nalice new\r\n");
    assert_eq!(answer(server.address(), old), "STORED\r\n");
    secret(folder.path(), "users", "alice:new\n");
    assert_eq!(answer(server.address(), old), "STORED\r\n", "nothing is read unasked");
    server.signal(Signal::HUP);
    server.wait_for("read again");
    assert_eq!(answer(server.address(), old), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(answer(server.address(), new), "STORED\r\n");
    secret(folder.path(), "users", "alice\n");
    server.signal(Signal::HUP);
    let said = server.wait_for("what was read before stays");
    assert!(said.contains("line 1 is not user:password"), "{said}");
    assert_eq!(answer(server.address(), new), "STORED\r\n");
}

#[test]
fn what_would_let_strangers_in_is_refused() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let users = secret(folder.path(), "users", "alice:secret\n");
    let auth = ["--auth-file", shown(&users)];
    for (more, said) in [
        (&["--udp", "127.0.0.1:0"][..], "leave out --udp"),
        (&["--listen", "0.0.0.0:0"][..], "--open"),
        (&["--tls-verify"][..], "--tls-ca"),
    ] {
        let flags = if more[0] == "--listen" { vec!["kv", "--memory", "64MiB"] } else { KV.to_vec() };
        let ended = yonder.run(&[&flags[..], &auth[..], more].concat());
        assert!(ended.code != Some(0) && ended.stderr.contains(said), "{more:?}: {}", ended.stderr);
    }
}
