//! [`RequestSource`]: what a load asks of an application, and how it knows right answers.

/// What a load asks, and how it knows right answers.
pub trait RequestSource {
    /// What is asked.
    type Request;
    /// What comes back.
    type Answer;
    /// Kinds of requests whose latencies are told apart.
    const KINDS: &'static [&'static str];

    /// The next request.
    fn next_request(&mut self) -> Self::Request;

    /// The kind of the request to which this is a right answer, an index of [`RequestSource::KINDS`]; `None` if it is
    /// not what was stored.
    fn verify(&self, answer: &Self::Answer) -> Option<usize>;
}
