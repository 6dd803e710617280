//! [`Watcher`]: looks at a cluster until something has come about, has failed, or gets nowhere.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;
use yonder_controller::{ClientError, ControllerClient};
use yonder_placement::{NodeCondition, NodeId, NodeView, SpaceView};

use super::steps::tell;

/// How often the controller is asked.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often what is waited for is worth a line.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What the controller says of its cluster.
pub(super) struct Cluster {
    pub(super) nodes: Vec<NodeView>,
    pub(super) spaces: Vec<SpaceView>,
}

impl Cluster {
    /// The nodes that are there.
    pub(super) fn serving(&self) -> BTreeSet<NodeId> {
        let is_there = |view: &&NodeView| !matches!(view.condition, NodeCondition::Silent | NodeCondition::Lost);
        self.nodes.iter().filter(is_there).map(|view| view.node).collect()
    }

    /// How much is not well, in what becomes less while it is mended.
    pub(super) fn lacks(&self) -> u64 {
        let away = (self.nodes.len() - self.serving().len()) as u64;
        let below = |space: &SpaceView| space.groups_below + space.pages_below;
        away + self.spaces.iter().map(below).sum::<u64>()
    }
}

/// What a look shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Look<T> {
    Done(T),
    /// It will not come about, for this reason.
    Failed(String),
    /// Not yet. It gets on when less than ever is `left`; `why` is what is wrong if it does not.
    Waits {
        left: u64,
        why: String,
        tell: Option<String>,
    },
    /// Somebody is waited for who may take as long as they like.
    Idle,
}

pub(super) struct Watcher {
    pub(super) client: ControllerClient,
    /// Something comes when the command is to end.
    pub(super) stopped: Receiver<()>,
    timeout: Duration,
}

impl Watcher {
    pub(super) fn new(client: ControllerClient, timeout: Duration) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        ctrlc::set_handler(move || {
            let _ = stop.send(());
        })?;
        Ok(Self { client, stopped, timeout })
    }

    pub(super) fn look(&mut self) -> Result<Cluster, ClientError> {
        Ok(Cluster { nodes: self.client.nodes()?, spaces: self.client.spaces()? })
    }

    /// Looks until something has come about; fails when it fails, or gets nowhere for `timeout`.
    pub(super) fn wait<T>(&mut self, mut look: impl FnMut(&Cluster) -> Look<T>) -> anyhow::Result<T> {
        self.wait_with(|cluster, _| look(cluster))
    }

    /// As [`Watcher::wait`], with the client that has asked.
    pub(super) fn wait_with<T>(
        &mut self,
        mut look: impl FnMut(&Cluster, &ControllerClient) -> Look<T>,
    ) -> anyhow::Result<T> {
        let (mut progress, mut told) = (Progress::new(self.timeout, Instant::now()), Told::default());
        loop {
            let seen = match self.look() {
                Ok(cluster) => look(&cluster, &self.client),
                // One is started again, or another one takes over.
                Err(error @ ClientError::Unreachable { .. }) => {
                    Look::Waits { left: u64::MAX, why: error.to_string(), tell: None }
                }
                Err(error) => return Err(error.into()),
            };
            match seen {
                Look::Done(done) => return Ok(done),
                Look::Failed(cause) => bail!("{cause}"),
                Look::Idle => progress = Progress::new(self.timeout, Instant::now()),
                Look::Waits { left, why, tell } => {
                    told.tell(tell, Instant::now());
                    if progress.is_over(left, Instant::now()) {
                        bail!("{why} (waited for {:?})", self.timeout);
                    }
                }
            }
            match self.stopped.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!("stopped"),
            }
        }
    }
}

/// Whether something gets on.
struct Progress {
    timeout: Duration,
    least: u64,
    since: Instant,
}

impl Progress {
    fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, least: u64::MAX, since: now }
    }

    /// Whether there was not less left for all of the timeout.
    fn is_over(&mut self, left: u64, now: Instant) -> bool {
        if left < self.least {
            (self.least, self.since) = (left, now);
        }
        now.saturating_duration_since(self.since) >= self.timeout
    }
}

/// What was told last, so that nothing is told twice or too often.
#[derive(Default)]
struct Told(Option<(String, Instant)>);

impl Told {
    fn tell(&mut self, text: Option<String>, now: Instant) {
        let Some(text) = text else { return };
        let is_new = |(last, at): &(String, Instant)| *last != text && now.saturating_duration_since(*at) >= TELL_EVERY;
        if self.0.as_ref().is_none_or(is_new) {
            tell(&text);
            self.0 = Some((text, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_less_than_ever_is_progress() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut progress = Progress::new(3 * second, start);
        assert!(!progress.is_over(5, start + 2 * second));
        assert!(!progress.is_over(4, start + 4 * second));
        // What comes and goes is none.
        assert!(!progress.is_over(6, start + 5 * second));
        assert!(!progress.is_over(4, start + 6 * second));
        assert!(progress.is_over(5, start + 7 * second));
    }
}
