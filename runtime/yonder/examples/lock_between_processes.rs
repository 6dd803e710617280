//! A counter on a node, which several programs increment under a lock.
//!
//! The first program makes the address space and starts others, each of which gets a ticket for it:
//!
//! ```text
//! yonder node --listen udp://127.0.0.1:7000 --memory 1GiB
//! cargo run -p yonder-memory --example lock_between_processes -- udp://127.0.0.1:7000
//! ```

use std::error::Error;
use std::process::Command;

use yonder::clib::{Permission, Process, Rights};

/// Programs beside the first.
const PROGRAMS: usize = 3;
/// How often each increments.
const TURNS: u64 = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [url] => make(url),
        [url, ticket, address] => increment(url, ticket, address),
        _ => Err("no memory node: type its URL, such as udp://127.0.0.1:7000".into()),
    };
    if let Err(error) = done {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// Makes a lock with a counter behind it, and starts programs that use them.
fn make(url: &str) -> Result<(), Box<dyn Error>> {
    let process = Process::create(url)?;
    let mut thread = process.thread()?;
    let address = thread.ralloc(4096, Permission::ReadWrite)?;
    let ticket = process.ticket(Rights::ReadWrite)?.to_string();
    let start = || Command::new(std::env::current_exe()?).args([url, &ticket, &address.to_string()]).spawn();
    let mut programs = (0..PROGRAMS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    for program in &mut programs {
        if !program.wait()?.success() {
            return Err("one of the programs has failed".into());
        }
    }
    let mut counter = [0; 8];
    thread.rread(address + 8, &mut counter)?;
    println!("{PROGRAMS} programs, {TURNS} turns each: the counter is {}", u64::from_le_bytes(counter));
    Ok(())
}

/// Increments the counter with a read and a write, which only the lock keeps together.
fn increment(url: &str, ticket: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let process = Process::open(url, ticket.parse()?)?;
    let mut thread = process.thread()?;
    let lock: u64 = address.parse()?;
    for _ in 0..TURNS {
        thread.rlock(lock)?;
        let mut counter = [0; 8];
        thread.rread(lock + 8, &mut counter)?;
        thread.rwrite(lock + 8, &(u64::from_le_bytes(counter) + 1).to_le_bytes())?;
        thread.runlock(lock)?;
    }
    Ok(())
}
