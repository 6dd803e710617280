//! The client library against a real node, over every transport.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yonder::clib::offload::{Comparison, chase, kv};
use yonder::clib::{Backing, ClibError, Pending, Permission, Process, ProcessConfig, Rights, Thread, Ticket};
use yonder_node::{Listen, Node, NodeConfig};

const MIB: usize = 1 << 20;

struct Scene {
    node: Node,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let loopback = || "127.0.0.1:0".to_owned();
        let listen =
            vec![Listen::Udp(loopback()), Listen::Tcp(loopback()), Listen::Shm(folder.path().join("node.sock"))];
        let config = NodeConfig { page_bytes: Some(64 << 10), ..NodeConfig::new(listen, 64 * MIB as u64) };
        Self { node: Node::start(config).unwrap(), _folder: folder }
    }

    fn urls(&self) -> Vec<String> {
        self.node.addresses().iter().map(ToString::to_string).collect()
    }

    fn udp(&self) -> String {
        self.node.addresses()[0].to_string()
    }
}

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn bytes_of_any_length_at_any_address_are_what_was_written() {
    let scene = Scene::new();
    for (seed, url) in scene.urls().iter().enumerate() {
        let process = Process::create(url).unwrap();
        let mut thread = process.thread().unwrap();
        let address = thread.ralloc(2 * MIB as u64, Permission::ReadWrite).unwrap();
        let (mut model, mut dice) = (vec![0u8; 2 * MIB], Dice(77 + seed as u64));
        let mut back = vec![1; 2 * MIB];
        thread.rread(address, &mut back).unwrap();
        assert!(back == model, "memory that was never written is zeros");
        for turn in 0..200 {
            let length = 1 + dice.below([8, 5000, 300_000][turn % 3]);
            let at = dice.below(2 * MIB - length);
            if dice.below(2) == 0 {
                let bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
                thread.rwrite(address + at as u64, &bytes).unwrap();
                model[at..at + length].copy_from_slice(&bytes);
            } else {
                thread.rread(address + at as u64, &mut back[..length]).unwrap();
                assert!(back[..length] == model[at..at + length], "{url}: {length} bytes at {at}");
            }
        }
        thread.rfree(address).unwrap();
        assert!(matches!(thread.rread(address, &mut back[..1]), Err(ClibError::BadRange(_))));
    }
}

#[test]
fn asynchronous_operations_on_one_page_keep_their_order() {
    let scene = Scene::new();
    for url in scene.urls() {
        let process = Process::create(&url).unwrap();
        let mut thread: Thread = process.thread().unwrap();
        let address = thread.ralloc(MIB as u64, Permission::ReadWrite).unwrap();
        let mut dice = Dice(5);
        let (mut model, mut reads) = (vec![0u8; 8], Vec::new());
        let mut writes: Vec<Pending<Vec<u8>>> = Vec::new();
        for turn in 1..=120u8 {
            let page = dice.below(8);
            let at = address + page as u64 * 4096;
            if dice.below(2) == 0 {
                writes.push(thread.rwrite_async(at, vec![turn; 4096]).unwrap());
                model[page] = turn;
            } else {
                reads.push((thread.rread_async(at, vec![0; 4096]).unwrap(), model[page]));
            }
        }
        thread.rrelease();
        for (pending, expected) in reads {
            let completed = thread.rpoll(pending).expect("rrelease has waited for it");
            completed.result.unwrap();
            assert_eq!(completed.buffer, vec![expected; 4096]);
        }
        for pending in writes {
            thread.rwait(pending).result.unwrap();
        }
        assert_eq!(thread.pending(), 0);
    }
}

#[test]
fn too_many_pending_operations_are_refused_and_nothing_is_lost() {
    let scene = Scene::new();
    let config = ProcessConfig { pending_max: 4, ..ProcessConfig::default() };
    let process = Process::create_with(&scene.udp(), config).unwrap();
    let mut thread: Thread = process.thread().unwrap();
    let address = thread.ralloc(MIB as u64, Permission::ReadWrite).unwrap();
    let pending: Vec<_> = (0..4).map(|page| thread.rwrite_async(address + page * 4096, vec![9; 10]).unwrap()).collect();
    assert!(matches!(thread.rwrite_async(address, vec![1]), Err(ClibError::TooManyPending(4))));
    for pending in pending {
        thread.rwait(pending).result.unwrap();
    }
    let again = thread.rwrite_async(address, vec![1]).expect("there is room again");
    thread.rwait(again).result.unwrap();
}

#[test]
fn memory_is_allocated_used_and_freed_without_waiting() {
    const PAGE: u64 = 64 << 10;
    let scene = Scene::new();
    for url in scene.urls() {
        let process = Process::create(&url).unwrap();
        let mut thread: Thread = process.thread().unwrap();
        let before = thread.node_status().unwrap().allocated_bytes;
        let allocating: Vec<_> = (0..20).map(|_| thread.ralloc_async(PAGE, Permission::ReadWrite).unwrap()).collect();
        thread.rrelease();
        let polled = allocating.into_iter().map(|pending| thread.rpoll(pending).expect("rrelease has waited").unwrap());
        let addresses: Vec<u64> = polled.collect();
        assert!(addresses.iter().enumerate().all(|(at, address)| !addresses[..at].contains(address)), "{addresses:x?}");
        assert_eq!(thread.node_status().unwrap().allocated_bytes, before + 20 * PAGE);
        // Each is written, read, freed and read once more, and nobody waits in between.
        let mut begun = Vec::new();
        for (number, address) in addresses.into_iter().enumerate() {
            let written = thread.rwrite_async(address, vec![number as u8 + 1; 5000]).unwrap();
            let read = thread.rread_async(address, vec![0; 5000]).unwrap();
            let freed = thread.rfree_async(address).unwrap();
            let again = thread.rread_async(address, vec![0; 1]).unwrap();
            begun.push((number, written, read, freed, again));
        }
        for (number, written, read, freed, again) in begun {
            thread.rwait(written).result.unwrap();
            let read = thread.rwait(read);
            read.result.unwrap();
            assert_eq!(read.buffer, vec![number as u8 + 1; 5000]);
            thread.rwait(freed).unwrap();
            assert!(matches!(thread.rwait(again).result, Err(ClibError::BadRange(_))), "it was freed before");
        }
        assert_eq!((thread.pending(), thread.node_status().unwrap().allocated_bytes), (0, before));
    }
}

#[test]
fn what_a_node_refuses_is_the_result_of_the_asynchronous_call() {
    let scene = Scene::new();
    for url in scene.urls() {
        let owner = Process::create(&url).unwrap();
        let mut thread: Thread = owner.thread().unwrap();
        let much = thread.ralloc_with_async(65 * MIB as u64, Permission::ReadWrite, Backing::Now).unwrap();
        let nothing = thread.ralloc_async(0, Permission::ReadWrite).unwrap();
        let sealed = thread.ralloc_async(1, Permission::Read).unwrap();
        assert!(matches!(thread.rwait(much), Err(ClibError::OutOfMemory)));
        assert!(matches!(thread.rwait(nothing), Err(ClibError::BadRange(_))));
        let sealed = thread.rwait(sealed).unwrap();
        assert!(matches!(thread.rwrite(sealed, &[1]), Err(ClibError::NotAllowed(_))));
        // Addresses of somebody else, of nobody, and within an allocation.
        let other = Process::create(&url).unwrap();
        let (mut others, large) = (other.thread().unwrap(), thread.ralloc(MIB as u64, Permission::ReadWrite).unwrap());
        let foreign = (0..).map(|_| others.ralloc(MIB as u64, Permission::ReadWrite).unwrap());
        let foreign = foreign.take(4).find(|address| ![sealed, large].contains(address)).expect("addresses differ");
        others.rwrite(foreign, b"mine").unwrap();
        for address in [foreign, 1 << 45, large + (64 << 10)] {
            let freeing = thread.rfree_async(address).unwrap();
            assert!(matches!(thread.rwait(freeing), Err(ClibError::BadRange(_))), "{address:x}");
        }
        let mut back = [0; 4];
        others.rread(foreign, &mut back).unwrap();
        assert_eq!(&back, b"mine");
        let reader = Process::open(&url, owner.ticket(Rights::Read).unwrap()).unwrap();
        let mut reading: Thread = reader.thread().unwrap();
        let (allocating, freeing) = (reading.ralloc_async(1, Permission::Read), reading.rfree_async(large));
        assert!(matches!(reading.rwait(allocating.unwrap()), Err(ClibError::NotAllowed(_))));
        assert!(matches!(reading.rwait(freeing.unwrap()), Err(ClibError::NotAllowed(_))));
        thread.rwrite(large, &[1]).expect("nobody has freed it");
    }
}

#[test]
fn an_asynchronous_allocation_finds_what_was_freed_before_a_fence() {
    let scene = Scene::new();
    let process = Process::create(&scene.udp()).unwrap();
    let mut thread: Thread = process.thread().unwrap();
    let all = |thread: &mut Thread| thread.ralloc_with_async(64 * MIB as u64, Permission::ReadWrite, Backing::Now);
    let pending = all(&mut thread).unwrap();
    let mut address = thread.rwait(pending).unwrap();
    for _ in 0..5 {
        let freeing = thread.rfree_async(address).unwrap();
        thread.rfence().unwrap();
        let allocating = all(&mut thread).unwrap();
        address = thread.rwait(allocating).expect("all of it was freed");
        thread.rwait(freeing).unwrap();
    }
}

#[test]
fn pending_allocations_that_are_dropped_keep_their_place_and_their_memory_until_the_end() {
    const PAGE: u64 = 64 << 10;
    let scene = Scene::new();
    for url in scene.urls() {
        let config = ProcessConfig { pending_max: 3, ..ProcessConfig::default() };
        let process = Process::create_with(&url, config).unwrap();
        let mut thread: Thread = process.thread().unwrap();
        let before = scene.node.stats().allocated_bytes;
        let address = thread.ralloc(PAGE, Permission::ReadWrite).unwrap();
        drop(thread.ralloc_async(2 * PAGE, Permission::ReadWrite).unwrap());
        drop(thread.rfree_async(address).unwrap());
        thread.rrelease();
        assert_eq!((thread.pending(), scene.node.stats().allocated_bytes), (2, before + 2 * PAGE));
        assert!(matches!(thread.rread(address, &mut [0]), Err(ClibError::BadRange(_))), "it was freed all the same");
        let last = thread.ralloc_async(PAGE, Permission::ReadWrite).unwrap();
        assert!(matches!(thread.ralloc_async(PAGE, Permission::ReadWrite), Err(ClibError::TooManyPending(3))));
        assert!(matches!(thread.rfree_async(address), Err(ClibError::TooManyPending(3))));
        let address = thread.rwait(last).unwrap();
        thread.rwrite(address, b"used").unwrap();
        assert_eq!(scene.node.stats().allocated_bytes, before + 3 * PAGE, "what was refused has allocated nothing");
        // A thread may go with allocations under way, too.
        let _never = thread.ralloc_async(PAGE, Permission::ReadWrite).unwrap();
        drop((thread, process));
        assert_eq!(scene.node.stats().allocated_bytes, before);
    }
}

#[test]
fn a_lock_admits_one_at_a_time_among_processes() {
    const TURNS: u64 = 150;
    let scene = Scene::new();
    let owner = Process::create(&scene.udp()).unwrap();
    let mut thread = owner.thread().unwrap();
    let lock = thread.ralloc(4096, Permission::ReadWrite).unwrap();
    let ticket = owner.ticket(Rights::ReadWrite).unwrap();
    let inside = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for url in scene.urls() {
            let inside = &inside;
            scope.spawn(move || {
                let process = Process::open(&url, ticket).unwrap();
                let mut thread = process.thread().unwrap();
                for _ in 0..TURNS {
                    thread.rlock(lock).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    // A read and a write that the lock alone protects.
                    let mut counter = [0; 8];
                    thread.rread(lock + 8, &mut counter).unwrap();
                    let next = u64::from_le_bytes(counter) + 1;
                    let written = thread.rwrite_async(lock + 8, next.to_le_bytes().to_vec()).unwrap();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    thread.runlock(lock).unwrap();
                    thread.rwait(written).result.unwrap();
                    thread.fetch_add(lock + 16, 2).unwrap();
                }
            });
        }
    });
    let mut words = [0; 16];
    thread.rread(lock + 8, &mut words).unwrap();
    assert_eq!(words[..8], (3 * TURNS).to_le_bytes());
    assert_eq!(words[8..], (6 * TURNS).to_le_bytes());
    assert_eq!(thread.compare_and_swap(lock + 16, 6 * TURNS, 5).unwrap(), 6 * TURNS);
    assert_eq!(thread.compare_and_swap(lock + 16, 6 * TURNS, 7).unwrap(), 5);
    assert_eq!(thread.test_and_set(lock + 16).unwrap(), 5);
    assert!(matches!(thread.fetch_add(lock + 4, 1), Err(ClibError::BadRange(_))), "a word is aligned");
}

#[test]
fn rights_are_what_the_ticket_says() {
    let scene = Scene::new();
    let owner = Process::create(&scene.udp()).unwrap();
    let mut thread = owner.thread().unwrap();
    let shared = thread.ralloc(4096, Permission::ReadWrite).unwrap();
    let sealed = thread.ralloc(4096, Permission::Read).unwrap();
    thread.rwrite(shared, b"shared").unwrap();
    assert!(matches!(thread.rwrite(sealed, b"x"), Err(ClibError::NotAllowed(_))), "the memory is read-only");
    let ticket = owner.ticket(Rights::Read).unwrap();
    let text = ticket.to_string();
    let reader = Process::open(&scene.udp(), text.parse().unwrap()).unwrap();
    let mut reading = reader.thread().unwrap();
    let mut back = [0; 6];
    reading.rread(shared, &mut back).unwrap();
    assert_eq!(&back, b"shared");
    assert!(matches!(reading.rwrite(shared, b"x"), Err(ClibError::NotAllowed(_))));
    assert!(matches!(reading.fetch_add(shared, 1), Err(ClibError::NotAllowed(_))));
    assert!(matches!(reading.ralloc(1, Permission::Read), Err(ClibError::NotAllowed(_))));
    assert!(matches!(reading.rfree(shared), Err(ClibError::NotAllowed(_))));
    assert!(matches!(reader.ticket(Rights::Owner), Err(ClibError::NotAllowed(_))));
    // The last digit of the proof, or of the number, is another one.
    let changed = |text: &str, at: usize| -> Ticket {
        let digit = if &text[at..=at] == "0" { "1" } else { "0" };
        format!("{}{digit}{}", &text[..at], &text[at + 1..]).parse().unwrap()
    };
    let forged = changed(&text, text.len() - 1);
    assert!(matches!(Process::open(&scene.udp(), forged), Err(ClibError::Lost)));
    let foreign = changed(&text, text.find('-').unwrap() - 1);
    assert!(matches!(Process::open(&scene.udp(), foreign), Err(ClibError::Lost)));
}

#[test]
fn offloads_compute_at_the_node_and_keep_callers_apart() {
    let scene = Scene::new();
    let get = |thread: &mut Thread, key: &[u8]| {
        let answer = thread.call(kv::NUMBER, &kv::Request::Get { key }.encode()).unwrap();
        match kv::Answer::decode(&answer).unwrap() {
            kv::Answer::Value(value) => Some(value.to_vec()),
            kv::Answer::Absent => None,
            other => panic!("{other:?}"),
        }
    };
    for url in scene.urls() {
        let (process, other) = (Process::create(&url).unwrap(), Process::create(&url).unwrap());
        let (mut thread, mut others) = (process.thread().unwrap(), other.thread().unwrap());
        for number in 0..50u32 {
            let (key, value) = (number.to_le_bytes(), vec![number as u8; 1 + 700 * number as usize]);
            let put = kv::Request::Put { key: &key, value: &value, mode: kv::PutMode::Always };
            thread.call(kv::NUMBER, &put.encode()).unwrap();
        }
        for number in 0..50u32 {
            let value = vec![number as u8; 1 + 700 * number as usize];
            assert_eq!(get(&mut thread, &number.to_le_bytes()), Some(value));
            assert_eq!(get(&mut others, &number.to_le_bytes()), None, "a caller sees the keys of another");
        }
        assert!(matches!(thread.call(77, &[]), Err(ClibError::Offload(_))), "there is no such offload");
        assert!(matches!(thread.call(kv::NUMBER, &[1, 2, 3]), Err(ClibError::Offload(_))));
        let reader = Process::open(&url, process.ticket(Rights::Read).unwrap()).unwrap();
        let refused = reader.thread().unwrap().call(kv::NUMBER, &kv::Request::Stats.encode());
        assert!(matches!(refused, Err(ClibError::NotAllowed(_))));
        // An offload reaches the caller's memory: a list of two nodes, each a pointer, a key and a value.
        let list = thread.ralloc(4096, Permission::ReadWrite).unwrap();
        let words: [u64; 6] = [list + 24, 1, 10, 0, 2, 20];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        thread.rwrite(list, &bytes).unwrap();
        let key = 2u64.to_le_bytes();
        let shape = chase::Shape::Lists(chase::Lists {
            next_offset: 0,
            child_offset: 0,
            key_offset: 8,
            levels: 1,
            order: chase::Order::LittleEndian,
            comparison: Comparison::Equal,
            take: chase::Take::Match,
            mask: &[],
        });
        let value = chase::Field { offset: 16, bytes: 8 };
        let chase = chase::Request { start: list, shape, key: &key, value, steps_max: 8 };
        let answer = thread.call(chase::NUMBER, &chase.encode()).unwrap();
        assert_eq!(chase::Answer::decode(&answer).unwrap().value, 20u64.to_le_bytes());
    }
}

#[test]
fn memory_is_over_committed_and_bounded() {
    let scene = Scene::new();
    let process = Process::create(&scene.udp()).unwrap();
    let mut thread = process.thread().unwrap();
    let address =
        thread.ralloc(96 * MIB as u64, Permission::ReadWrite).expect("more than there is, as long as it is not used");
    let (mut written, page) = (0, vec![1; 64 << 10]);
    let refused = loop {
        match thread.rwrite(address + written, &page) {
            Ok(()) => written += page.len() as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, ClibError::OutOfMemory), "{refused}");
    assert_eq!(written, 64 * MIB as u64, "all memory was used");
    assert!(matches!(thread.ralloc_with(1, Permission::Read, Backing::Now), Err(ClibError::OutOfMemory)));
    let status = thread.node_status().unwrap();
    assert_eq!((status.free_bytes, status.allocated_bytes), (0, 96 * MIB as u64));
    thread.rfree(address).unwrap();
    let (_, allocated) = thread.ralloc_with(1, Permission::Read, Backing::Now).unwrap();
    assert_eq!(allocated.bytes, 64 << 10);
}

#[test]
fn an_address_space_ends_with_its_owner() {
    let scene = Scene::new();
    // The node's offloads have address spaces too.
    let before = scene.node.stats();
    let owner = Process::create(&scene.udp()).unwrap();
    let ticket = owner.ticket(Rights::ReadWrite).unwrap();
    let guest = Process::open(&scene.udp(), ticket).unwrap();
    let address = owner.thread().unwrap().ralloc(1, Permission::ReadWrite).unwrap();
    assert_eq!(scene.node.stats().spaces, before.spaces + 1);
    drop(owner);
    assert_eq!((scene.node.stats().spaces, scene.node.stats().allocated_bytes), (before.spaces, 0));
    assert!(guest.thread().unwrap().rread(address, &mut [0]).is_err());
    assert!(matches!(Process::open(&scene.udp(), ticket), Err(ClibError::Lost)));
}

#[test]
fn a_node_that_has_gone_times_out_or_is_lost() {
    for transport in 0..2 {
        let scene = Scene::new();
        let url = scene.urls()[transport].clone();
        let config = ProcessConfig { deadline: Duration::from_millis(500), ..ProcessConfig::default() };
        let process = Process::create_with(&url, config).unwrap();
        let mut thread: Thread = process.thread().unwrap();
        let address = thread.ralloc(1, Permission::ReadWrite).unwrap();
        let config = NodeConfig::new(vec![scene.node.addresses()[transport].clone()], MIB as u64);
        drop(scene);
        assert!(matches!(thread.rwrite(address, &[1]), Err(ClibError::TimedOut)));
        let allocating = thread.ralloc_async(1, Permission::ReadWrite).unwrap();
        let freeing = thread.rfree_async(address).unwrap();
        assert!(matches!(thread.rwait(allocating), Err(ClibError::TimedOut)));
        assert!(matches!(thread.rwait(freeing), Err(ClibError::TimedOut)));
        // Another node at the same address knows nothing of the address space, and must not be taken for the old one.
        let stranger = loop {
            match Node::start(config.clone()) {
                Ok(node) => break node,
                Err(_) => std::thread::yield_now(),
            }
        };
        let error = loop {
            match thread.rread(address, &mut [0]) {
                Err(ClibError::TimedOut) => {}
                Err(error) => break error,
                Ok(()) => panic!("a stranger's memory was read"),
            }
        };
        assert!(matches!(error, ClibError::Lost), "{error}");
        drop(stranger);
    }
}
