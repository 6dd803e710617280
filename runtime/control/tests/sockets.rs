//! Servers and those who ask them, over real sockets.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use yonder_control::{AskError, CLIENTS_MAX, ControlServer, Controlled, Folder, StartError, TIMEOUT, ask};
use yonder_settings::{Name, REQUEST_BYTES_MAX, Refusal, Request, Row, Value};

/// How long anything may take that should be over at once.
const LONG: Duration = Duration::from_secs(30);

/// A process with settings and nothing else.
struct Fake {
    settings: Mutex<BTreeMap<Name, Value>>,
    regions: u64,
}

impl Fake {
    fn new(regions: u64) -> Arc<Self> {
        let settings = [
            (Name::StandbyAge, Value::Time(Some(1_000_000_000))),
            (Name::Quota, Value::Size(None)),
            (Name::RegionQuota(3), Value::Size(None)),
        ];
        Arc::new(Self { settings: Mutex::new(settings.into()), regions })
    }
}

impl Controlled for Fake {
    fn about(&self) -> Row {
        Row::new().with("pid", u64::from(std::process::id())).with("command", "fake \u{1b}[2J")
    }

    fn settings(&self) -> Vec<(Name, Value)> {
        self.settings.lock().unwrap().iter().map(|(name, value)| (*name, *value)).collect()
    }

    fn set(&self, name: Name, value: Value) -> Result<(), Refusal> {
        if value == Value::Size(Some(1)) {
            return Err(Refusal::Refused("a quota of 1 B is too small: give at least 4 KiB".into()));
        }
        self.settings.lock().unwrap().insert(name, value);
        Ok(())
    }

    fn stats(&self) -> Row {
        Row::new().with("major_faults", u64::MAX)
    }

    fn regions(&self) -> Vec<Row> {
        (0..self.regions).map(|region| Row::new().with("region", region).with("quota_bytes", None)).collect()
    }

    fn cold(&self) -> Vec<Row> {
        Vec::new()
    }
}

/// A server in a folder of its own.
struct Served {
    server: ControlServer,
    folder: Folder,
    _parent: TempDir,
}

fn place(parent: &TempDir) -> PathBuf {
    parent.path().join("yonder")
}

fn serve(fake: Arc<Fake>) -> Served {
    let parent = tempfile::tempdir().unwrap();
    let server = ControlServer::start(&place(&parent), fake).unwrap();
    let folder = Folder::open(&place(&parent)).unwrap().unwrap();
    Served { server, folder, _parent: parent }
}

impl Served {
    fn ask(&self, request: Request) -> Result<Vec<Row>, AskError> {
        ask(&self.folder, std::process::id(), request, LONG)
    }

    fn connect(&self) -> UnixStream {
        let socket = UnixStream::connect(self.server.path()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    /// What comes back to these bytes, up to the end.
    fn say(&self, bytes: &[u8]) -> String {
        let mut socket = self.connect();
        socket.write_all(bytes).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn settings_are_shown_and_changed() {
    let served = serve(Fake::new(2));
    assert_eq!((mode(served.folder.path()), mode(served.server.path())), (0o700, 0o600));
    assert_eq!(served.folder.processes().unwrap(), [std::process::id()]);
    let about = served.ask(Request::About).unwrap();
    assert_eq!(about[0].text("command"), Some("fake \u{1b}[2J"));
    let values = |rows: Vec<Row>| rows.iter().map(|row| row.text("value").unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(values(served.ask(Request::Get(None)).unwrap()), ["1s", "none", "none"]);
    let set = served.ask(Request::Set(Name::Quota, Value::Size(Some(1 << 20)))).unwrap();
    assert_eq!(
        (set[0].text("value"), set[0].number("amount"), set[0].text("unit")),
        (Some("1MiB"), Some(1 << 20), Some("bytes"))
    );
    assert_eq!(served.ask(Request::Get(Some(Name::Quota))).unwrap(), set);
    assert_eq!(served.ask(Request::Stats).unwrap()[0].number("major_faults"), Some(u64::MAX));
    assert_eq!((served.ask(Request::Regions).unwrap().len(), served.ask(Request::Cold).unwrap().len()), (2, 0));
}

#[test]
fn what_is_refused_says_why() {
    let served = serve(Fake::new(0));
    let refused = |request| match served.ask(request) {
        Err(AskError::Refused(Refusal::Refused(why))) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(Request::Set(Name::Quota, Value::Size(Some(1)))).contains("is too small: give at least 4 KiB"));
    assert!(refused(Request::Get(Some(Name::RegionQuota(7)))).starts_with("there is no region.7.quota: "));
    assert!(served.say(b"1 set quota=much\n").starts_with("refused \"'much'%20is%20not%20a%20size:"));
    assert!(served.say(b"GET / HTTP/1.1\r\n\r\n").starts_with("refused \"this%20process%20speaks%20version%201"));
    assert!(served.say(b"\0\xff\n").starts_with("refused "));
    // A line that is too long is one before its end.
    assert!(
        served.say(&[b'1'; REQUEST_BYTES_MAX]).starts_with("refused \"a%20request%20has%20at%20most%20256%20bytes")
    );
    assert_eq!(served.ask(Request::Get(Some(Name::Quota))).unwrap()[0].text("value"), Some("none"));
}

#[test]
fn a_request_may_come_in_pieces() {
    let served = serve(Fake::new(0));
    let mut socket = served.connect();
    for byte in b"1 get quota\n" {
        socket.write_all(&[*byte]).unwrap();
    }
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert_eq!(said, "row name=\"quota\" value=\"none\" amount=none unit=\"bytes\"\ndone\n");
}

#[test]
fn an_answer_that_nobody_reads_keeps_nobody_waiting_and_comes_whole() {
    // Far more than a socket holds.
    let served = serve(Fake::new(4000));
    let began = Instant::now();
    let mut slow = served.connect();
    slow.write_all(format!("{}\n", Request::Regions).as_bytes()).unwrap();
    assert_eq!(served.ask(Request::Regions).unwrap().len(), 4000);
    let mut said = String::new();
    let end = slow.read_to_string(&mut said);
    assert!(said.starts_with("row region=0 quota_bytes=none\nrow region=1 "), "{said}");
    // Unless its time is over, it gets everything.
    if began.elapsed() < TIMEOUT {
        assert!(end.is_ok() && said.ends_with("\ndone\n") && said.lines().count() == 4001, "{}", said.len());
    }
}

#[test]
fn silent_clients_cost_others_nothing_and_go_when_their_time_is_over() {
    let served = serve(Fake::new(0));
    let began = Instant::now();
    let silent: Vec<_> = (0..CLIENTS_MAX).map(|_| served.connect()).collect();
    let mut half = served.connect();
    half.write_all(b"1 get").unwrap();
    for _ in 0..3 {
        assert_eq!(served.ask(Request::Stats).unwrap().len(), 1);
    }
    for socket in silent.into_iter().chain([half]) {
        assert!(is_sent_away(&socket), "a silent client stays");
    }
    assert!(began.elapsed() >= TIMEOUT, "a client that is there was sent away before its time");
    assert_eq!(served.ask(Request::Stats).unwrap().len(), 1);
}

/// Whether nothing was answered, and nothing will be. Waits for it if the socket does.
fn is_sent_away(mut socket: &UnixStream) -> bool {
    match socket.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn of_too_many_clients_those_go_that_were_there_first() {
    let served = serve(Fake::new(0));
    let began = Instant::now();
    let silent: Vec<_> = (0..2 * CLIENTS_MAX).map(|_| served.connect()).collect();
    assert_eq!(served.ask(Request::Stats).unwrap().len(), 1);
    let first = silent[..=CLIENTS_MAX].iter().filter(|socket| is_sent_away(socket)).count();
    let last = silent[CLIENTS_MAX + 1..].iter().filter(|socket| {
        socket.set_nonblocking(true).unwrap();
        is_sent_away(socket)
    });
    let last = last.count();
    assert_eq!(first, CLIENTS_MAX + 1);
    // Unless the time of all of them is over.
    if began.elapsed() < TIMEOUT {
        assert_eq!(last, 0);
    }
}

#[test]
fn many_clients_are_all_answered() {
    let served = serve(Fake::new(50));
    let asked = std::thread::scope(|scope| {
        let ask_on = || (0..50).filter(|_| served.ask(Request::Regions).is_ok_and(|rows| rows.len() == 50)).count();
        let threads: Vec<_> = (0..CLIENTS_MAX / 2).map(|_| scope.spawn(ask_on)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(asked, 50 * CLIENTS_MAX / 2);
}

#[test]
fn a_server_that_ends_leaves_nothing() {
    let served = serve(Fake::new(0));
    let (folder, path) = (served.folder.clone(), served.server.path().to_owned());
    drop(served.server);
    assert!(!path.exists() && folder.processes().unwrap().is_empty());
    assert!(matches!(ask(&folder, std::process::id(), Request::Stats, LONG), Err(AskError::Absent(_))));
}

#[test]
fn the_socket_of_a_process_that_is_gone_is_removed() {
    let served = serve(Fake::new(0));
    let gone = served.folder.socket(4_000_000);
    // As a process that is killed leaves it.
    drop(UnixListener::bind(&gone).unwrap());
    std::fs::write(served.folder.path().join("notes"), "no socket").unwrap();
    assert_eq!(served.folder.processes().unwrap(), [std::process::id()]);
    assert!(!gone.exists() && served.folder.path().join("notes").exists());
}

#[test]
fn what_this_process_was_before_is_replaced_and_what_answers_is_not() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::make(&place(&parent)).unwrap();
    let path = folder.socket(std::process::id());
    drop(UnixListener::bind(&path).unwrap());
    let server = ControlServer::start(folder.path(), Fake::new(0)).unwrap();
    assert!(ask(&folder, std::process::id(), Request::Stats, LONG).is_ok());
    let again = ControlServer::start(folder.path(), Fake::new(0));
    assert!(matches!(again, Err(StartError::Taken(taken)) if taken == path));
    assert!(ask(&folder, std::process::id(), Request::Stats, LONG).is_ok());
    // A server that ends removes its own socket only.
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn folders_and_sockets_that_are_not_ours_alone_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::create_dir(place(&parent)).unwrap();
    std::fs::set_permissions(place(&parent), std::fs::Permissions::from_mode(0o750)).unwrap();
    let said = ControlServer::start(&place(&parent), Fake::new(0)).unwrap_err().to_string();
    assert!(said.contains("is open to other users: type chmod 700 "), "{said}");
    assert!(place(&parent).read_dir().unwrap().next().is_none(), "a socket was made all the same");

    let served = serve(Fake::new(0));
    let path = served.server.path();
    for wrong in [0o666, 0o660, 0o602] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(wrong)).unwrap();
        let said = served.ask(Request::Stats).unwrap_err().to_string();
        assert!(said.contains("is no socket of this user's alone"), "{said}");
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(served.ask(Request::Stats).is_ok());
    let file = served.folder.socket(7);
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(ask(&served.folder, 7, Request::Stats, LONG), Err(AskError::Folder(_))));
    assert!(matches!(ask(&served.folder, 8, Request::Stats, LONG), Err(AskError::Absent(8))));
    if chown(path, Some(65534), None).is_err() {
        println!("SKIP: only root can give sockets away");
        return;
    }
    let said = served.ask(Request::Stats).unwrap_err().to_string();
    assert!(said.contains("is no socket of this user's alone"), "{said}");
}

/// Another user gets through to the socket only if somebody has opened the folder and the socket; then the kernel still
/// knows who it is.
#[test]
fn another_user_is_refused_by_who_it_is() {
    let parent = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let served = ControlServer::start(&place(&parent), Fake::new(0)).unwrap();
    std::fs::set_permissions(place(&parent), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(served.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    const ASK: &str = "import os,socket,sys
os.setgid(65534); os.setuid(65534)
s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
try: s.sendall(b'1 set quota=1GiB\\n')
except BrokenPipeError: pass # It was refused before it had asked.
print(s.recv(4096).decode())";
    match Command::new("python3").args(["-c", ASK]).arg(served.path()).output() {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said.trim(), "refused \"this%20process%20is%20another%20user's\"");
        }
        output => println!("SKIP: nobody can become another user here: {output:?}"),
    }
}

#[test]
fn a_process_that_says_nothing_or_nonsense_is_an_error_with_an_end() {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::make(&place(&parent)).unwrap();
    let path = folder.socket(5);
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let short = Duration::from_millis(200);
    // Nobody accepts; the kernel takes the request all the same.
    assert!(matches!(ask(&folder, 5, Request::Stats, short), Err(AskError::Silent { pid: 5, .. })));
    for (answer, is_garbled) in [
        (&b"what?\n"[..], true),
        (b"row a=1\ndone", false),
        (b"", false),
        (&[b'a'; 20 << 10], true),
        (&b"row \n".repeat(5000), true),
    ] {
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = std::iter::repeat_with(|| listener.accept().unwrap())
                    .find(|(socket, _)| {
                        // The one that was given up has closed its end.
                        let mut line = [0; 8];
                        let count = (&*socket).read(&mut line).unwrap();
                        count > 0 && (&*socket).write(b"").is_ok() && !is_closed(socket)
                    })
                    .unwrap();
                let _ = socket.write_all(answer);
            });
            ask(&folder, 5, Request::Stats, LONG)
        });
        match outcome {
            Err(AskError::Garbled(5)) => assert!(is_garbled),
            Err(AskError::Silent { pid: 5, .. }) => assert!(!is_garbled),
            other => panic!("{other:?}"),
        }
    }
}

/// Whether the other end is closed, and nothing is left of what it has said.
fn is_closed(socket: &UnixStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let end = (&*socket).read(&mut [0; 256]).is_ok_and(|count| count == 0);
    socket.set_nonblocking(false).unwrap();
    end
}
