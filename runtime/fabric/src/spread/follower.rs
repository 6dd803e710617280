//! [`step`]: asks the controller where groups are whose place is doubted, and puts them there.
//!
//! Lanes of all queue pairs to the new place stand before a group is put there.

use std::sync::Arc;
use std::time::Duration;

use yonder_controller::ClientError;
use yonder_placement::Refusal;

use super::Shared;
use super::group::{Group, Place};
use crate::RemoteAddress;
use crate::areas::Area;
use crate::background::Pace;
use crate::cluster::ClusterError;

/// Pause between two questions where regions are.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// Looks after all groups once.
pub(super) fn step(shared: &Arc<Shared>) -> Pace {
    let mut pace = Pace::Idle;
    for area in shared.areas.all().iter().filter(|area| area.table.begin_look()) {
        let _ = follow(shared, area);
        pace = Pace::After(ASK_AGAIN);
    }
    pace
}

/// What has become of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Followed {
    /// It is in another place now.
    Moved,
    /// It is where it was, as far as is known.
    Same,
    /// Its memory is gone.
    Lost,
}

/// Asks where a group is.
pub(super) fn follow(shared: &Shared, area: &Area<Group>) -> Followed {
    let group = &area.table;
    let place = group.place;
    let location = match shared.cluster.ask(place.region) {
        Ok(location) => location,
        Err(ClusterError::Controller(ClientError::Refused(
            error @ (Refusal::RegionLost { .. } | Refusal::BadKey { .. } | Refusal::NoRegion { .. }),
        ))) => {
            tracing::error!(%error, "pages are lost with the memory node that had them");
            group.lose();
            return Followed::Lost;
        }
        // Controllers that are away come again.
        Err(_) => return Followed::Same,
    };
    let Ok(node) = shared.nodes.know(&location) else { return Followed::Same };
    // It may be one that could not be reached when a queue pair was made.
    let is_linked = shared.nodes.connect(node).is_ok();
    if node == place.node || !is_linked {
        return Followed::Same;
    }
    let moved = group.moved(Place { node, ..place });
    if shared.areas.replace(area.start(), moved) {
        shared.count_move();
    }
    Followed::Moved
}

/// Where an area begins, for those who look it up again.
pub(super) fn place_of(shared: &Shared, start: RemoteAddress) -> Option<Arc<Area<Group>>> {
    shared.areas.all().iter().find(|area| area.start() == start).map(Arc::clone)
}
