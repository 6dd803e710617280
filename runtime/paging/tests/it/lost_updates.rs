//! Writes that a weak hash would lose: contents that are chosen so that two flipped bits leave it as it is.
//!
//! The pager drops a page without writing it if its hash is that of what the node has. XXH3 mixes words of a page with
//! keys of which some differ by constants, whatever the seed is: for words whose difference is one of [`DIFFERENCES`],
//! the top bits of both can be flipped and the hash stays, for 1 seed in 64 to 128. Regions draw their keys on their
//! own, so many regions are many keys.

use yonder_paging::{Config, FarMemory, Region};

const PAGE: u64 = 4096;
const LOCAL: u64 = 4 << 20;
/// Regions at one time, and how often there are new ones. With XXH3, about one region in 13 would lose a write.
const REGIONS: u64 = 60;
const ROUNDS: u64 = 4;
/// Differences of the low halves of the two words of a page.
const DIFFERENCES: [u32; 8] =
    [0x0A0A_0410, 0x060A_0410, 0x0A0E_0410, 0x1A0A_0410, 0x060A_0C10, 0x0A0A_0C10, 0x060E_0410, 0x0A0A_0430];
/// Where the two words are.
const PLACES: [u64; 2] = [0, 768];
const TOP_BIT: u64 = 1 << 63;

/// Fills each page, with two words that a weak hash may confuse.
fn fill(region: &Region) {
    for (page, difference) in (1..).zip(DIFFERENCES) {
        let words = (0..PAGE / 8)
            .map(|word| 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(page).rotate_left(word as u32).to_le_bytes());
        let mut content: Vec<u8> = words.flatten().collect();
        let first = u64::from_le_bytes(content[..8].try_into().expect("eight bytes"));
        let second = (first & (TOP_BIT | 0xFFFF_FFFF)) ^ u64::from(difference) | 0x1234_5678 << 32;
        content[PLACES[1] as usize..][..8].copy_from_slice(&second.to_le_bytes());
        region.write((page - 1) * PAGE, &content).unwrap();
    }
}

/// Flips the top bits of both words of each page. What they are then.
fn flip(region: &Region) -> Vec<(u64, u64)> {
    let places = (0..DIFFERENCES.len() as u64).flat_map(|page| PLACES.map(|place| page * PAGE + place));
    let flip_at = |at| {
        let value = region.read_u64(at).unwrap() ^ TOP_BIT;
        region.write_u64(at, value).unwrap();
        (at, value)
    };
    places.map(flip_at).collect()
}

/// Takes every page of the other regions away: this one has room for all of local memory.
fn evict(room: &Region, round: u64) {
    (0..room.bytes()).step_by(PAGE as usize).for_each(|at| room.write_u64(at, at + round).unwrap());
}

#[test]
fn a_write_of_two_chosen_bits_is_not_taken_for_none() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let far = FarMemory::open("emu://?latency=1us&size=128MiB", Config::with_local(LOCAL)).unwrap();
    let room = far.region(4 * LOCAL).unwrap();
    let mut lost = 0;
    for round in 0..ROUNDS {
        let regions: Vec<Region> = (0..REGIONS).map(|_| far.region(DIFFERENCES.len() as u64 * PAGE).unwrap()).collect();
        regions.iter().for_each(fill);
        evict(&room, 2 * round);
        let written: Vec<_> = regions.iter().map(flip).collect();
        evict(&room, 2 * round + 1);
        let is_lost = |region: &Region, (at, value): &(u64, u64)| region.read_u64(*at).unwrap() != *value;
        let lost_of = |(region, words): (&Region, &Vec<_>)| words.iter().filter(|word| is_lost(region, word)).count();
        lost += regions.iter().zip(&written).map(lost_of).sum::<usize>();
    }
    let words = ROUNDS * REGIONS * (DIFFERENCES.len() * PLACES.len()) as u64;
    assert_eq!(lost, 0, "of {words} words, {lost} have lost their last write");
    assert_eq!(far.stats().paging_errors, 0);
}
