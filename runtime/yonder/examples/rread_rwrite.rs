//! Memory on a node, used with explicit reads and writes.
//!
//! ```text
//! yonder node --listen udp://127.0.0.1:7000 --memory 1GiB
//! cargo run -p yonder-memory --example rread_rwrite -- udp://127.0.0.1:7000
//! ```

use yonder::clib::{ClibError, Permission, Process, Thread};

fn main() {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("no memory node: type its URL, such as udp://127.0.0.1:7000");
        std::process::exit(2);
    };
    if let Err(error) = run(&url) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run(url: &str) -> Result<(), ClibError> {
    // An address space of this program's own, which ends with `process`.
    let process = Process::create(url)?;
    let mut thread: Thread = process.thread()?;
    let address = thread.ralloc(1 << 20, Permission::ReadWrite)?;

    // One after the other ...
    thread.rwrite(address, b"kept far away")?;
    let mut back = [0; 13];
    thread.rread(address, &mut back)?;
    println!("at {address:#x}: {}", String::from_utf8_lossy(&back));

    // ... or many at the same time.
    let writes: Vec<_> =
        (0..16u8).map(|page| thread.rwrite_async(address + u64::from(page) * 4096, vec![page; 4096])).collect();
    for write in writes {
        thread.rwait(write?).result?;
    }
    let read = thread.rread_async(address + 7 * 4096, vec![0; 4096])?;
    let completed = thread.rwait(read);
    completed.result?;
    println!("page 7 is {} times {}", completed.buffer.len(), completed.buffer[0]);
    thread.rfree(address)
}
