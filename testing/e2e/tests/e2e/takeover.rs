//! Several controllers over one etcd, whose leader is killed again and again, or stands still: another one serves,
//! nodes and programs find it by themselves, and nothing that was placed is lost. One that goes on after it stood still
//! waits for its next turn.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use yonder::clib::{Permission, Process as Space, ProcessConfig, Rights, Ticket};
use yonder_e2e::{Process, TIMEOUT, Yonder, busy, seconds};

use crate::etcd_server::Etcd;

/// Bytes of a region, so that each allocation asks for one of its own.
const REGION_BYTES: u64 = 4 << 20;
const REGION_SIZE: &str = "4MiB";
/// Controllers: one leads.
const CONTROLLERS: usize = 3;
/// How long a program waits for an answer before it asks anew.
const DEADLINE: Duration = Duration::from_secs(2);
/// Fewest turns, however short the test is.
const TURNS_MIN: usize = 3;

/// Controllers over an etcd, and two nodes that know all of them.
struct Controllers {
    yonder: Yonder,
    etcd: Etcd,
    at: Vec<SocketAddr>,
    /// By place; the leader is the one that can be connected to.
    running: Vec<Option<Process>>,
    nodes: Vec<Process>,
}

impl Controllers {
    /// `None`, with the reason printed, if this machine or this build has no etcd.
    fn start() -> Option<Self> {
        let etcd = Etcd::start()?;
        let yonder = Yonder::found();
        // Nothing serves there, so that the command ends, whatever it was built with.
        let ended = yonder.run(&["controller", "--listen", "tcp://127.0.0.1:0", "--etcd", "http://127.0.0.1:1"]);
        if ended.complaint(1).contains("--features etcd") {
            println!("SKIP: yonder was built without etcd: cargo build -p yonder-cli --features etcd");
            return None;
        }
        let mut controllers = Self { yonder, etcd, at: free_addresses(), running: Vec::new(), nodes: Vec::new() };
        controllers.running = (0..CONTROLLERS).map(|_| None).collect();
        controllers.running[0] = Some(controllers.spawn(0).listening());
        (1..CONTROLLERS).for_each(|place| controllers.wait_at(place));
        let addresses = controllers.addresses();
        let flags = ["node", "--listen", "tcp://127.0.0.1:0", "--memory", "512MiB", "--region-size", REGION_SIZE];
        let flags = [&flags[..], &["--controller", &addresses]].concat();
        controllers.nodes = (0..2).map(|_| yonder.serve(&flags)).collect();
        Some(controllers)
    }

    fn spawn(&self, place: usize) -> Process {
        let listen = format!("tcp://{}", self.at[place]);
        let flags = ["controller", "--listen", &listen, "--etcd", self.etcd.endpoint(), "--region-size", REGION_SIZE];
        self.yonder.spawn(&flags)
    }

    /// Starts one that waits to take over.
    fn wait_at(&mut self, place: usize) {
        let mut waiting = self.spawn(place);
        waiting.wait_for("waiting to take over");
        self.running[place] = Some(waiting);
    }

    /// All, the way they are typed.
    fn addresses(&self) -> String {
        self.at.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// A program with a space of its own, which waits so long for each answer.
    fn space(&self, deadline: Duration) -> Space {
        let config = ProcessConfig { deadline, ..ProcessConfig::default() };
        Space::create_with(&format!("controller://{}", self.addresses()), config).expect("one of them leads")
    }

    /// Which one leads: only that one listens. For a moment there may be none, on a machine that stood still.
    fn leader(&self) -> usize {
        let begun = Instant::now();
        let leads = |at: &SocketAddr| TcpStream::connect_timeout(at, DEADLINE).is_ok();
        loop {
            if let Some(leader) = self.at.iter().position(leads) {
                return leader;
            }
            assert!(begun.elapsed() < TIMEOUT, "none of them leads");
        }
    }

    /// Waits until both nodes serve.
    fn wait_for_nodes(&self) {
        let (begun, addresses) = (Instant::now(), self.addresses());
        loop {
            let listed = self.yonder.run(&["controller", "nodes", "--json", "--at", &addresses]);
            let serving = listed.stdout.matches("\"serving\"").count();
            if listed.code == Some(0) && serving == self.nodes.len() {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "the nodes do not come: {listed:?}");
        }
    }
}

/// Addresses that no other test has: of this process alone, and all held until all are chosen.
fn free_addresses() -> Vec<SocketAddr> {
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 77, high, low);
    let sockets: Vec<TcpListener> =
        (0..CONTROLLERS).map(|_| TcpListener::bind((host, 0)).expect("loopback has free ports")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("it is bound")).collect()
}

/// Blocks of an address space, one in each region, whose content is known.
struct Blocks {
    space: Space,
    ticket: Ticket,
    addresses: Vec<u64>,
}

impl Blocks {
    fn new(space: Space) -> Self {
        let ticket = space.ticket(Rights::ReadWrite).expect("the owner hands rights out");
        Self { space, ticket, addresses: Vec::new() }
    }

    fn content(number: usize) -> [u8; 4096] {
        let mut content = [0; 4096];
        let words = content.chunks_exact_mut(8).enumerate();
        words.for_each(|(word, bytes)| bytes.copy_from_slice(&((number as u64) << 32 | word as u64).to_be_bytes()));
        content
    }

    /// Allocates another one, as often as it takes; says how long.
    fn add(&mut self) -> Duration {
        let begun = Instant::now();
        let mut thread = self.space.thread().expect("a thread");
        let address = loop {
            match thread.ralloc(REGION_BYTES, Permission::ReadWrite) {
                Ok(address) => break address,
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "no controller takes over: {error}"),
            }
        };
        let took = begun.elapsed();
        thread.rwrite(address, &Self::content(self.addresses.len())).expect("it was allocated");
        self.addresses.push(address);
        took
    }

    /// Reads all of them as another program would, which asks where each is.
    fn verify(&self, controllers: &str) {
        let opened = Space::open(&format!("controller://{controllers}"), self.ticket).expect("the space is known");
        let mut thread = opened.thread().expect("a thread");
        for (number, address) in self.addresses.iter().enumerate() {
            let mut content = [0; 4096];
            thread.rread(*address, &mut content).unwrap_or_else(|error| panic!("block {number}: {error}"));
            assert!(content == Self::content(number), "block {number} has another content");
        }
    }
}

/// Writes and reads a word until `is_over`; says how long that took at most. No controller is needed for it.
fn use_memory(space: &Space, address: u64, is_over: &AtomicBool) -> Duration {
    let mut thread = space.thread().expect("a thread");
    let (mut round, mut longest) = (0_u64, Duration::ZERO);
    while !is_over.load(Ordering::Acquire) {
        round += 1;
        let begun = Instant::now();
        thread.rwrite(address, &round.to_be_bytes()).expect("the node serves on");
        let mut found = [0; 8];
        thread.rread(address, &mut found).expect("the node serves on");
        assert_eq!(u64::from_be_bytes(found), round);
        longest = longest.max(begun.elapsed());
        std::thread::yield_now();
    }
    longest
}

/// Least, median and most.
fn figures(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let [least, median, most] = [0, times.len() / 2, times.len() - 1].map(|place| times[place]);
    format!("{least:.2?} to {most:.2?}, median {median:.2?}, of {}", times.len())
}

#[test]
fn controllers_that_are_killed_in_turn_lose_no_placement() {
    let _busy = busy();
    let Some(mut controllers) = Controllers::start() else { return };
    let (other, is_over) = (controllers.space(TIMEOUT), AtomicBool::new(false));
    let word = other.thread().and_then(|mut thread| thread.ralloc(4096, Permission::ReadWrite)).expect("one leads");
    let mut blocks = Blocks::new(controllers.space(DEADLINE));
    blocks.add();
    let (mut allocated, mut registered) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let user = scope.spawn(|| use_memory(&other, word, &is_over));
        let until = Instant::now() + Duration::from_secs(seconds(1));
        while allocated.len() < TURNS_MIN || Instant::now() < until {
            let leader = controllers.leader();
            controllers.running[leader].take().expect("it runs").kill();
            let killed = Instant::now();
            allocated.push(blocks.add());
            controllers.wait_for_nodes();
            registered.push(killed.elapsed());
            blocks.verify(&controllers.addresses());
            assert_ne!(controllers.leader(), leader);
            controllers.wait_at(leader);
        }
        is_over.store(true, Ordering::Release);
        println!("a write and a read took {:.2?} at most", user.join().expect("it has read what it wrote"));
    });
    println!("an allocation after a kill: {}", figures(allocated));
    println!("all nodes after a kill: {}", figures(registered));
}

/// A connection to the leader over which one has been answered.
fn answered(leader: SocketAddr) -> BufReader<TcpStream> {
    let mut answers = BufReader::new(TcpStream::connect(leader).expect("it leads"));
    answers.get_ref().set_read_timeout(Some(TIMEOUT)).expect("a socket has timeouts");
    ask(answers.get_ref());
    let mut answered = String::new();
    answers.read_line(&mut answered).expect("it leads");
    assert!(answered.contains("\"answer\""), "{answered}");
    answers
}

fn ask(mut socket: &TcpStream) {
    socket.write_all(b"{\"ask\":{\"id\":1,\"request\":\"nodes\"}}\n").expect("its system takes it");
}

/// What stands in the old leader's socket when it goes on is not answered: it may be another one's to say.
#[test]
fn controllers_that_stand_still_in_turn_answer_nobody_afterwards_and_lead_again() {
    let _busy = busy();
    let Some(mut controllers) = Controllers::start() else { return };
    let mut blocks = Blocks::new(controllers.space(DEADLINE));
    blocks.add();
    let (mut allocated, mut registered, mut led) = (Vec::new(), Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(seconds(1));
    // The last one to lead has led before, if all do in the first turns.
    while led.len() <= TURNS_MIN || Instant::now() < until {
        let leader = controllers.leader();
        let mut old = controllers.running[leader].take().expect("it runs");
        let mut answers = answered(controllers.at[leader]);
        old.signal(Signal::STOP);
        let stopped = Instant::now();
        allocated.push(blocks.add());
        controllers.wait_for_nodes();
        registered.push(stopped.elapsed());
        ask(answers.get_ref());
        old.signal(Signal::CONT);
        let mut said = String::new();
        // It may be reset, for what was asked is not read.
        let _ = answers.read_to_string(&mut said);
        // Signs of life are for nodes.
        assert_eq!(said, "", "it does not lead any more");
        old.wait_for("another controller has taken over");
        controllers.running[leader] = Some(old);
        assert_ne!(controllers.leader(), leader);
        blocks.verify(&controllers.addresses());
        led.push(leader);
    }
    // One that had been deposed leads again, with the state of those that led since.
    let others = (0..CONTROLLERS).filter(|place| *place != led[0]).collect::<Vec<_>>();
    others.iter().for_each(|place| controllers.running[*place].take().expect("it runs").kill());
    blocks.add();
    assert_eq!(controllers.leader(), led[0]);
    controllers.wait_for_nodes();
    blocks.verify(&controllers.addresses());
    println!("an allocation after a stop: {}", figures(allocated));
    println!("all nodes after a stop: {}", figures(registered));
}

/// As an init system ends one that stands still: it is told to end, and to go on.
#[test]
fn a_controller_that_is_told_to_end_while_another_takes_over_ends() {
    let _busy = busy();
    let Some(mut controllers) = Controllers::start() else { return };
    let mut blocks = Blocks::new(controllers.space(DEADLINE));
    let leader = controllers.leader();
    let old = controllers.running[leader].take().expect("it runs");
    old.signal(Signal::STOP);
    blocks.add();
    old.signal(Signal::TERM);
    old.signal(Signal::CONT);
    let ended = old.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_ne!(controllers.leader(), leader);
    blocks.verify(&controllers.addresses());
}
