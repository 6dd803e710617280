//! [`Datagrams`]: how searches and what they find are spelt, and [`Searches`], what a load asks.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_load::RequestSource;
use yonder_serve::{Protocol, spelling};

use crate::{FaissError, Index, Neighbour, Request, Vectors};

/// Searches over datagrams, as `postcard` spells them: an answer says which query it is of.
pub struct Datagrams;

/// A search with a number that comes back with its answer.
pub type Numbered<T> = (u32, T);

impl Protocol for Datagrams {
    type Request = Numbered<Request>;
    type Answer = Numbered<Vec<Neighbour>>;

    fn put_request(request: &Self::Request, to: &mut Vec<u8>) {
        spelling::put(request, to);
    }

    fn request(bytes: &[u8]) -> Result<Self::Request, String> {
        spelling::get(bytes).map_err(|error| format!("no search: {error}"))
    }

    fn put_answer(found: &Self::Answer, to: &mut Vec<u8>) {
        spelling::put(found, to);
    }

    fn answer(bytes: &[u8]) -> Option<Self::Answer> {
        spelling::get(bytes).ok()
    }
}

/// Queries and what an index finds, to ask them in any order and know right answers.
#[derive(Clone)]
pub struct Searches {
    requests: Arc<[Request]>,
    expected: Arc<[Vec<Neighbour>]>,
    random: SmallRng,
}

impl Searches {
    /// Searches for these vectors in `index`, for `k` neighbours in `nprobe` lists. On a thread, not on a unithread.
    ///
    /// # Errors
    /// What Faiss says.
    pub fn of(index: &Index, queries: &Vectors, k: usize, nprobe: usize) -> Result<Self, FaissError> {
        let request = |at| Request { query: queries.get(at).into(), k, nprobe };
        let requests: Arc<[Request]> = (0..queries.count()).map(request).collect();
        let search = |request: &Request| index.search(&request.query, request.k, request.nprobe, || ());
        let expected = requests.iter().map(search).collect::<Result<Arc<[_]>, _>>()?;
        Ok(Self { requests, expected, random: SmallRng::seed_from_u64(0xFA15) })
    }

    /// The same in another order.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), ..self.clone() }
    }

    /// What is found of each query.
    #[must_use]
    pub fn expected(&self) -> &[Vec<Neighbour>] {
        &self.expected
    }
}

impl RequestSource for Searches {
    type Request = Numbered<Request>;
    type Answer = Numbered<Vec<Neighbour>>;
    const KINDS: &'static [&'static str] = &["search"];

    fn next_request(&mut self) -> Self::Request {
        let number = self.random.random_range(0..self.requests.len());
        (number as u32, self.requests[number].clone())
    }

    fn verify(&self, (number, found): &Self::Answer) -> Option<usize> {
        (self.expected.get(*number as usize)? == found).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn searches_and_answers_come_back(
            number in any::<u32>(),
            query in prop::collection::vec(any::<f32>(), 0..300),
            (k, nprobe) in any::<(usize, usize)>(),
            found in prop::collection::vec((any::<i64>(), -1e30_f32..1e30), 0..50),
        ) {
            let request = (number, Request { query: query.into(), k, nprobe });
            let (mut asked, mut answered) = (Vec::new(), Vec::new());
            Datagrams::put_request(&request, &mut asked);
            let back = Datagrams::request(&asked).unwrap();
            prop_assert_eq!((back.0, back.1.k, back.1.nprobe), (number, k, nprobe));
            let bits = |query: &[f32]| query.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&back.1.query), bits(&request.1.query));
            Datagrams::put_answer(&(number, found.clone()), &mut answered);
            prop_assert_eq!(Datagrams::answer(&answered), Some((number, found)));
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Datagrams::request(&bytes);
            let _ = Datagrams::answer(&bytes);
        }
    }
}
