//! [`together`]: several clients at the same time.

use std::panic::resume_unwind;
use std::thread;

use yonder::clock;

use crate::AppError;

/// Runs `work` for each of `clients` on a thread of its own, and waits for all. Returns what they return, in order, and
/// the seconds from the first start to the last end; or the first error, after all have ended.
pub fn together<C: Send, T: Send>(
    clients: impl IntoIterator<Item = C>,
    work: impl Fn(C) -> Result<T, AppError> + Sync,
) -> Result<(Vec<T>, f64), AppError> {
    let (work, start) = (&work, clock::now());
    let results: Vec<Result<T, AppError>> = thread::scope(|scope| {
        let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || work(client))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let seconds = (clock::now() - start) as f64 / 1e9;
    Ok((results.into_iter().collect::<Result<_, _>>()?, seconds))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn clients_run_at_the_same_time_and_answer_in_order() {
        // A client that ran alone would wait for the others for ever.
        let barrier = Barrier::new(3);
        let (results, seconds) = together(0..3, |client| {
            barrier.wait();
            Ok(client * 10)
        })
        .unwrap();
        assert_eq!(results, [0, 10, 20]);
        assert!(seconds > 0.0);
    }

    #[test]
    fn the_first_error_is_returned() {
        let refused = together([1, 2, 3], |client| match client {
            1 => Ok(()),
            client => Err(AppError::WrongValues(client)),
        });
        assert!(matches!(refused, Err(AppError::WrongValues(2))));
    }
}
