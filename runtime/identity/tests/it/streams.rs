//! A secure stream between threads.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use yonder_identity::Stream;

use crate::world::{is_end, streams};

/// All that one direction carries, while the other is full too.
#[test]
fn both_directions_carry_everything_at_a_time() {
    const BYTES: usize = 3 << 20;
    let (client, server) = streams();
    let pattern = |index: usize| (index * 31 + index / 257) as u8;
    let text: Vec<u8> = (0..BYTES).map(pattern).collect();
    thread::scope(|scope| {
        for stream in [&client, &server] {
            let text = &text;
            scope.spawn(move || {
                for part in text.chunks(100_000) {
                    { stream }.write_all(part).unwrap();
                }
            });
            scope.spawn(move || {
                let mut got = vec![0; BYTES];
                { stream }.read_exact(&mut got).unwrap();
                assert!(got == *text);
            });
        }
    });
}

/// Several writers: each write of at most one record stays whole.
#[test]
fn writes_of_several_threads_stay_whole() {
    const WRITES: usize = 200;
    let (client, server) = streams();
    thread::scope(|scope| {
        for letter in b"abcd" {
            let client = &client;
            scope.spawn(move || (0..WRITES).for_each(|_| { client }.write_all(&[*letter; 1000]).unwrap()));
        }
        let mut got = vec![0; 1000];
        for _ in 0..4 * WRITES {
            { &server }.read_exact(&mut got).unwrap();
            assert!(got.iter().all(|byte| *byte == got[0]));
        }
    });
}

#[test]
fn a_shutdown_ends_a_reader_at_either_end() {
    let (client, server) = streams();
    thread::scope(|scope| {
        let readers = [&client, &server].map(|stream| scope.spawn(move || { stream }.read(&mut [0; 10])));
        client.shutdown().unwrap();
        for reader in readers {
            let end = reader.join().unwrap();
            assert!(is_end(&end), "{end:?}");
        }
    });
    assert!({ &client }.write(b"more").is_err());
}

/// The reader goes on while a writer waits for a peer that does not read, and the writer ends in time.
#[test]
fn a_peer_that_does_not_read_holds_up_no_reader() {
    let (client, server) = streams();
    client.socket().set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    { &server }.write_all(b"hello").unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let block = vec![7; 1 << 20];
            while { &client }.write_all(&block).is_ok() {}
        });
        let mut got = [0; 5];
        { &client }.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        writer.join().unwrap();
    });
    assert!({ &client }.write(b"more").is_err(), "a part of a record may have left");
}

#[test]
fn a_changed_byte_is_an_error() {
    let (client, server) = streams();
    { client.socket() }
        .write_all(&[23, 3, 3, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17])
        .unwrap();
    let error = { &server }.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn plain_and_secure_are_used_alike() {
    let (there, here) = crate::world::pair();
    let (client, server) = streams();
    for (there, here) in [(Stream::from(there), Stream::from(here)), (client.into(), server.into())] {
        { &there }.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        { &here }.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        there.shutdown().unwrap();
        assert!(is_end(&{ &here }.read(&mut got)));
    }
}
