//! Which key a request of a YCSB workload touches: scrambled zipfian, or the latest. Pure: the caller owns the
//! randomness and says how many keys there are, because inserts add to them.
//!
//! Neighbours: `workload` says which of them a workload uses; `keys` has the distributions of `--dist`, whose keys are
//! fixed.

use rand::Rng;
use rand_distr::Zipf;

/// YCSB's zipfian constant.
pub(crate) const THETA: f64 = 0.99;
/// Ranks that a scrambled zipfian choice is made among, however many keys there are: YCSB's `ITEM_COUNT`.
const RANKS: f64 = 1e10;
/// Keys that scrambled ranks fall on, as a multiple of those at the start, if there are inserts: YCSB too leaves room
/// for the keys to come, so that an insert does not change which keys are popular.
const ROOM_FOR_INSERTS: u64 = 2;
/// Draws until one falls on a key that is there. At least half of the room is, so that more are needed once in 10^19
/// times.
const DRAWS_MAX: u32 = 64;

/// How popular each key is, when keys are added all the time.
#[derive(Clone, Debug)]
pub(crate) enum Popularity {
    /// YCSB's `ScrambledZipfianGenerator`: ranks are zipfian, and a hash says which key has which rank.
    Scrambled { zipf: Zipf<f64>, room: u64 },
    /// YCSB's `SkewedLatestGenerator`: the newest key has the first rank, the one before it the second.
    Latest { zipf: Zipf<f64>, keys: u64 },
}

impl Popularity {
    /// Scrambled zipfian among `keys` keys at the start; `grows` says whether inserts will add some.
    pub(crate) fn scrambled(keys: u64, grows: bool) -> Self {
        Self::Scrambled { zipf: zipf(RANKS), room: if grows { keys * ROOM_FOR_INSERTS } else { keys } }
    }

    /// The latest of `keys` keys at the start.
    pub(crate) fn latest(keys: u64) -> Self {
        Self::Latest { zipf: zipf(keys as f64), keys }
    }

    /// A key in `0..keys`, which are there now; there is at least one.
    pub(crate) fn choose(&mut self, keys: u64, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Scrambled { zipf, room } => {
                let mut draw = || scrambled(rng.sample(*zipf) as u64 - 1) % *room;
                (0..DRAWS_MAX).map(|_| draw()).find(|key| *key < keys).unwrap_or(0)
            }
            Self::Latest { zipf, keys: known } => {
                if *known != keys {
                    (*zipf, *known) = (self::zipf(keys as f64), keys);
                }
                keys - (rng.sample(*zipf) as u64).clamp(1, keys)
            }
        }
    }
}

fn zipf(ranks: f64) -> Zipf<f64> {
    Zipf::new(ranks, THETA).expect("there is a rank, and the exponent is positive")
}

/// YCSB's `Utils.fnvhash64`: FNV-1a over the eight bytes of `rank`, least first, without its sign.
fn scrambled(rank: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = rank.to_le_bytes().iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    const DRAWS: u64 = 400_000;
    /// YCSB's `ZETAN`: the sum over all ranks of 1 / rank^0.99.
    const ZETA: f64 = 26.469_028_201_783_02;

    fn counts(popularity: &mut Popularity, keys: u64) -> Vec<u64> {
        let mut rng = SmallRng::seed_from_u64(42);
        let mut counts = vec![0; keys as usize];
        (0..DRAWS).for_each(|_| counts[popularity.choose(keys, &mut rng) as usize] += 1);
        counts
    }

    /// Pearson's statistic over cells that are expected to be drawn often enough.
    fn chi_square(counts: &[u64], shares: &[f64]) -> f64 {
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-3, "the shares add up to {}", shares.iter().sum::<f64>());
        let term =
            |(count, share): (&u64, &f64)| (*count as f64 - share * DRAWS as f64).powi(2) / (share * DRAWS as f64);
        counts.iter().zip(shares).map(term).sum()
    }

    #[test]
    fn the_hash_is_ycsbs() {
        // FNV-1a of eight zero bytes, and of the byte 1 with seven zero bytes behind it; signs dropped as in Java.
        assert_eq!(scrambled(0), 6_284_781_860_667_377_211);
        assert_eq!(scrambled(1), 8_517_097_267_634_966_620);
        assert_eq!(scrambled(2), 1_820_151_046_732_198_393);
    }

    #[test]
    fn scrambled_keys_have_their_ranks_shares_and_the_tail_is_even() {
        // Ranks beyond these are spread over all keys by the hash; a key's share of them is the same but for the spread
        // of a hash, which is small beside that of the draws.
        const HEAD: u64 = 2_000_000;
        let keys = 1_000;
        let mut shares = vec![0.0; keys as usize];
        for rank in 0..HEAD {
            shares[(scrambled(rank) % keys) as usize] += (rank as f64 + 1.0).powf(-THETA) / ZETA;
        }
        let tail = 1.0 - shares.iter().sum::<f64>();
        shares.iter_mut().for_each(|share| *share += tail / keys as f64);
        let chi = chi_square(&counts(&mut Popularity::scrambled(keys, false), keys), &shares);
        // 999 degrees of freedom: mean 999, deviation 45.
        assert!((780.0..1_220.0).contains(&chi), "chi-square {chi}");
    }

    #[test]
    fn the_latest_keys_are_zipfian_from_the_newest_back() {
        let keys = 1_000;
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-THETA)).sum();
        let shares: Vec<f64> = (0..keys).map(|key| ((keys - key) as f64).powf(-THETA) / zeta).collect();
        // The chooser was made for fewer keys: what counts is how many are there when it chooses.
        let counts = counts(&mut Popularity::latest(10), keys);
        let chi = chi_square(&counts, &shares);
        assert!((780.0..1_220.0).contains(&chi), "chi-square {chi}");
        assert!(counts[999] > counts[998] && counts[998] > counts[990] && counts[990] > counts[0], "new keys first");
    }

    #[test]
    fn inserts_do_not_change_which_keys_are_popular() {
        let mut popularity = Popularity::scrambled(500, true);
        let hottest = |keys: u64, popularity: &mut Popularity| {
            let counts = counts(popularity, keys);
            (0..keys).max_by_key(|key| counts[*key as usize]).unwrap()
        };
        let hot = scrambled(0) % 1_000;
        assert!(hot < 500, "the hottest key of all is there from the start: {hot}");
        assert_eq!([500, 700, 1_000].map(|keys| hottest(keys, &mut popularity)), [hot; 3]);
        // Keys that were inserted are chosen too.
        let counts = counts(&mut popularity, 700);
        assert!(counts[500..].iter().all(|count| *count > 0));
    }

    #[test]
    fn one_key_is_always_chosen() {
        for mut popularity in [Popularity::scrambled(1, false), Popularity::scrambled(1, true), Popularity::latest(1)] {
            assert_eq!(counts(&mut popularity, 1), [DRAWS]);
        }
    }
}
