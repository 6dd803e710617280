//! What a look-up in an index of the store takes, for a tool that counts instructions, and what a page takes in memory.
//!
//! `index_cost flat|hashed|none PAGES LOOKUPS` makes an index of so many pages, says by how many bytes a page the
//! process has grown, and looks so many up. Twice under `valgrind --tool=callgrind`, with no look-ups and with a
//! million, the difference is what they take; `none` is the loop alone.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;

use yonder_microbench::index;

const USAGE: &str = "type index_cost flat|hashed|none PAGES LOOKUPS";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = args.iter().skip(1).map(|number| number.parse().ok()).collect();
    let (Some(kind), Some([pages, lookups])) = (args.first(), numbers.as_deref()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let before = resident_bytes();
    let sum = match kind.as_str() {
        "flat" => {
            let index = index::flat(*pages);
            grown(before, *pages);
            look_up(*pages, *lookups, |page| index::find_flat(&index, page))
        }
        "hashed" => {
            let table = index::hashed(*pages);
            grown(before, *pages);
            look_up(*pages, *lookups, |page| index::find_hashed(&table, page))
        }
        "none" => look_up(*pages, *lookups, u64::from),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    black_box(sum);
    ExitCode::SUCCESS
}

fn look_up(pages: usize, lookups: usize, find: impl Fn(u32) -> u64) -> u64 {
    index::order(pages).take(lookups).fold(0, |sum, page| sum ^ find(black_box(page)))
}

fn grown(before: usize, pages: usize) {
    println!("{:.1} bytes a page", resident_bytes().saturating_sub(before) as f64 / pages as f64);
}

/// Memory of this process that is backed, in bytes.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * PAGE_BYTES
}
