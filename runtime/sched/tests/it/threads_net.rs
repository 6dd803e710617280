//! Light threads that wait for sockets, beside others that wait for pages.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yonder_paging::{Config as FarConfig, FarMemory, Region};
use yonder_sched::Idle;
use yonder_sched::threads::net::{TcpListener, TcpStream};
use yonder_sched::threads::sync::Semaphore;
use yonder_sched::threads::{Config, run, spawn, yield_now};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const CLIENTS: u64 = 100;
const MESSAGES: u64 = 20;

fn far() -> Option<FarMemory> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    Some(FarMemory::open("emu://?latency=5us&size=128MiB", FarConfig::with_local(LOCAL)).unwrap())
}

/// Answers each number with the word that far memory has there.
fn serve(mut stream: TcpStream, region: &Region) {
    let mut number = [0; 8];
    while stream.read_exact(&mut number).is_ok() {
        let word = region.read_u64(u64::from_le_bytes(number) * PAGE).unwrap();
        stream.write_all(&word.to_le_bytes()).unwrap();
    }
}

/// Asks for words all over far memory, and checks the answers.
fn ask(stream: &mut (impl Read + Write), client: u64, pages: u64) {
    for message in 0..MESSAGES {
        let page = (client * 997 + message * 61) % pages;
        stream.write_all(&page.to_le_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(u64::from_le_bytes(answer), page + 1);
    }
}

#[test]
fn a_server_and_a_hundred_clients_are_light_threads_of_one_program() {
    for workers in [1, 2] {
        for spin in [Duration::ZERO, Duration::from_micros(100)] {
            let Some(far) = far() else { return };
            let config = Config { idle: Idle::SleepAfter(spin), ..Config::with_workers(workers) };
            let pages = 2 * LOCAL / PAGE;
            let region = Arc::new(far.region(pages * PAGE).unwrap());
            (0..pages).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
            let served = run(&config, &far, move || {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| {
                        spawn(move || {
                            let mut stream = TcpStream::connect(address).unwrap();
                            assert_eq!(stream.peer_addr().unwrap(), address);
                            stream.set_nodelay(true).unwrap();
                            ask(&mut stream, client, pages);
                        })
                    })
                    .collect();
                // An ordinary thread asks too.
                let ordinary = std::thread::spawn(move || {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    ask(&mut stream, CLIENTS, pages);
                });
                let servers: Vec<_> = (0..=CLIENTS)
                    .map(|_| {
                        let ((stream, _), region) = (listener.accept().unwrap(), Arc::clone(&region));
                        stream.set_nodelay(true).unwrap();
                        spawn(move || serve(stream, &region))
                    })
                    .collect();
                let served = servers.len() as u64;
                clients.into_iter().chain(servers).for_each(|handle| handle.join().unwrap());
                ordinary.join().unwrap();
                served
            });
            assert_eq!(served.unwrap(), CLIENTS + 1);
            assert!(far.stats().major_faults > 0, "nothing was far");
        }
    }
}

/// More than the kernel keeps for a connection, so that both sides wait; and one stream, used in both directions.
#[test]
fn a_stream_is_read_and_written_at_once() {
    const BYTES: usize = 8 << 20;
    let Some(far) = far() else { return };
    run(&Config::with_workers(2), &far, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let echoes = spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            std::io::copy(&mut &stream, &mut &stream).unwrap()
        });
        let stream = Arc::new(TcpStream::connect(address).unwrap());
        let written = Arc::clone(&stream);
        let writes = spawn(move || {
            let bytes: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
            (&*written).write_all(&bytes).unwrap();
            written.shutdown(Shutdown::Write).unwrap();
        });
        let mut bytes = Vec::new();
        (&*stream).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), BYTES);
        assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
        writes.join().unwrap();
        assert_eq!(echoes.join().unwrap(), BYTES as u64);
    })
    .unwrap();
}

/// The worker that was told of a socket's changes ends before the socket.
#[test]
fn a_socket_outlives_its_worker() {
    let Some(far) = far() else { return };
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    for _ in 0..3 {
        let listener = Arc::clone(&listener);
        let accepted = run(&Config::default(), &far, move || {
            let address = listener.local_addr().unwrap();
            // It asks before there is a connection.
            let accepts = spawn(move || listener.accept().unwrap().1);
            yield_now();
            let stream = TcpStream::connect(address).unwrap();
            assert_eq!(accepts.join().unwrap(), stream.local_addr().unwrap());
        });
        accepted.unwrap();
    }
}

#[test]
fn a_refused_connection_is_an_error() {
    let Some(far) = far() else { return };
    let error = run(&Config::default(), &far, || {
        // Bound, and not listening any more.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        TcpStream::connect(address).unwrap_err().kind()
    });
    assert_eq!(error.unwrap(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn ordinary_threads_use_these_sockets_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echoes = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    echoes.join().unwrap();
}

/// The first worker is told of the stream's changes, and then computes until the second has read from it.
#[test]
fn a_worker_that_computes_keeps_no_socket_from_others() {
    let Some(far) = far() else { return };
    run(&Config::with_workers(2), &far, || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
        stream.set_timeout(Some(Duration::from_secs(60)));
        let stream = Arc::new(stream);
        let here = std::thread::current().id();
        let first = Arc::clone(&stream);
        let registers = spawn(move || {
            let mut byte = [0];
            (&*first).read_exact(&mut byte).unwrap();
            std::thread::current().id()
        });
        let mut written = peer.try_clone().unwrap();
        std::thread::spawn(move || written.write_all(b"x").unwrap()).join().unwrap();
        let registered = registers.join().unwrap();
        let is_read = Arc::new(AtomicBool::new(false));
        let (second, sets) = (Arc::clone(&stream), Arc::clone(&is_read));
        // This worker computes, so the other one reads.
        let reads = spawn(move || {
            assert_ne!(std::thread::current().id(), here);
            let mut byte = [0];
            (&*second).read_exact(&mut byte).unwrap();
            sets.store(true, Ordering::Release);
        });
        peer.write_all(b"y").unwrap();
        let start = Instant::now();
        while !is_read.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(30) {
            std::hint::spin_loop();
        }
        assert!(is_read.load(Ordering::Acquire), "the worker that was told first is {registered:?}, this is {here:?}");
        reads.join().unwrap();
    })
    .unwrap();
}

/// Two light threads wake one another, so that one is ready at each turn.
#[test]
fn a_socket_is_heard_where_others_are_always_ready() {
    const ROUNDS: u64 = 100;
    let Some(far) = far() else { return };
    let heard_after = run(&Config::default(), &far, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let has_heard = Arc::new(AtomicBool::new(false));
        let ends: [_; 2] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
        let has_waited = Arc::new(Semaphore::new(0));
        let hears = Arc::clone(&has_heard);
        let reader = spawn(move || {
            let began = Instant::now();
            other.read_exact(&mut [0]).unwrap();
            hears.store(true, Ordering::Relaxed);
            began.elapsed()
        });
        let pair: Vec<_> = (0..2)
            .map(|side| {
                let (mine, other) = (Arc::clone(&ends[side]), Arc::clone(&ends[1 - side]));
                let (has_heard, has_waited) = (Arc::clone(&has_heard), Arc::clone(&has_waited));
                spawn(move || {
                    let began = Instant::now();
                    for round in 1.. {
                        // The reader was spawned before, and waits.
                        has_waited.add_permits(usize::from(round == ROUNDS));
                        other.add_permits(1);
                        if has_heard.load(Ordering::Relaxed) || began.elapsed() > Duration::from_secs(5) {
                            return;
                        }
                        mine.acquire().forget();
                    }
                })
            })
            .collect();
        has_waited.acquire().forget();
        near.write_all(b"x").unwrap();
        let heard_after = reader.join().unwrap();
        pair.into_iter().for_each(|side| side.join().unwrap());
        heard_after
    })
    .unwrap();
    assert!(heard_after < Duration::from_secs(4), "it was heard after {heard_after:?}");
}

#[test]
fn a_wait_for_a_socket_ends_at_its_time() {
    let Some(far) = far() else { return };
    let ends = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_timeout(Some(Duration::from_millis(2)));
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.set_timeout(Some(Duration::from_millis(2)));
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        (&peer).write_all(b"x").unwrap();
        stream.set_timeout(None);
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    };
    run(&Config::default(), &far, ends).unwrap();
    // An ordinary thread's too.
    ends();
}
