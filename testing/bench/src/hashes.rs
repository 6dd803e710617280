//! What it costs to know a page again: the hash by which pages are clean, beside a copy of the page and XXH3, which it
//! replaced.
//!
//! With `--features hash-candidates` the hashes that ADR 0018 compares are there too: `cargo bench -p yonder-microbench
//! --features hash-candidates -- "a page"`.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_pager::pagetable::{HASH_KEY_BYTES, PageHasher};
use yonder_units::PAGE_BYTES;

type Page = [u8; PAGE_BYTES];

/// The benchmarks of this file.
pub fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a page");
    group.throughput(Throughput::Bytes(PAGE_BYTES as u64));
    let mut to = [0; PAGE_BYTES];
    group.bench_function("copy", |bencher| {
        let page = page();
        bencher.iter(|| black_box(&mut to).copy_from_slice(black_box(&page)));
    });
    measure(&mut group, "XXH3-64 with a seed", |page| xxh3_64_with_seed(page, 5));
    let hasher = PageHasher::new(&std::array::from_fn::<_, HASH_KEY_BYTES, _>(|byte| (byte * byte * 31 + byte) as u8));
    measure(&mut group, "NH, 128 bits", |page| hasher.page(page));
    measure(&mut group, "NH, 128 bits, three segments", |page| {
        [0..1040, 1056..2048, 3072..4096].map(|part| hasher.part(part, page))
    });
    #[cfg(feature = "hash-candidates")]
    candidates(&mut group);
    group.finish();
}

fn page() -> Page {
    std::array::from_fn(|byte| (byte * 7 + (byte >> 8)) as u8)
}

fn measure<H>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, hash: impl Fn(&Page) -> H) {
    let page = page();
    group.bench_function(name, |bencher| bencher.iter(|| hash(black_box(&page))));
}

/// The hashes that were not taken, each with its key ready where it can be.
#[cfg(feature = "hash-candidates")]
fn candidates(group: &mut BenchmarkGroup<'_, WallTime>) {
    use aegis::{aegis128l::Aegis128LMac, aegis128x2::Aegis128X2Mac, aegis128x4::Aegis128X4Mac};
    use highway::{HighwayHash as _, HighwayHasher, Key};
    use polyval::{Polyval, universal_hash::UniversalHash as _};

    measure(group, "HighwayHash-128", |page| HighwayHasher::new(Key([1, 2, 3, 4])).hash128(page));
    let polyval = Polyval::new(&[7; 16].into());
    measure(group, "POLYVAL", |page| {
        let mut hash = polyval.clone();
        hash.update_padded(page);
        hash.finalize()
    });
    let umash = umash::Params::derive(7, b"a key of the benchmark");
    measure(group, "UMASH, 128 bits", |page| {
        let mut hash = umash.fingerprinter(5);
        hash.write(page);
        hash.digest()
    });
    measure(group, "BLAKE3, keyed", |page| *blake3::keyed_hash(&[7; 32], page).as_bytes());
    macro_rules! aegis_mac {
        ($name:literal, $mac:ident) => {
            measure(group, $name, |page| {
                let mut mac = $mac::<16>::new(&[3; 16]);
                mac.update(page);
                mac.finalize()
            });
        };
    }
    aegis_mac!("AEGIS-128L MAC", Aegis128LMac);
    aegis_mac!("AEGIS-128X2 MAC", Aegis128X2Mac);
    aegis_mac!("AEGIS-128X4 MAC", Aegis128X4Mac);
}
