//! A memory node that dies under a server: what is local is still served, what is not is refused in time, and nothing
//! is ever made up. A miss for an item that was stored would be a lie as well.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use yonder_e2e::{Client, Content, Got, Process, TIMEOUT, Yonder, alone};

/// `--deadline` of the server.
const DEADLINE: Duration = Duration::from_millis(500);
/// What an answer may take beyond that: the request may touch a second page, and the machine may be busy.
const SLACK: Duration = Duration::from_millis(2500);
/// The answer of a request that needs a page which cannot be had.
const REFUSAL: &str = "SERVER_ERROR far memory unavailable";

/// Five times the local memory.
const CONTENT: Content = Content { name: "kept", keys: 20_000, value_bytes: 1000 };
/// Clients that ask for old and for new items.
const CLIENTS: u64 = 16;
const OLD_PER_CLIENT: u64 = 4;
const NEW_PER_CLIENT: u64 = 8;

fn start_node(yonder: Yonder, listen: &str) -> Process {
    yonder.serve(&["node", "--listen", listen, "--memory", "64MiB"])
}

/// A server with 4 MiB of local memory, filled with the content.
fn start_filled(yonder: Yonder, far: &str) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB", "--deadline", "500ms"];
    let server = yonder.serve(&[&flags[..], &["--far", far]].concat());
    Client::connect(server.address()).fill(&CONTENT, 0..CONTENT.keys, 1);
    server
}

fn socket_url(folder: &Path) -> String {
    format!("shm://{}", folder.join("node.sock").display())
}

/// Reads an item that was stored. Returns whether it was there; the only other answer is a refusal in time.
fn read(client: &mut Client, content: &Content, index: u64) -> bool {
    let (key, start) = (content.key(index), Instant::now());
    let got = client.get(&key);
    let took = start.elapsed();
    assert!(took < DEADLINE + SLACK, "the answer for {key} took {took:?}: {got:?}");
    is_there(content, index, got)
}

/// Whether the answer for an item that was stored is the item; anything but that and a refusal is a lie.
fn is_there(content: &Content, index: u64, got: Got) -> bool {
    let key = content.key(index);
    match got {
        Got::Value(value) => {
            assert!(value == content.value(index, 1), "{key} has a wrong value");
            true
        }
        Got::Refused(line) => {
            assert_eq!(line, REFUSAL, "{key}");
            false
        }
        Got::Miss => panic!("{key} was stored, and is said not to be there"),
    }
}

/// What clients found after the node's death.
struct Survey {
    there: usize,
    refused: usize,
    /// Local items that another client read meanwhile.
    served_meanwhile: usize,
}

/// Asks for old items, most of which are remote, and for the newest, most of which are local, with many clients at
/// once.
fn survey(server: SocketAddr) -> Survey {
    let (there, refused, asking) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(CLIENTS as usize));
    let served_meanwhile = std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (there, refused, asking) = (&there, &refused, &asking);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                let old = (number..CONTENT.keys / 2).step_by((CONTENT.keys / 2 / OLD_PER_CLIENT) as usize);
                let new = CONTENT.keys - CLIENTS * NEW_PER_CLIENT..CONTENT.keys;
                let new = new.skip(number as usize).step_by(CLIENTS as usize);
                for index in old.chain(new) {
                    let count = if read(&mut client, &CONTENT, index) { there } else { refused };
                    count.fetch_add(1, Ordering::Relaxed);
                }
                asking.fetch_sub(1, Ordering::Release);
            });
        }
        bystander(server, &asking)
    });
    Survey { there: there.into_inner(), refused: refused.into_inner(), served_meanwhile }
}

/// Reads the newest items over and over while others ask for what cannot be had. Returns how many were there.
fn bystander(server: SocketAddr, asking: &AtomicUsize) -> usize {
    let mut client = Client::connect(server);
    let mut local: Vec<u64> = (CONTENT.keys - 50..CONTENT.keys).collect();
    let mut served = 0;
    while asking.load(Ordering::Acquire) > 0 && !local.is_empty() {
        local.retain(|index| read(&mut client, &CONTENT, *index));
        served += local.len();
    }
    served
}

/// Stores new items until local memory is full of pages that no node takes. Returns how many were stored.
fn store_until_refused(client: &mut Client, late: &Content) -> u64 {
    for index in 0..late.keys {
        let start = Instant::now();
        let answer = client.set(&late.key(index), &late.value(index, 1));
        assert!(start.elapsed() < DEADLINE + SLACK, "the answer took {:?}: {answer}", start.elapsed());
        if answer != "STORED" {
            assert_eq!(answer, REFUSAL);
            return index;
        }
    }
    panic!("{} items were stored in 4 MiB of local memory, and no node takes them", late.keys);
}

fn the_rest_goes_on_when_the_node_dies(yonder: Yonder, node: Process, server: &Process) {
    let mut client = Client::connect(server.address());
    client.verify(&CONTENT, (0..CONTENT.keys).step_by(100), 1);
    // So that the newest items are the ones that are local.
    client.fill(&CONTENT, CONTENT.keys - 500..CONTENT.keys, 1);
    node.kill();

    let mut served = Vec::new();
    // A server that waits with them would serve each once, when they are done. One that does not, and gets no turn on a
    // busy machine, is asked again.
    while served.last().is_none_or(|served| *served <= 50) {
        assert!(served.len() < 5, "only these many local items were served while others waited: {served:?}");
        let Survey { there, refused, served_meanwhile } = survey(server.address());
        assert!(there > 0 && refused > 0, "{there} items were there and {refused} refused");
        served.push(served_meanwhile);
    }

    assert!(client.ask("version").starts_with("VERSION "));
    // What never was there is known without far memory, but for keys that share their bucket with a remote item.
    let absent: Vec<String> = (0..20).map(|number| client.ask(&format!("get never-there-{number}"))).collect();
    let misses = absent.iter().filter(|answer| *answer == "END").count();
    assert!(misses > 0 && absent.iter().all(|answer| answer == "END" || answer == REFUSAL), "{absent:?}");
    let stats = client.stats();
    assert!(stats.number("paging_errors") > 0);
    assert_eq!((stats.number("curr_items"), stats.number("get_misses")), (CONTENT.keys, misses as u64));

    let late = Content { name: "late", keys: 8000, value_bytes: 1000 };
    let stored = store_until_refused(&mut client, &late);
    let found = (0..stored).step_by(1 + stored as usize / 8).filter(|index| read(&mut client, &late, *index)).count();
    assert!(stored == 0 || found > 0, "no node has what was stored after its death, so it is local");

    // The other end of not hanging: it can be stopped, and a new server with another node can take its place.
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB"];
    assert!(Client::connect(yonder.serve(&flags).address()).ask("version").starts_with("VERSION "));
}

#[test]
fn requests_go_on_when_the_node_dies_over_tcp() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let node = start_node(yonder, "tcp://127.0.0.1:0");
    let server = start_filled(yonder, &node.url("tcp"));
    the_rest_goes_on_when_the_node_dies(yonder, node, &server);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn requests_go_on_when_the_node_dies_over_shm() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start_node(yonder, &socket_url(folder.path()));
    let server = start_filled(yonder, &node.url("shm"));
    the_rest_goes_on_when_the_node_dies(yonder, node, &server);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_crowd_that_asks_a_dead_node_is_refused_in_time() {
    // Several times what the server has under way at a time.
    const CROWD: u64 = 300;
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let node = start_node(yonder, "tcp://127.0.0.1:0");
    let server = start_filled(yonder, &node.url("tcp"));
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| Client::connect(server.address())).collect();
    node.kill();
    let start = Instant::now();
    for (client, index) in crowd.iter_mut().zip(0..) {
        client.send(format!("get {}\r\n", CONTENT.key(index)).as_bytes());
    }
    let answers = crowd.iter_mut().zip(0..).map(|(client, index)| client.next_item(&CONTENT.key(index)));
    let refused = answers.zip(0..).filter(|(got, index)| !is_there(&CONTENT, *index, got.clone())).count();
    assert!(refused > CROWD as usize / 2, "only {refused} old items were remote");
    assert!(start.elapsed() < DEADLINE + SLACK, "{CROWD} answers took {:?}", start.elapsed());
}

#[test]
fn a_node_that_was_restarted_has_nothing_to_offer() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (listen, scheme) in [("tcp://127.0.0.1:0".to_owned(), "tcp"), (socket_url(folder.path()), "shm")] {
        let node = start_node(yonder, &listen);
        let far = node.url(scheme);
        let server = start_filled(yonder, &far);
        node.kill();
        // Its memory is empty, and its pages are all zeros: none of them may pass for what was stored.
        let node = start_node(yonder, &far);
        assert!(survey(server.address()).refused > 0);
        assert_eq!(server.stop().code, Some(0));
        let next = start_filled(yonder, &node.url(scheme));
        Client::connect(next.address()).verify(&CONTENT, (0..CONTENT.keys).step_by(10), 1);
    }
}

#[test]
fn a_server_whose_node_stands_still_answers_when_it_goes_on() {
    let Some(yonder) = Yonder::ready() else { return };
    let _turn = alone();
    let node = start_node(yonder, "tcp://127.0.0.1:0");
    let server = start_filled(yonder, &node.url("tcp"));
    let mut client = Client::connect(server.address());
    node.signal(rustix::process::Signal::STOP);
    let give_up = Instant::now() + TIMEOUT;
    // On a busy machine it may answer for a while, and what was read then is local: all items have their turn.
    let mut old = (0..).map(|turn| turn * 97 % CONTENT.keys);
    while read(&mut client, &CONTENT, old.next().expect("it has no end")) {
        assert!(Instant::now() < give_up, "everything is local");
    }
    // That one was refused, because the node stood still for longer than the deadline. It has lost nothing.
    node.signal(rustix::process::Signal::CONT);
    while !(0..20).all(|index| read(&mut client, &CONTENT, index)) {
        assert!(Instant::now() < give_up, "the node is back, and its items are not");
    }
    client.verify(&CONTENT, 0..CONTENT.keys, 1);
}
