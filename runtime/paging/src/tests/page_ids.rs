//! Where pages are that somebody remembers.

use yonder_units::{PAGE_BYTES, PageId, PageIndex};

use crate::{Config, FarMemory, Residence};

#[test]
fn a_place_is_local_until_it_is_swept_and_unknown_when_its_region_has_ended() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    const LOCAL: u64 = 4 << 20;
    let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(LOCAL)).unwrap();
    let mut region = far.region(4 * LOCAL).unwrap();
    let place = |page| PageId { region: 0, page: PageIndex(page) };
    assert_eq!(far.residence(place(0)), Residence::Local, "what was never written needs no fetch");
    let pages = (4 * LOCAL / PAGE_BYTES as u64) as u32;
    (0..pages).for_each(|page| region.write_u64(PageIndex(page).offset(), 1).unwrap());
    region.seal().unwrap();
    let count = |wanted| (0..pages).filter(|page| far.residence(place(*page)) == wanted).count() as u64;
    assert!(count(Residence::Local) <= LOCAL / PAGE_BYTES as u64);
    assert!(count(Residence::Far) >= 3 * LOCAL / PAGE_BYTES as u64);
    let away = (0..pages).find(|page| far.residence(place(*page)) == Residence::Far).unwrap();
    region.read_u64(PageIndex(away).offset()).unwrap();
    assert_eq!(far.residence(place(away)), Residence::Local);
    assert_eq!(far.residence(place(pages)), Residence::Unknown, "behind the end");
    assert_eq!(far.residence(PageId { region: 1, page: PageIndex(0) }), Residence::Unknown);
    assert_eq!(far.residence(PageId { region: u32::MAX, page: PageIndex(0) }), Residence::Unknown);
    drop(region);
    assert_eq!(far.residence(place(0)), Residence::Unknown);
}
