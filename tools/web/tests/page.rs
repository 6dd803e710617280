//! The page's server as browsers and others see it: a real server with metrics and a process that is asked at its
//! socket, but no far memory.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;
use yonder::Stats;
use yonder_control::{ControlServer, Controlled, Folder};
use yonder_metrics::top::Target;
use yonder_metrics::{MetricsServer, Sample, Shows, page};
use yonder_settings::{Name, Refusal, Row, Value};
use yonder_web::{WebServer, WebSettings, serve};

/// A process with one setting.
struct Pretended(Mutex<Option<u64>>);

impl Controlled for Pretended {
    fn about(&self) -> Row {
        Row::new().with("far", "emu://").with("command", "sort \"a\" <b>")
    }

    fn settings(&self) -> Vec<(Name, Value)> {
        vec![(Name::Quota, Value::Size(*self.0.lock().unwrap()))]
    }

    fn set(&self, name: Name, value: Value) -> Result<(), Refusal> {
        match (name, value) {
            (Name::Quota, Value::Size(bytes)) if bytes != Some(0) => {
                *self.0.lock().unwrap() = bytes;
                Ok(())
            }
            _ => Err(Refusal::Refused("it does not take that".to_owned())),
        }
    }

    fn stats(&self) -> Row {
        Row::new().with("major_faults", 7).with("soft_limit_bytes", None)
    }

    fn regions(&self) -> Vec<Row> {
        Vec::new()
    }

    fn cold(&self) -> Vec<Row> {
        Vec::new()
    }
}

struct World {
    _folder: tempfile::TempDir,
    _process: ControlServer,
    metrics: Option<MetricsServer>,
    web: WebServer,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yonder");
        let process = ControlServer::start(&path, Arc::new(Pretended(Mutex::new(None)))).unwrap();
        let sample = || Sample { paging: Some(Stats { major_faults: 3, ..Stats::default() }), ..Sample::default() };
        let metrics = yonder_metrics::serve("127.0.0.1:0", Arc::new(sample)).unwrap();
        let server = Target::new(&metrics.address().to_string(), Shows::Nothing).unwrap();
        let folders = Box::new(move || Folder::open(&path).ok().flatten().into_iter().collect());
        let web = serve(WebSettings { address: "127.0.0.1:0".to_owned(), server: Some(server), folders }).unwrap();
        Self { _folder: folder, _process: process, metrics: Some(metrics), web }
    }

    fn address(&self) -> SocketAddr {
        self.web.address()
    }

    fn key(&self) -> &str {
        self.web.url().split_once("#key=").unwrap().1
    }

    /// Status and body of an answer.
    fn ask(&self, line: &str, fields: &[(&str, &str)], body: &str) -> (u16, String) {
        let answer = exchange(self.address(), line, fields, body);
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        for (name, value) in page::HEADERS {
            let field = format!("{}: {value}\r\n", name.to_lowercase());
            assert!(format!("{head}\r\n").to_lowercase().contains(&field.to_lowercase()), "{line}: {head}");
        }
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn look(&self) -> serde_json::Value {
        let (host, key) = (self.address().to_string(), format!("Bearer {}", self.key()));
        let (status, body) = self.ask("GET /api/look", &[("Host", &host), ("Authorization", &key)], "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn set(&self, change: &str) -> (u16, String) {
        let (host, key) = (self.address().to_string(), format!("Bearer {}", self.key()));
        let origin = format!("http://{host}");
        let head =
            [("Host", &*host), ("Authorization", &key), ("Origin", &origin), ("Content-Type", "application/json")];
        self.ask("POST /api/set", &head, change)
    }
}

fn exchange(address: SocketAddr, line: &str, fields: &[(&str, &str)], body: &str) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("{line} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn files_are_for_all_who_ask_by_address() {
    let world = World::new();
    let host = world.address().to_string();
    for file in &page::FILES {
        let (status, text) = world.ask(&format!("GET {}", file.path), &[("Host", &host)], "");
        let expected = if file.path == "/" { page::for_top() } else { file.text.to_owned() };
        assert!(status == 200 && text == expected, "{}: {status} {text}", file.path);
    }
    assert_eq!(world.ask("GET /page/../etc/passwd", &[("Host", &host)], "").0, 404);
    assert_eq!(world.ask("POST /", &[("Host", &host)], "").0, 404);
    let (status, said) = world.ask("GET /", &[("Host", "evil.example")], "");
    assert!(status == 421 && said.contains("under its address alone"), "{status} {said}");
}

#[test]
fn a_look_has_the_server_and_the_processes() {
    let mut world = World::new();
    let look = world.look();
    let server = &look["server"];
    assert!(server["text"].as_str().unwrap().contains("\nyonder_major_faults_total 3\n"), "{look}");
    assert!(server["trouble"].is_null() && server["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    let process = &look["processes"][0];
    assert_eq!(
        (process["pid"].as_u64(), process["answers"].as_bool()),
        (Some(u64::from(std::process::id())), Some(true))
    );
    assert_eq!((process["command"].as_str(), process["far"].as_str()), (Some("sort \"a\" <b>"), Some("emu://")));
    assert_eq!(process["stats"], json!({ "major_faults": 7, "soft_limit_bytes": null }));
    assert_eq!(process["settings"], json!([{ "name": "quota", "value": "none", "unit": "bytes" }]));
    // A server that has ended is trouble, and processes are shown as before.
    world.metrics = None;
    let mut look = world.look();
    while look["server"]["trouble"].is_null() {
        look = world.look();
    }
    assert!(look["server"]["trouble"].as_str().unwrap().contains("nothing serves metrics at"), "{look}");
    assert_eq!(look["processes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_setting_is_changed_or_it_is_said_why_not() {
    let world = World::new();
    let id = world.look()["processes"][0]["id"].to_string();
    let change = |name: &str, value: &str| format!(r#"{{"id":{id},"name":"{name}","value":"{value}"}}"#);
    assert_eq!(world.set(&change("quota", "64MiB")), (200, r#"{"name":"quota","value":"64MiB"}"#.to_owned()));
    assert_eq!(world.look()["processes"][0]["settings"][0]["value"], "64MiB");
    for (change, says) in [
        (change("quota", "much"), "'much' is not a size"),
        (change("quota", "0"), "it does not take that"),
        (change("quotas", "1"), "'quotas' is no setting"),
        (r#"{"id":"none","name":"quota","value":"1MiB"}"#.to_owned(), "the process is over"),
        ("quota=1MiB".to_owned(), "a change has an id, a name and a value"),
    ] {
        let (status, said) = world.set(&change);
        assert!(status == 400 && said.contains(says) && said.starts_with(r#"{"error":""#), "{change}: {said}");
    }
    assert_eq!(world.set(&change("quota", &"1".repeat(5000))).0, 413);
    assert_eq!(world.look()["processes"][0]["settings"][0]["value"], "64MiB");
}

#[test]
fn strangers_and_other_pages_see_and_change_nothing() {
    let world = World::new();
    let (host, key) = (world.address().to_string(), format!("Bearer {}", world.key()));
    let id = world.look()["processes"][0]["id"].to_string();
    let change = format!(r#"{{"id":{id},"name":"quota","value":"1MiB"}}"#);
    let (own, json) = (format!("http://{host}"), "application/json");
    for (line, head, status) in [
        ("GET /api/look", vec![("Host", &*host)], 401),
        ("GET /api/look", vec![("Host", &host), ("Authorization", "Bearer 00")], 401),
        ("GET /api/look", vec![("Host", "evil.example"), ("Authorization", &key)], 421),
        ("GET /api/look", vec![("Host", &host), ("Authorization", &key), ("Sec-Fetch-Site", "cross-site")], 403),
        ("POST /api/set", vec![("Host", &host), ("Origin", &own), ("Content-Type", json)], 401),
        ("POST /api/set", vec![("Host", &host), ("Authorization", &key), ("Content-Type", json)], 403),
        (
            "POST /api/set",
            vec![("Host", &host), ("Authorization", &key), ("Origin", "http://evil.example"), ("Content-Type", json)],
            403,
        ),
        ("POST /api/set", vec![("Host", &host), ("Authorization", &key), ("Origin", &own)], 403),
        ("OPTIONS /api/set", vec![("Host", &host), ("Origin", "http://evil.example")], 401),
    ] {
        let (got, said) = world.ask(line, &head, if line.starts_with("POST") { &change } else { "" });
        assert!(got == status && !said.contains("sort"), "{line} {head:?}: {got} {said}");
    }
    assert_eq!(world.look()["processes"][0]["settings"][0]["value"], "none");
}

#[test]
fn silent_clients_keep_no_one_from_the_page() {
    let world = World::new();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(world.address()).unwrap()).collect();
    world.look();
    drop(silent);
}
