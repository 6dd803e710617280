//! A server with its data in far memory, and a load on it: the shortest adapter of a data structure of one's own.
//!
//! ```text
//! cargo run --release -p yonder-serve --example dictionary
//! ```
//!
//! Entries of 64 bytes lie one behind the other in a region, of which a fifth is local. A request is the number of an
//! entry. Its handler reads the entry as if it were there; if it is not, the request is parked and its worker serves
//! others.

use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{Handler, SchedConfig, SchedStats, serve};
use yonder::{Config, FarMemory, PagingError, Region};
use yonder_load::{Rate, RequestSource};
use yonder_serve::{LoadSettings, Protocol, Served, UdpServer, load};

const ENTRIES: u64 = 1 << 20;
const ENTRY_BYTES: usize = 64;

type Entry = [u8; ENTRY_BYTES];

/// What is stored under a number.
fn entry(number: u64) -> Entry {
    let mut entry = [0; ENTRY_BYTES];
    entry.chunks_exact_mut(8).zip(0..).for_each(|(word, at)| word.copy_from_slice(&(number * 8 + at).to_le_bytes()));
    entry
}

/// The data.
struct Dictionary {
    region: Region,
}

impl Handler for Dictionary {
    type Request = u64;
    type Reply = Result<Entry, PagingError>;

    fn handle(&self, number: u64) -> Self::Reply {
        let mut entry = [0; ENTRY_BYTES];
        self.region.read(number * ENTRY_BYTES as u64, &mut entry)?;
        Ok(entry)
    }
}

/// How requests and answers travel.
struct Numbers;

impl Protocol for Numbers {
    type Request = u64;
    type Answer = Entry;

    fn put_request(number: &u64, to: &mut Vec<u8>) {
        to.extend_from_slice(&number.to_le_bytes());
    }

    fn request(bytes: &[u8]) -> Result<u64, String> {
        let number = bytes.try_into().map(u64::from_le_bytes).map_err(|_| "no number of 8 bytes".to_owned())?;
        if number < ENTRIES { Ok(number) } else { Err(format!("no entry {number}: there are {ENTRIES}")) }
    }

    fn put_answer(entry: &Entry, to: &mut Vec<u8>) {
        to.extend_from_slice(entry);
    }

    fn answer(bytes: &[u8]) -> Option<Entry> {
        bytes.try_into().ok()
    }
}

/// Numbers all over the place.
struct Looks {
    state: u64,
}

impl RequestSource for Looks {
    type Request = u64;
    type Answer = Entry;
    const KINDS: &'static [&'static str] = &["look"];

    fn next_request(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % ENTRIES
    }

    fn verify(&self, found: &Entry) -> Option<usize> {
        let number = u64::from_le_bytes(found[..8].try_into().expect("eight bytes")) / 8;
        (*found == entry(number)).then_some(0)
    }
}

pub(crate) fn main() {
    if let Err(why) = yonder::abilities().userfaultfd {
        return println!("SKIP: no userfaultfd: {why}");
    }
    let bytes = ENTRIES * ENTRY_BYTES as u64;
    let far = FarMemory::open("emu://?latency=2.5us&gbps=100", Config::with_local(bytes / 5)).expect("far memory");
    let region = far.region(bytes).expect("a region");
    (0..ENTRIES).for_each(|number| region.write(number * ENTRY_BYTES as u64, &entry(number)).expect("room"));

    let server = UdpServer::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let (address, shutdown) = (server.address(), server.shutdown());
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            let handler = Arc::new(Served::<Numbers, _>::new(Dictionary { region }));
            let mut frontend = server.into_frontend::<Numbers>("{\"app\":\"dictionary\"}".to_owned());
            serve(&SchedConfig::with_workers(1), &far, &handler, &mut frontend, &SchedStats::default())
                .expect("the server ends well");
        });
        let settings = LoadSettings {
            target: address.to_string(),
            rate: Rate::Max,
            duration: Duration::from_secs(1),
            threads: 1,
            window: 32,
            patience: Duration::from_secs(10),
        };
        let looks = |thread| Looks { state: thread as u64 };
        let report = load::<Numbers, _>("dictionary", &settings, address, looks, &mut |_| ());
        shutdown.request();
        report.expect("every answer is right")
    });
    println!(
        "{:.0} looks per second, half of them within {:.0} us and 99 % within {:.0} us",
        report.ops_per_s, report.p50_us, report.p99_us
    );
}
