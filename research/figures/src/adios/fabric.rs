//! How a page comes: through its worker's queue pair, over the link from its memory node.
//!
//! Each queue pair and each link is served in order. Without queues a fetch takes [`testbed::FETCH_LEAST`], and up to
//! [`testbed::FETCH_SPREAD`] more.

use yonder_units::Nanos;

use crate::costs::{adios as costs, testbed};

/// Queue pairs of the workers, and a link from each memory node.
#[derive(Debug)]
pub(crate) struct Fabric {
    queue_pairs: Vec<Nanos>,
    links: Vec<Nanos>,
    page: Nanos,
    queue_pair_page: Nanos,
    /// Of a fetch, what is neither the queue pair's nor the link's: half on the way there, half on the way back.
    way: Nanos,
    busy: Nanos,
}

impl Fabric {
    /// Nothing under way.
    pub(crate) fn new(queue_pairs: usize, nodes: usize) -> Self {
        let (page, queue_pair_page) = (testbed::page_wire_ns(), costs::QP_PAGE.ns());
        let way = testbed::FETCH_LEAST.ns() - page - queue_pair_page;
        Self { queue_pairs: vec![0; queue_pairs], links: vec![0; nodes], page, queue_pair_page, way, busy: 0 }
    }

    /// A read is posted on `queue_pair`, with `luck` from 0 to 1. When its page is at the node's end of the link.
    pub(crate) fn post(&mut self, queue_pair: usize, now: Nanos, luck: f64) -> Nanos {
        let free = &mut self.queue_pairs[queue_pair];
        *free = now.max(*free) + self.queue_pair_page;
        *free + self.way / 2 + (luck * testbed::FETCH_SPREAD.value) as Nanos
    }

    /// A page of `node` is at its end of the link. When it is in local memory.
    pub(crate) fn send(&mut self, node: usize, now: Nanos) -> Nanos {
        let free = &mut self.links[node];
        *free = now.max(*free) + self.page;
        self.busy += self.page;
        *free + (self.way - self.way / 2)
    }

    /// Time that links were in use since the last call.
    pub(crate) fn take_busy(&mut self) -> Nanos {
        std::mem::take(&mut self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_alone_takes_the_papers_time() {
        let mut fabric = Fabric::new(2, 1);
        let sent = fabric.post(0, 1_000, 0.5);
        assert_eq!(fabric.send(0, sent) - 1_000, testbed::FETCH.ns());
    }

    #[test]
    fn pages_of_one_link_come_one_behind_the_other() {
        let mut fabric = Fabric::new(8, 2);
        let sent: Vec<Nanos> = (0..8).map(|queue_pair| fabric.post(queue_pair, 0, 0.0)).collect();
        assert!(sent.iter().all(|at| *at == sent[0]), "queue pairs do not wait for one another");
        let come: Vec<Nanos> = sent.iter().map(|at| fabric.send(0, *at)).collect();
        assert!(come.windows(2).all(|pair| pair[1] - pair[0] == testbed::page_wire_ns()));
        assert_eq!(fabric.send(1, sent[0]), come[0], "another node has a link of its own");
        assert_eq!(fabric.take_busy(), 9 * testbed::page_wire_ns());
        assert!(fabric.post(0, 0, 0.0) > sent[0], "a queue pair takes one page at a time");
    }
}
