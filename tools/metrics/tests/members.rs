//! Metrics of a server that asks who looks: members that may see them, those that may not, and strangers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use yonder_identity::{Authority, Credential, REVOKED_FILE, Role, SharedKey, connect_bare};
use yonder_metrics::top::{TopError, TopSettings};
use yonder_metrics::{Extra, ExtraKind, MetricsServer, Sample, Shows, bind};

const DAY: Duration = Duration::from_secs(24 * 3600);
const LONG: Duration = Duration::from_secs(20);

struct Cluster {
    folder: TempDir,
    authority: Authority,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("authority")).unwrap();
        Self { folder, authority }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn add(&mut self, role: Role, name: &str) -> PathBuf {
        let path = self.file(&format!("{name}.pem"));
        self.authority.add(role, name, DAY).unwrap().write(&path).unwrap();
        path
    }
}

fn load(path: &Path) -> Arc<Credential> {
    Arc::new(Credential::load(path).unwrap())
}

fn key(path: &Path) -> Arc<Credential> {
    SharedKey::generate().unwrap().write(path).unwrap();
    load(path)
}

fn serve(credential: &Arc<Credential>) -> MetricsServer {
    let items =
        Extra { name: "yonder_test_items", help: "Items.", kind: ExtraKind::Gauge, labels: Vec::new(), value: 7 };
    let sample = move || Sample { extra: vec![items.clone()], ..Sample::default() };
    bind("127.0.0.1:0").unwrap().serve(Arc::new(sample), Some(Arc::clone(credential))).unwrap()
}

/// What a member is answered by a server of this role, or why it is not.
fn get(server: &MetricsServer, role: Role, credential: &Credential) -> Result<String, String> {
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let connected = connect_bare(credential, socket, role, Instant::now() + LONG);
    let (stream, _) = connected.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    let asked = (&stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    asked.and_then(|()| (&stream).read_to_string(&mut answer)).map_err(|error| error.to_string())?;
    Ok(answer)
}

fn plainly(address: SocketAddr, says: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(says).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn top(server: &MetricsServer, shows: Shows) -> Result<(), TopError> {
    let address = server.address().to_string();
    yonder_metrics::top::run(&TopSettings { address, shows, interval: Duration::ZERO, once: true })
}

#[test]
fn operators_and_the_server_itself_see_what_it_counts_and_others_nothing() {
    let mut cluster = Cluster::new();
    for role in [Role::Node, Role::Controller, Role::Tenant] {
        let own = load(&cluster.add(role, &format!("{role}-1")));
        let server = serve(&own);
        let operator = cluster.add(Role::Operator, &format!("{role}-prometheus"));
        for seen in [&own, &load(&operator)] {
            let answer = get(&server, role, seen).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("yonder_test_items 7"), "{answer}");
        }
        for (other, name) in [(Role::Tenant, "app"), (role, "other")] {
            let credential = load(&cluster.add(other, &format!("{role}-{name}")));
            let answer = get(&server, role, &credential).unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("not to"), "{answer}");
            assert!(!answer.contains("yonder_test"), "{answer}");
        }
        let stranger = load(&Cluster::new().add(Role::Operator, "stranger"));
        assert!(get(&server, role, &stranger).unwrap_err().contains("another authority"));
    }
}

#[test]
fn those_who_have_the_key_see_what_a_server_with_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (key(&folder.path().join("own")), key(&folder.path().join("other")));
    let server = serve(&own);
    assert!(get(&server, Role::Node, &own).unwrap().contains("yonder_test_items 7"));
    assert!(get(&server, Role::Node, &other).unwrap_err().contains("another authority"));
    top(&server, Shows::Typed(own)).unwrap();
}

#[test]
fn one_who_shows_nothing_gets_nothing_and_is_told_what_to_type() {
    let mut cluster = Cluster::new();
    let server = serve(&load(&cluster.add(Role::Node, "n1")));
    for path in ["/metrics", "/"] {
        let answer = plainly(server.address(), format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("--identity FILE"), "{answer}");
    }
    // Half a handshake, or what only looks like one.
    for garbage in [&b"\x16\x03\x01\x00\x05hello"[..], &[0x16; 4096], b"\x16"] {
        assert!(!plainly(server.address(), garbage).contains("yonder_test"));
    }
    let said = top(&server, Shows::Nothing).unwrap_err().to_string();
    assert!(said.contains("does not show its metrics: it asks who you are: type --identity FILE"), "{said}");
    assert!(!said.contains('\n'), "{said}");
}

#[test]
fn top_says_why_it_is_not_let_in() {
    let mut cluster = Cluster::new();
    let server = serve(&load(&cluster.add(Role::Controller, "c1")));
    top(&server, Shows::Typed(load(&cluster.add(Role::Operator, "me")))).unwrap();
    let said = |shows| top(&server, shows).unwrap_err().to_string();
    let tenant = said(Shows::Typed(load(&cluster.add(Role::Tenant, "app"))));
    assert!(tenant.contains("to operators, and not to tenant app"), "{tenant}");
    let stranger = said(Shows::IfAsked(load(&Cluster::new().add(Role::Operator, "stranger"))));
    assert!(stranger.contains("another authority"), "{stranger}");
    // Revoked while the server runs.
    let revoked = load(&cluster.add(Role::Operator, "gone"));
    top(&server, Shows::Typed(Arc::clone(&revoked))).unwrap();
    cluster.authority.revoke("gone").unwrap();
    std::fs::copy(cluster.authority.revoked_file(), cluster.file(REVOKED_FILE)).unwrap();
    let told = said(Shows::Typed(revoked));
    assert!(told.contains("its certificate was revoked"), "{told}");
}

/// An identity in the environment is for what asks for one; a server of this machine that asks for none is shown too.
#[test]
fn a_server_that_asks_for_nothing_is_looked_at_without_anything() {
    let mut cluster = Cluster::new();
    let operator = load(&cluster.add(Role::Operator, "me"));
    let items =
        Extra { name: "yonder_test_items", help: "Items.", kind: ExtraKind::Gauge, labels: Vec::new(), value: 7 };
    let sample = move || Sample { extra: vec![items.clone()], ..Sample::default() };
    let server = yonder_metrics::serve("127.0.0.1:0", Arc::new(sample)).unwrap();
    top(&server, Shows::IfAsked(Arc::clone(&operator))).unwrap();
    let typed = top(&server, Shows::Typed(operator)).unwrap_err().to_string();
    assert!(typed.contains("speaks no TLS"), "{typed}");
}

/// What the guide says of Prometheus, with another program that speaks TLS.
#[test]
fn a_client_of_others_needs_the_identity_and_the_authority_alone() {
    let mut cluster = Cluster::new();
    let server = serve(&load(&cluster.add(Role::Node, "n1")));
    let identity = cluster.add(Role::Operator, "prometheus");
    let ask = |name: &str, shows: &[&Path]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20"]);
        curl.arg("--cacert").arg(cluster.authority.folder().join("authority.pem"));
        for file in shows {
            curl.arg("--cert").arg(file).arg("--key").arg(file);
        }
        curl.args(["--connect-to", &format!("{name}:443:{}", server.address())]);
        curl.arg(format!("https://{name}/metrics")).stderr(Stdio::piped()).output()
    };
    let answered = match ask("node.yonder", &[&identity]) {
        Ok(answered) => answered,
        Err(error) => return println!("SKIP: curl cannot be started ({error}): apt-get install curl"),
    };
    let said = String::from_utf8_lossy(&answered.stderr).into_owned();
    assert!(String::from_utf8_lossy(&answered.stdout).contains("yonder_test_items 7"), "{said}");
    let named = ask("n1.node.yonder", &[&identity]).unwrap();
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    // Without a certificate, and a server that is taken for another one.
    for (name, shows) in [("node.yonder", &[][..]), ("n2.node.yonder", &[&*identity])] {
        let refused = ask(name, shows).unwrap();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{name}");
    }
}
