//! What tenants may have and do, as their certificates say, and that no one has it at another's cost.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use yonder_client::{Operation, Outcome};
use yonder_fabric::lane::{CallError, Data, Lane, NodeAddress, NodeSession, OpenError, call};
use yonder_identity::{Authority, Credential, Role};
use yonder_node::{Node, NodeConfig, TenantUse};
use yonder_offload::Comparison;
use yonder_offload::chase::{self, Field, Lists, Order, Shape, Take};
use yonder_session::Protection;
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Header, Kind, Permission};

use crate::end_to_end::testbed::{NETWORKS, Network, PAGE, wait_for};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A node, and the authority that makes its tenants.
struct Cluster {
    folder: tempfile::TempDir,
    authority: Authority,
    node: Node,
}

impl Cluster {
    fn new(network: Network, change: impl Fn(&mut NodeConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = Authority::init(&folder.path().join("authority")).unwrap();
        let path = folder.path().join("node.pem");
        authority.add(Role::Node, "node", DAY).unwrap().write(&path).unwrap();
        let mut config = NodeConfig::new(vec![network.listen("127.0.0.1:0")], 4096 * PAGE);
        config.page_bytes = Some(PAGE);
        config.data_threads = NonZeroUsize::new(1);
        config.credential = Some(load(&path));
        change(&mut config);
        let node = wait_for(|| Node::start(config.clone()).ok());
        Self { folder, authority, node }
    }

    fn tenant(&mut self, name: &str, limits: &str) -> Arc<NodeSession> {
        let path = self.folder.path().join(format!("{name}.pem"));
        self.authority.add_limited(Role::Tenant, name, DAY, limits).unwrap().write(&path).unwrap();
        Arc::new(NodeSession::with(Some(load(&path)), Protection::Encrypted))
    }

    fn open(&self, session: &Arc<NodeSession>) -> Result<Lane, OpenError> {
        let at = NodeAddress::resolve(&self.node.addresses()[0].to_string()).unwrap().remove(0);
        Lane::open(&at, 16, session).map(|opened| opened.lane)
    }

    /// What the node counts of a tenant.
    fn usage(&self, name: &str) -> TenantUse {
        let found = self.node.tenants().into_iter().find(|(tenant, _)| tenant == name);
        found.map(|(_, usage)| usage).unwrap_or_default()
    }
}

fn load(path: &Path) -> Arc<Credential> {
    Arc::new(Credential::load(path).unwrap())
}

/// An address space and the right to it.
type Space = (u32, u128);

fn ask(lane: &mut Lane, kind: Kind, (pid, capability): Space, address: u64, data: &[u8]) -> Result<Header, CallError> {
    let (length, deadline) = (data.len() as u64, u64::MAX);
    let operation = Operation { kind, pid, capability, address, length, body: &[], deadline, token: 1 };
    call(lane, &operation, data).map(|answer| answer.header)
}

fn create(lane: &mut Lane) -> Result<Space, CallError> {
    ask(lane, Kind::CreateSpace, (0, 0), 0, &[]).map(|made| (made.pid, made.capability))
}

fn allocate(lane: &mut Lane, space: Space, pages: u64, backing: Backing) -> Result<u64, CallError> {
    let request = AllocateRequest { bytes: pages * PAGE, permission: Permission::ReadWrite, backing, from: 0, to: 0 };
    let mut arguments = [0; AllocateRequest::BYTES];
    request.write_to(&mut arguments);
    ask(lane, Kind::Allocate, space, 0, &arguments).map(|header| header.address)
}

/// What a write carries.
struct Bytes([u8; 64]);

impl Data for Bytes {
    fn copy_out(&mut self, _token: u64, offset: u64, into: &mut [u8]) {
        let from = offset as usize;
        into.copy_from_slice(&self.0[from..from + into.len()]);
    }

    fn copy_in(&mut self, _token: u64, _offset: u64, _bytes: &[u8]) {
        unreachable!("nothing is read");
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {}
}

/// Writes 64 bytes, and waits for the answer.
fn write(lane: &mut Lane, (pid, capability): Space, address: u64) -> Result<(), CallError> {
    let kind = Kind::Write;
    let operation = Operation { kind, pid, capability, address, length: 64, body: &[], deadline: u64::MAX, token: 1 };
    lane.submit(&operation, yonder_clock::now()).unwrap();
    let ended = wait_for(|| {
        lane.poll(yonder_clock::now(), &mut Bytes([7; 64]));
        lane.completion()
    });
    match ended.outcome {
        Outcome::Done => Ok(()),
        Outcome::Refused(code) => Err(CallError::Refused(code)),
        other => panic!("{other:?}"),
    }
}

const NO_ROOM: Result<(), CallError> = Err(CallError::Refused(ErrorCode::OutOfMemory));

#[test]
fn a_tenant_has_as_much_as_its_certificate_allows() {
    for network in NETWORKS {
        let mut cluster = Cluster::new(network, |_| {});
        let limited = cluster.tenant("small", "spaces=2,reserved=64KiB,memory=16KiB");
        let free = cluster.tenant("free", "");
        let (mut lane, mut other) = (cluster.open(&limited).unwrap(), cluster.open(&free).unwrap());
        let (space, second) = (create(&mut lane).unwrap(), create(&mut lane).unwrap());
        assert_eq!(create(&mut lane).map(drop), NO_ROOM, "a third space");
        // Reserved by both of its spaces together.
        let at = allocate(&mut lane, space, 12, Backing::OnDemand).unwrap();
        assert_eq!(allocate(&mut lane, second, 5, Backing::OnDemand).map(drop), NO_ROOM);
        let more = allocate(&mut lane, second, 4, Backing::OnDemand).unwrap();
        // Memory of four pages, whichever they are; what is written again needs no more.
        for page in 0..4 {
            assert_eq!(write(&mut lane, space, at + page * PAGE), Ok(()));
        }
        assert_eq!(write(&mut lane, second, more), NO_ROOM);
        assert_eq!(write(&mut lane, space, at), Ok(()));
        let usage = cluster.usage("small");
        assert_eq!((usage.spaces, usage.reserved_bytes, usage.memory_bytes), (2, 16 * PAGE, 4 * PAGE));
        // Others have what they like meanwhile.
        let theirs = create(&mut other).unwrap();
        let address = allocate(&mut other, theirs, 64, Backing::Now).unwrap();
        assert_eq!(write(&mut other, theirs, address), Ok(()));
        // What is given back may be had again.
        ask(&mut lane, Kind::DestroySpace, space, 0, &[]).unwrap();
        assert_eq!(cluster.usage("small"), TenantUse { spaces: 1, memory_bytes: 0, ..cluster.usage("small") });
        assert_eq!(allocate(&mut lane, second, 5, Backing::Now).map(drop), NO_ROOM, "more memory than it may have");
        allocate(&mut lane, second, 4, Backing::Now).unwrap();
        ask(&mut lane, Kind::DestroySpace, second, 0, &[]).unwrap();
        let usage = cluster.usage("small");
        assert_eq!((usage.spaces, usage.reserved_bytes, usage.memory_bytes), (0, 0, 0), "{network:?}");
    }
}

#[test]
fn limits_of_the_node_hold_where_a_certificate_says_nothing() {
    let mut cluster = Cluster::new(Network::Udp, |config| config.tenant_limits = "spaces=1".parse().unwrap());
    let (plain, own) = (cluster.tenant("plain", ""), cluster.tenant("own", "spaces=2"));
    let (mut plain, mut own) = (cluster.open(&plain).unwrap(), cluster.open(&own).unwrap());
    create(&mut plain).unwrap();
    assert_eq!(create(&mut plain).map(drop), NO_ROOM);
    create(&mut own).unwrap();
    create(&mut own).unwrap();
    assert_eq!(create(&mut own).map(drop), NO_ROOM);
}

#[test]
fn a_tenant_has_as_many_connections_as_it_may() {
    let mut cluster = Cluster::new(Network::Tcp, |_| {});
    let session = cluster.tenant("few", "connections=2");
    let (first, _second) = (cluster.open(&session).unwrap(), cluster.open(&session).unwrap());
    assert!(cluster.open(&session).is_err(), "a third connection");
    let free = cluster.tenant("free", "");
    cluster.open(&free).unwrap();
    drop(first);
    wait_for(|| cluster.open(&session).ok());
}

/// Also of those that other threads than its own execute, whose answers may be much longer than what asks for them.
#[test]
fn answers_are_charged_whoever_gives_them() {
    for network in NETWORKS {
        let mut cluster = Cluster::new(network, |_| {});
        let session = cluster.tenant("asks", "");
        let mut lane = cluster.open(&session).unwrap();
        let space = create(&mut lane).unwrap();
        let address = allocate(&mut lane, space, 16, Backing::Now).unwrap();
        let before = wait_for(|| {
            let usage = cluster.usage("asks");
            (usage.requests >= 2).then_some(usage)
        });
        let lists = Lists {
            next_offset: 0,
            child_offset: 0,
            key_offset: 8,
            levels: 1,
            order: Order::LittleEndian,
            comparison: Comparison::Equal,
            take: Take::Match,
            mask: &[],
        };
        // The first node has the key.
        let walk = chase::Request {
            start: address,
            shape: Shape::Lists(lists),
            key: &[0; 8],
            value: Field { offset: 0, bytes: 60 << 10 },
            steps_max: 1,
        };
        let called = ask(&mut lane, Kind::Call, space, chase::NUMBER, &walk.encode()).unwrap();
        // A stream's is charged when it is sent, which may be seen a moment later.
        let charged = wait_for(|| Some(cluster.usage("asks").bytes - before.bytes).filter(|bytes| *bytes >= 60 << 10));
        assert!(charged < 70 << 10, "{charged} bytes for {called:?}");
    }
}

/// Writes one after the other until it is told to stop; how many.
fn write_until(lane: &mut Lane, space: Space, address: u64, stop: &AtomicBool) -> u64 {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        write(lane, space, address).unwrap();
        done += 1;
    }
    done
}

#[test]
fn a_tenant_is_as_fast_as_it_may_and_others_as_they_can() {
    const RATE: u64 = 500;
    for network in NETWORKS {
        let mut cluster = Cluster::new(network, |_| {});
        let sessions = [cluster.tenant("slow", "requests=500"), cluster.tenant("quick", "")];
        let lanes = sessions.each_ref().map(|session| {
            let mut lane = cluster.open(session).unwrap();
            let space = create(&mut lane).unwrap();
            let address = allocate(&mut lane, space, 1, Backing::Now).unwrap();
            (lane, space, address)
        });
        let (stop, counts, began) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2], Instant::now());
        std::thread::scope(|scope| {
            for ((mut lane, space, address), count) in lanes.into_iter().zip(&counts) {
                let stop = &stop;
                scope.spawn(move || count.store(write_until(&mut lane, space, address, stop), Ordering::Relaxed));
            }
            // The quick one ends it, after at least a second.
            wait_for(|| {
                (began.elapsed() > Duration::from_secs(1) && cluster.usage("quick").requests > 3000).then_some(())
            });
            stop.store(true, Ordering::Relaxed);
        });
        let took = began.elapsed().as_secs_f64();
        let [slow, quick] = counts.map(AtomicU64::into_inner);
        let most = (RATE as f64 * (took + 0.2)) as u64 + 16;
        assert!(slow <= most, "{network:?}: {slow} writes in {took} s, {RATE} a second are allowed");
        assert!(slow >= most / 8, "{network:?}: {slow} writes in {took} s, though {RATE} a second are allowed");
        assert!(quick > 3 * slow, "{network:?}: {quick} writes beside {slow}");
    }
}

/// The lane that was there first once had every turn of its tenant, and the lease of the others ended.
#[test]
fn lanes_of_a_tenant_at_its_limit_take_turns() {
    const ALL: u64 = 60;
    let mut cluster = Cluster::new(Network::Tcp, |_| {});
    let session = cluster.tenant("slow", "requests=100");
    let mut first = cluster.open(&session).unwrap();
    let space = create(&mut first).unwrap();
    let address = allocate(&mut first, space, 1, Backing::Now).unwrap();
    let lanes = [first, cluster.open(&session).unwrap(), cluster.open(&session).unwrap()];
    let counts = [const { AtomicU64::new(0) }; 3];
    let done = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    std::thread::scope(|scope| {
        for (mut lane, count) in lanes.into_iter().zip(&counts) {
            let done = &done;
            scope.spawn(move || {
                while done() < ALL {
                    write(&mut lane, space, address).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let counts = counts.map(AtomicU64::into_inner);
    assert!(counts.iter().all(|count| *count >= ALL / 6), "{counts:?}");
}

/// Leases are renewed, and memory is given back, however much a tenant owes for other work.
#[test]
fn a_tenant_that_owes_work_keeps_its_address_spaces() {
    let mut cluster = Cluster::new(Network::Udp, |_| {});
    let session = cluster.tenant("busy", "work=1us");
    let mut lane = cluster.open(&session).unwrap();
    let space = create(&mut lane).unwrap();
    // It owes ten seconds, which is as much as it can, as soon as it is charged: after the answer has left.
    wait_for(|| (cluster.usage("busy").work_ns > 1000).then_some(()));
    let began = Instant::now();
    for _ in 0..5 {
        ask(&mut lane, Kind::Ping, space, 0, &[]).unwrap();
    }
    ask(&mut lane, Kind::DestroySpace, space, 0, &[]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "it waited until its debt was paid");
}
