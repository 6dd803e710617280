//! The client library on the nodes of a controller: one address space on several of them.

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use yonder::clib::{ClibError, Permission, Process, ProcessConfig, Thread};
use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig};
use yonder_placement::{Config, SpaceView};

/// How long a test waits for something before it fails.
const TIMEOUT: Duration = Duration::from_secs(30);
const PAGE: u64 = 64 << 10;
const REGION: u64 = 1 << 20;

/// A controller and nodes with room for 16 regions each.
struct Scene {
    controller: ControllerServer,
    nodes: Vec<Node>,
}

impl Scene {
    fn new(nodes: usize) -> Self {
        let config = Config { region_bytes: REGION, lease: 900_000_000, ..Config::default() };
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let controller = ControllerServer::start(listen, config, Box::new(MemoryStore::default())).unwrap();
        let mut scene = Self { controller, nodes: Vec::new() };
        (0..nodes).for_each(|_| scene.add_node());
        scene
    }

    fn add_node(&mut self) {
        let addresses = self.controller.address().to_string();
        let listen = vec![Listen::Udp("127.0.0.1:0".to_owned())];
        let node = Node::start(NodeConfig {
            page_bytes: Some(PAGE),
            data_threads: NonZeroUsize::new(1),
            controller: Some(ControllerConfig::new(addresses, REGION)),
            ..NodeConfig::new(listen, 16 * REGION)
        });
        self.nodes.push(node.unwrap());
    }

    fn client(&self) -> ControllerClient {
        ControllerClient::new(&self.controller.address().to_string(), TIMEOUT)
    }

    fn process(&self) -> Process {
        self.process_with(ProcessConfig::default())
    }

    fn process_with(&self, config: ProcessConfig) -> Process {
        Process::create_with(&format!("controller://{}", self.controller.address()), config).unwrap()
    }

    /// Looks at the only address space until it is as it should be.
    fn until(&self, what: &str, is_right: impl Fn(&SpaceView) -> bool) -> SpaceView {
        let (mut client, end) = (self.client(), Instant::now() + TIMEOUT);
        loop {
            let spaces = client.spaces().unwrap();
            if let Some(view) = spaces.iter().find(|view| is_right(view)) {
                return view.clone();
            }
            assert!(Instant::now() < end, "waited in vain until {what}: {spaces:?}");
            std::thread::yield_now();
        }
    }
}

/// The bytes from `address` on, no two words of which are the same.
fn content(address: u64, length: u64) -> Vec<u8> {
    (address..address + length)
        .map(|at| ((at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (at % 8))) as u8)
        .collect()
}

fn check(thread: &mut Thread, address: u64, length: u64) {
    let mut back = vec![0; length as usize];
    thread.rread(address, &mut back).unwrap();
    assert!(back == content(address, length), "{length} bytes at {address:x} are not what was written");
}

#[test]
fn one_space_is_on_several_nodes_by_itself() {
    let scene = Scene::new(2);
    let process = scene.process();
    let mut thread: Thread = process.thread().unwrap();
    let mut parts: Vec<u64> = (0..5).map(|_| thread.ralloc(REGION, Permission::ReadWrite).unwrap()).collect();
    let spaces = scene.client().spaces().unwrap();
    let view = &spaces[0];
    assert_eq!((spaces.len(), view.pid.0, view.regions), (1, process.own_ticket().pid(), 5));
    assert_eq!((view.nodes.len(), view.allocated_bytes), (2, 5 * REGION), "{view:?}");
    let mut regions: Vec<u64> = scene.client().nodes().unwrap().iter().map(|node| node.regions).collect();
    regions.sort_unstable();
    assert_eq!(regions, [2, 3], "both nodes have their share");
    // One allocation on both nodes, and everything through one thread.
    let long = 3 * REGION + PAGE;
    parts.push(thread.ralloc(long, Permission::ReadWrite).unwrap());
    let bytes = |part: usize| if part == 5 { long } else { REGION };
    for (part, address) in parts.iter().enumerate() {
        thread.rwrite(*address, &content(*address, bytes(part))).unwrap();
    }
    for (part, address) in parts.iter().enumerate() {
        check(&mut thread, *address, bytes(part));
    }
    // Across the boundary of two regions, asynchronously too.
    let at = parts[5] + REGION - 3000;
    let written = thread.rwrite_async(at, vec![7; 6000]).unwrap();
    let read = thread.rread_async(at, vec![0; 6000]).unwrap();
    thread.rrelease();
    thread.rwait(written).result.unwrap();
    assert_eq!(thread.rwait(read).buffer, [7; 6000]);
    for address in parts {
        thread.rfree(address).unwrap();
    }
    assert_eq!(scene.nodes.iter().map(|node| node.stats().allocated_bytes).sum::<u64>(), 0);
}

#[test]
fn allocations_on_several_nodes_are_asynchronous() {
    let scene = Scene::new(2);
    let process = scene.process();
    let mut thread: Thread = process.thread().unwrap();
    let pending: Vec<_> = (0..6).map(|_| thread.ralloc_async(REGION, Permission::ReadWrite).unwrap()).collect();
    assert_eq!(thread.pending(), 6);
    thread.rrelease();
    let addresses = pending.into_iter().map(|pending| thread.rpoll(pending).expect("rrelease has waited").unwrap());
    let addresses: Vec<u64> = addresses.collect();
    for address in &addresses {
        thread.rwrite(*address, &content(*address, REGION)).unwrap();
    }
    addresses.iter().for_each(|address| check(&mut thread, *address, REGION));
    assert_eq!(scene.until("it is there", |_| true).nodes.len(), 2);
    // Longer than a region: done at once, with a result like others.
    let pending = thread.ralloc_async(2 * REGION + 1, Permission::ReadWrite).unwrap();
    let long = thread.rpoll(pending).expect("it was done at once").unwrap();
    thread.rwrite(long, &content(long, 2 * REGION + 1)).unwrap();
    check(&mut thread, long, 2 * REGION + 1);
    let freeing: Vec<_> = addresses.iter().chain([&long]).map(|at| thread.rfree_async(*at).unwrap()).collect();
    for pending in freeing {
        thread.rwait(pending).unwrap();
    }
    for address in addresses.into_iter().chain([long, long + REGION, long + 2 * REGION]) {
        assert!(matches!(thread.rread(address, &mut [0]), Err(ClibError::BadRange(_))), "{address:x} was freed");
    }
    let freeing = thread.rfree_async(long).unwrap();
    assert!(matches!(thread.rwait(freeing), Err(ClibError::BadRange(_))), "it was freed before");
    // The controller refuses at once.
    assert!(matches!(thread.ralloc_async(60 * REGION, Permission::ReadWrite), Err(ClibError::OutOfMemory)));
    assert!(matches!(thread.ralloc_async(0, Permission::ReadWrite), Err(ClibError::BadRange(_))));
    assert!(matches!(thread.rfree_async(500 * REGION), Err(ClibError::BadRange(_))), "nobody has that region");
    assert_eq!(thread.pending(), 0);
}

#[test]
fn what_has_no_place_among_the_pending_operations_is_not_done_at_once_either() {
    let scene = Scene::new(2);
    let process = scene.process_with(ProcessConfig { pending_max: 1, ..ProcessConfig::default() });
    let mut thread: Thread = process.thread().unwrap();
    let long = thread.ralloc(2 * REGION, Permission::ReadWrite).unwrap();
    let boundary = long + REGION - 1;
    let pending = thread.rread_async(long, vec![0; 1]).unwrap();
    let allocated = || scene.nodes.iter().map(|node| node.stats().allocated_bytes).sum::<u64>();
    assert!(matches!(thread.ralloc_async(2 * REGION, Permission::ReadWrite), Err(ClibError::TooManyPending(1))));
    assert!(matches!(thread.rwrite_async(boundary, vec![1; 2]), Err(ClibError::TooManyPending(1))));
    assert!(matches!(thread.rfree_async(long), Err(ClibError::TooManyPending(1))));
    assert_eq!(allocated(), 2 * REGION);
    let mut back = [9; 2];
    thread.rread(boundary, &mut back).unwrap();
    assert_eq!(back, [0; 2]);
    thread.rwait(pending).result.unwrap();
    let freeing = thread.rfree_async(long).unwrap();
    thread.rwait(freeing).unwrap();
    assert_eq!(allocated(), 0);
}

#[test]
fn an_asynchronous_allocation_goes_where_there_is_room() {
    let scene = Scene::new(2);
    let process = scene.process();
    let mut thread: Thread = process.thread().unwrap();
    let pages: Vec<u64> = (0..16).map(|_| thread.ralloc(PAGE, Permission::ReadWrite).unwrap()).collect();
    let first = pages[0] / REGION;
    assert!(pages.iter().all(|page| page / REGION == first), "they fill one region");
    // Half of the region is free, but nowhere two pages in a row; the controller cannot know.
    for page in pages.iter().filter(|page| (*page / PAGE).is_multiple_of(2)) {
        thread.rfree(*page).unwrap();
    }
    scene.until("half of it is free", |view| view.allocated_bytes == REGION / 2);
    let pending: Vec<_> = (0..2).map(|_| thread.ralloc_async(2 * PAGE, Permission::ReadWrite).unwrap()).collect();
    for pending in pending {
        let address = thread.rwait(pending).expect("another region has room");
        assert_ne!(address / REGION, first);
        thread.rwrite(address, &content(address, 2 * PAGE)).unwrap();
        check(&mut thread, address, 2 * PAGE);
    }
    // Each has tried the region that is full of holes once. What was promised counts until the second report, there and
    // where it was allocated, and a report that comes between knows of the allocation already.
    let view = scene.until("it is there", |_| true);
    assert!(view.allocated_bytes <= REGION / 2 + 2 * (2 + 2 + 2) * PAGE, "{view:?}");
    let is_forgotten = |view: &SpaceView| view.allocated_bytes == REGION / 2 + 2 * 2 * PAGE && view.regions == 2;
    scene.until("the promises are forgotten", is_forgotten);
}

#[test]
fn asynchronous_releases_follow_what_has_moved() {
    let mut scene = Scene::new(1);
    let process = scene.process();
    let mut thread: Thread = process.thread().unwrap();
    let parts: Vec<u64> = (0..3).map(|_| thread.ralloc(REGION, Permission::ReadWrite).unwrap()).collect();
    for part in &parts {
        thread.rwrite(*part, &content(*part, PAGE)).unwrap();
    }
    scene.add_node();
    let mut client = scene.client();
    client.drain(&scene.nodes[0].addresses()[0].to_string(), TIMEOUT).unwrap();
    // The program has not heard of it, and the first node says so.
    let freeing: Vec<_> = parts.iter().map(|part| thread.rfree_async(*part).unwrap()).collect();
    let reading: Vec<_> = parts.iter().map(|part| thread.rread_async(*part, vec![0; 1]).unwrap()).collect();
    for pending in freeing {
        thread.rwait(pending).unwrap();
    }
    for pending in reading {
        assert!(matches!(thread.rwait(pending).result, Err(ClibError::BadRange(_))), "it was freed before");
    }
    assert_eq!(scene.nodes[1].stats().allocated_bytes, 0);
}
