//! A radix tree on a node: words go in with reads, writes and atomics, and are found with one round trip.
//!
//! ```text
//! yonder node --listen udp://127.0.0.1:7000 --memory 1GiB
//! cargo run -p yonder-tree --example radix_tree -- udp://127.0.0.1:7000 radish radio
//! ```

use yonder::clib::Process;
use yonder_clio::tree::{Tree, Way, Words};
use yonder_clio::{AppError, Meter};

/// Words in the tree.
const WORDS_MAX: usize = 10_000;
/// Room for the bytes of all of them.
const NODES_MAX: u64 = 1 << 18;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(url) = arguments.next() else {
        eprintln!("no memory node: type its URL, such as udp://127.0.0.1:7000, and words to look for");
        std::process::exit(2);
    };
    if let Err(error) = run(&url, &arguments.collect::<Vec<_>>()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(url: &str, wanted: &[String]) -> Result<(), AppError> {
    let process = Process::create(url)?;
    let mut meter = Meter::new(&process)?;
    let mut tree = Tree::create(NODES_MAX, &mut meter)?;
    let words = Words::load(None, WORDS_MAX)?;
    for (word, number) in words.list.iter().zip(1..) {
        tree.insert(word, number, &mut meter)?;
    }
    println!("{} words from {} in {} nodes", words.list.len(), words.source, tree.nodes(&mut meter)?);
    let last = words.list.last().map(|word| String::from_utf8_lossy(word).into_owned());
    for word in wanted.iter().chain(&last) {
        for way in Way::ALL {
            let before = meter.traffic();
            let found = tree.get(word.as_bytes(), way, &mut meter)?;
            let trips = meter.traffic().since(before).round_trips;
            let found = found.map_or("is not there".to_owned(), |number| format!("is word {number}"));
            println!("{word} {found}: {trips} round trips, by {}", way.name());
        }
    }
    Ok(())
}
