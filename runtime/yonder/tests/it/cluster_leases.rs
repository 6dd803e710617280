//! How long a controller keeps an address space: while a program that owns it is there, and its lease longer.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZeroUsize;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use yonder::clib::{ClibError, Permission, Process, ProcessConfig, Rights, Thread, Ticket};
use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig};
use yonder_placement::Config;

/// Long enough that a busy machine does not miss all renewals.
const LEASE: Duration = Duration::from_secs(2);
/// How long a test waits for something before it fails.
const TIMEOUT: Duration = Duration::from_secs(30);
const PAGE: u64 = 64 << 10;
const REGION: u64 = 1 << 20;
/// Says to the program that is started as the other one where its controller is.
const URL: &str = "YONDER_TEST_CONTROLLER";
/// What a line of the other program begins with that is for this one.
const SAYS: &str = "ticket ";

/// A controller and two nodes.
struct Scene {
    controller: ControllerServer,
    nodes: [Node; 2],
}

impl Scene {
    fn new(config: Config) -> Self {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config { region_bytes: REGION, space_lease_ms_min: 1000, ..config };
        let controller = ControllerServer::start(listen, config, Box::new(MemoryStore::default())).unwrap();
        let nodes = [(); 2].map(|()| {
            let addresses = controller.address().to_string();
            Node::start(NodeConfig {
                page_bytes: Some(PAGE),
                data_threads: NonZeroUsize::new(1),
                controller: Some(ControllerConfig::new(addresses, REGION)),
                ..NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 16 * REGION)
            })
            .unwrap()
        });
        Self { controller, nodes }
    }

    fn url(&self) -> String {
        format!("controller://{}", self.controller.address())
    }

    fn allocated(&self) -> u64 {
        self.nodes.iter().map(|node| node.stats().allocated_bytes).sum()
    }

    /// The numbers of all address spaces.
    fn spaces(&self) -> Vec<u32> {
        let mut client = ControllerClient::new(&self.controller.address().to_string(), TIMEOUT);
        client.spaces().unwrap().iter().map(|view| view.pid.0).collect()
    }
}

/// A program that is killed when it is dropped.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes an address space with `regions` regions of memory.
fn make(url: &str, regions: u64) -> (Process, Thread, u64) {
    let process = Process::create_with(url, ProcessConfig { lease: LEASE, ..ProcessConfig::default() }).unwrap();
    let mut thread: Thread = process.thread().unwrap();
    let address = thread.ralloc(regions * REGION, Permission::ReadWrite).unwrap();
    thread.rwrite(address, &[5]).unwrap();
    (process, thread, address)
}

/// What the program does that is to be killed: it lends one address space, and shares the rights to another.
fn wait_to_be_killed(url: &str) {
    let (lent, _lents, at) = make(url, 3);
    let (shared, _shareds, _) = make(url, 1);
    println!("\n{SAYS}{} {at} {}", lent.ticket(Rights::ReadWrite).unwrap(), shared.ticket(Rights::Owner).unwrap());
    // It ends by itself when the test that has started it has ended.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn what_a_killed_program_had_is_free_at_the_nodes_when_its_lease_is_over() {
    if let Ok(url) = std::env::var(URL) {
        return wait_to_be_killed(&url);
    }
    let scene = Scene::new(Config::default());
    let url = scene.url();
    let (kept, mut keepers, kept_at) = make(&url, 1);
    let mut program = Command::new(std::env::current_exe().unwrap());
    let name = "cluster_leases::what_a_killed_program_had_is_free_at_the_nodes_when_its_lease_is_over";
    program.args([name, "--exact", "--nocapture"]).env(URL, &url).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut killed = Killed(program.spawn().unwrap());
    let lines = BufReader::new(killed.0.stdout.take().unwrap()).lines();
    let said = lines.map(Result::unwrap).find_map(|line| Some(line.strip_prefix(SAYS)?.to_owned()));
    let said = said.expect("the program has made its address spaces");
    let words: Vec<&str> = said.split(' ').collect();
    let [lent, shared]: [Ticket; 2] = [words[0], words[2]].map(|word| word.parse().unwrap());
    let lent_at: u64 = words[1].parse().unwrap();
    let (guest, owner) = (Process::open(&url, lent).unwrap(), Process::open(&url, shared).unwrap());
    let mut guests: Thread = guest.thread().unwrap();
    let mut back = [0];
    guests.rread(lent_at, &mut back).unwrap();
    assert_eq!((back, scene.allocated()), ([5], 5 * REGION));
    assert_eq!(scene.spaces().len(), 3);
    killed.kill();
    let end = Instant::now() + TIMEOUT;
    while scene.spaces().contains(&lent.pid()) || scene.allocated() > 2 * REGION {
        assert!(Instant::now() < end, "{} bytes of a program that was killed are kept", scene.allocated() - 2 * REGION);
        std::thread::yield_now();
    }
    // A program that uses it without an owner's right is told so, and so is one that comes later.
    assert!(matches!(guests.rread(lent_at, &mut back), Err(ClibError::Lost)));
    assert!(matches!(Process::open(&url, lent).map(drop), Err(ClibError::Lost)));
    // What was made before, with the same lease, is there, and what another owner has a ticket of.
    assert_eq!(scene.spaces(), [kept.own_ticket().pid(), shared.pid()]);
    keepers.rread(kept_at, &mut back).expect("the lease is renewed");
    drop(kept);
    assert_eq!(scene.spaces(), [shared.pid()], "it ends at once with its process");
    drop(owner);
    let end = Instant::now() + TIMEOUT;
    while !scene.spaces().is_empty() {
        assert!(Instant::now() < end, "it is kept although no owner is left");
        std::thread::yield_now();
    }
}

#[test]
fn a_program_that_was_idle_asks_its_controller_again() {
    let scene = Scene::new(Config { peer_idle_max: 300_000_000, ..Config::default() });
    // Its lease is renewed so seldom that both its connections are idle.
    let process = Process::create(&scene.url()).unwrap();
    let mut thread: Thread = process.thread().unwrap();
    thread.ralloc(PAGE, Permission::ReadWrite).unwrap();
    // One that came later, and is cut off no earlier.
    let mut other = TcpStream::connect(scene.controller.address()).unwrap();
    other.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    let address = thread.ralloc(2 * REGION, Permission::ReadWrite).unwrap();
    thread.rwrite(address, &[5]).unwrap();
    drop(process);
    assert!(scene.spaces().is_empty());
}
