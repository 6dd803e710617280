//! [`work`]: the work that a Redis or a memcached server is given: to keep values, and to give them back, each checked
//! whole.
//!
//! The work is a count of requests, not a time, so that every variant does the same. One connection asks, a few
//! requests under way: the server has a thread for it, and what is measured is how long its memory makes it wait.

use std::collections::VecDeque;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore as _, SeedableRng};
use yonder::clock;
use yonder_load::LatencyRecorder;

use crate::BenchError;
use crate::flow::stamp;
use crate::stock::Client;

/// Requests under way at a time.
const DEPTH: usize = 8;
/// Bytes of the text that values are cut from, beside the longest value.
const TEXT_BYTES: usize = 1 << 20;
/// The longest value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Of so many bytes of that text the first half is random and the second is not: it compresses to about a half.
const GRAIN_BYTES: usize = 64;
/// Bytes that tell values apart, at the beginning of each.
const STAMP_BYTES: usize = 8;

/// Values of one size, and how often they are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    /// Bytes of a value.
    pub(super) bytes: usize,
    /// How many there are.
    pub(super) keys: u64,
    /// Requests for one of them, at random.
    pub(super) gets: u64,
}

/// What the work has come to.
#[derive(Debug)]
pub(super) struct Measured {
    /// For all of it.
    pub(super) seconds: f64,
    /// For the gets alone.
    pub(super) get_seconds: f64,
    /// Of each get, from when it was sent.
    pub(super) latency: LatencyRecorder,
    /// Values that were not there or not what they should be.
    pub(super) wrong: u64,
}

/// Stores every value of every load, then asks for them.
pub(super) fn work(client: &mut Client, loads: &[Load]) -> Result<Measured, BenchError> {
    let (text, start) = (text(), Instant::now());
    for load in loads {
        let set = |client: &mut Client, item| {
            client.set(&key(*load, item), load.bytes, |into| write_value(&text, *load, item, into));
        };
        client.all(DEPTH, 0..load.keys, set, |client, _| client.is_stored())?;
    }
    let middle = Instant::now();
    let (mut latency, mut wrong) = (LatencyRecorder::new(), 0);
    for load in loads {
        wrong += ask(client, &text, *load, &mut latency)?;
    }
    let (seconds, get_seconds) = (start.elapsed().as_secs_f64(), middle.elapsed().as_secs_f64());
    Ok(Measured { seconds, get_seconds, latency, wrong })
}

/// Returns how many values were wrong.
fn ask(client: &mut Client, text: &[u8], load: Load, latency: &mut LatencyRecorder) -> Result<u64, BenchError> {
    let mut random = SmallRng::seed_from_u64(load.gets);
    let (mut asked, mut left, mut wrong, mut expected) = (VecDeque::new(), load.gets, 0, Vec::new());
    loop {
        while left > 0 && asked.len() < DEPTH {
            let item = random.random_range(0..load.keys);
            asked.push_back((item, clock::now()));
            client.get(&key(load, item));
            client.send()?;
            left -= 1;
        }
        let Some((item, begun)) = asked.pop_front() else { return Ok(wrong) };
        expected.clear();
        write_value(text, load, item, &mut expected);
        wrong += u64::from(!client.is_value(|value| value == expected)?);
        latency.record(clock::now() - begun);
    }
}

fn key(load: Load, item: u64) -> String {
    format!("{}:{item}", load.bytes)
}

/// What values are cut from: every place of it is different, and it compresses as usual data does.
fn text() -> Vec<u8> {
    let mut text = vec![b'.'; TEXT_BYTES + VALUE_BYTES_MAX];
    let mut random = SmallRng::seed_from_u64(11);
    for grain in text.chunks_mut(GRAIN_BYTES) {
        let half = grain.len().div_ceil(2);
        random.fill_bytes(&mut grain[..half]);
    }
    text
}

/// Appends an item's value: its stamp, and a part of the text that begins somewhere else for each item.
fn write_value(text: &[u8], load: Load, item: u64, into: &mut Vec<u8>) {
    let mut first = [0; STAMP_BYTES];
    stamp(item, &mut first);
    into.extend_from_slice(&first);
    let place = (u64::from_le_bytes(first) >> 20) as usize % TEXT_BYTES;
    into.extend_from_slice(&text[place..place + load.bytes - STAMP_BYTES]);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use yonder_load::Protocol;

    use super::*;

    const LOAD: Load = Load { bytes: 100, keys: 20, gets: 50 };

    /// A memcached whose replies go through `mend`.
    fn served(mend: fn(Vec<u8>) -> Vec<u8>) -> Result<Measured, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut values = std::collections::HashMap::new();
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let key = words[1].to_owned();
                let reply = if words[0] == "set" {
                    let mut value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                    requests.read_exact(&mut value).unwrap();
                    values.insert(key, value);
                    b"STORED\r\n".to_vec()
                } else {
                    let value: &Vec<u8> = &values[&key];
                    mend([format!("VALUE {key} 0 {}\r\n", value.len() - 2).as_bytes(), value, b"END\r\n"].concat())
                };
                if stream.write_all(&reply).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let stream = TcpStream::connect(address).unwrap();
        let mut client = Client::new(Protocol::Memcached, stream, Duration::ZERO).unwrap();
        let measured = work(&mut client, &[LOAD]);
        drop(client);
        server.join().unwrap();
        measured
    }

    #[test]
    fn right_values_are_right() {
        let measured = served(|reply| reply).unwrap();
        assert_eq!((measured.wrong, measured.latency.len()), (0, LOAD.gets));
        assert!(measured.get_seconds <= measured.seconds);
    }

    #[test]
    fn values_that_are_lost_or_damaged_are_counted() {
        assert_eq!(served(|_| b"END\r\n".to_vec()).unwrap().wrong, LOAD.gets);
        let last = |mut reply: Vec<u8>| {
            let place = reply.len() - b"\r\nEND\r\n".len() - 1;
            reply[place] ^= 1;
            reply
        };
        assert_eq!(served(last).unwrap().wrong, LOAD.gets);
        let error = served(|_| b"SERVER_ERROR out of memory\r\n".to_vec()).unwrap_err();
        assert!(error.to_string().contains("SERVER_ERROR out of memory"), "{error}");
    }

    #[test]
    fn values_differ_and_compress() {
        let text = text();
        let value = |item| {
            let mut value = Vec::new();
            write_value(&text, LOAD, item, &mut value);
            value
        };
        let mut values: Vec<_> = (0..LOAD.keys).map(value).collect();
        assert!(values.iter().all(|value| value.len() == LOAD.bytes));
        values.iter_mut().for_each(|value| drop(value.drain(..STAMP_BYTES)));
        values.sort();
        values.dedup();
        assert_eq!(values.len() as u64, LOAD.keys, "values differ behind their stamps too");
        let dots = text.iter().filter(|byte| **byte == b'.').count();
        assert!(dots > text.len() * 2 / 5 && dots < text.len() * 3 / 5);
    }
}
