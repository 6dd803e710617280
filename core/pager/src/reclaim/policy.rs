//! [`Policy`]: watermarks and the choice between the two hands.

use crate::reclaim::Margin;

/// Fewest pages of local memory that reclaim can work with: the evictor needs frames while it copies.
pub const LIMIT_PAGES_MIN: u64 = 512;
/// Most pages of local memory that can be accounted for: 8 TiB.
pub const LIMIT_PAGES_MAX: u64 = 1 << 31;
/// Most pages kept back for the evictor, so that it can always copy: one block.
pub const RESERVE_PAGES_MAX: u64 = 512;
/// Fewest: a sweep of fewer pages does not pay for its TLB flushes.
pub const RESERVE_PAGES_MIN: u64 = 64;
const _: () = assert!(LIMIT_PAGES_MIN / 8 >= RESERVE_PAGES_MIN);

/// Shares of local memory, in percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Reclaim starts when less than this is free, if faults take so much before it has caught up with them (Adios: 15,
    /// always).
    pub start_percent: f64,
    /// However little they take, it starts when less than this is free.
    pub least_percent: f64,
    /// If it started at [`Shares::start_percent`], reclaim stops when this much is free, and if it starts later, by so
    /// much sooner.
    pub end_percent: f64,
    /// How much stays on standby, as the second chance of pages that were swept.
    pub standby_percent: f64,
}

impl Default for Shares {
    fn default() -> Self {
        Self { start_percent: 15.0, least_percent: 1.0, end_percent: 17.0, standby_percent: 5.0 }
    }
}

/// Shares that contradict one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharesError;

impl std::fmt::Display for SharesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reclaim shares must satisfy 0 < least <= start < end, 0 <= standby and end + standby < 90 percent: type for example start 15, end 17")
    }
}

impl std::error::Error for SharesError {}

/// Local memory in pages, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Pages charged: resident, being installed, and frames that are backed.
    pub charged: u64,
    /// Backed frames that nobody uses; part of `charged`.
    pub spare_frames: u64,
    /// Standby pages whose second chance runs; not counting those being written.
    pub standby: u64,
    /// Writes in flight.
    pub writing: u64,
    /// Mapped pages.
    pub resident: u64,
    /// Of the local memory that was taken of late, the share that reads took in frames, in 256ths. See [`Demand`].
    ///
    /// [`Demand`]: crate::reclaim::Demand
    pub reads: u32,
    /// Pages that the cleaner has taken since the evictor last swept.
    pub drained: u64,
    /// Pages that the reclaimer may charge. While the limit is being lowered this counts from the old one: pages can be
    /// swept only into frames.
    pub headroom: u64,
}

/// What the reclaimer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Enough is free.
    Rest,
    /// The cleaner takes up to this many of the oldest standby pages.
    Drain(u64),
    /// The evictor sweeps a block, or as much of it as this many pages.
    Sweep(u64),
    /// Backed frames that nobody uses go back to the kernel.
    Trim(u64),
    /// Everything that could be freed waits for the node to acknowledge writes.
    AwaitWrites,
}

/// Watermarks in pages for one limit of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    limit: u64,
    /// The watermarks by their shares of the limit.
    start_share: u64,
    least_share: u64,
    end_share: u64,
    reserve_share: u64,
    /// The watermarks in force.
    start: u64,
    end: u64,
    standby: u64,
    reserve: u64,
}

impl Policy {
    /// Pages taken by the cleaner at a time.
    pub const DRAIN_PAGES: u64 = 64;

    /// The watermarks for `limit` pages of local memory, at least [`LIMIT_PAGES_MIN`].
    pub fn new(limit: u64, shares: Shares) -> Result<Self, SharesError> {
        let Shares { start_percent, least_percent, end_percent, standby_percent } = shares;
        let is_low_first = 0.0 < least_percent && least_percent <= start_percent && start_percent < end_percent;
        let ordered = is_low_first && 0.0 <= standby_percent;
        if !ordered || end_percent + standby_percent >= 90.0 {
            return Err(SharesError);
        }
        let limit = limit.max(LIMIT_PAGES_MIN);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of pages is one, and `as` rounds down"
        )]
        let share = |percent: f64| ((limit as f64 * percent / 100.0) as u64).max(1);
        let (standby, reserve) = (share(standby_percent), (limit / 8).min(RESERVE_PAGES_MAX));
        // Faults stop at the reserve, so reclaim starts before that whatever the shares say, and goes on beyond it.
        let start = share(start_percent).max(reserve + 1);
        let (least, end) = (share(least_percent), share(end_percent).max(start + Self::DRAIN_PAGES));
        let of_shares = Self {
            limit,
            start_share: start,
            least_share: least,
            end_share: end,
            reserve_share: reserve,
            start,
            end,
            standby,
            reserve,
        };
        Ok(of_shares.checked())
    }

    /// The same with no more on standby than half of so many frames, which fetches and sweeps need as well.
    #[must_use]
    pub fn for_frames(self, frames: u64) -> Self {
        Self { standby: self.standby.min(frames / 2), ..self }
    }

    /// The same limit and shares for `pages` pages of far memory in all, and faults that need `margin`. More is never
    /// kept free than could be asked for: pages that all fit beside the least reserve stay, and of pages that almost
    /// fit, few are away, and the reserve grows with them.
    #[must_use]
    pub fn for_pages(self, pages: u64, margin: &Margin) -> Self {
        let short = (pages + RESERVE_PAGES_MIN).saturating_sub(self.limit);
        self.with_reserve((RESERVE_PAGES_MIN + short).min(self.reserve_share), pages, margin)
    }

    /// As [`Policy::for_pages`] for a limit that faults may pass. Whoever sets it wants to see what is not missed: the
    /// reserve is all of its share, so that sweeps are of many pages from the first on.
    #[must_use]
    pub fn for_pages_to_leave(self, pages: u64, margin: &Margin) -> Self {
        self.with_reserve(self.reserve_share, pages, margin)
    }

    fn with_reserve(self, reserve: u64, pages: u64, margin: &Margin) -> Self {
        let missing = (pages + reserve).saturating_sub(self.limit);
        let wanted = (reserve + margin.pages()).max(self.least_share).min(self.start_share);
        // Faults may not touch the reserve, so reclaim starts before they reach it, or not at all.
        let start = if missing == 0 { 0 } else { wanted.min(reserve + missing) };
        // Once started, for whatever reason, it goes on until faults have room again.
        let end = wanted + (self.end_share - self.start_share);
        let end = end.min(reserve + Self::DRAIN_PAGES + missing).max(start + 1);
        Self { start, end, reserve, ..self }.checked()
    }

    /// Asserts what the watermarks of every policy satisfy.
    fn checked(self) -> Self {
        assert!(0 < self.reserve && self.reserve <= RESERVE_PAGES_MAX && self.reserve < self.limit, "{self:?}");
        assert!(self.start < self.end && self.start <= self.limit, "the watermarks cross: {self:?}");
        assert!(self.start == 0 || self.start > self.reserve, "faults stop before reclaim starts: {self:?}");
        self
    }

    /// The limit of local memory in pages.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Pages that only the reclaimer may charge.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Pages that stay on standby as long as nothing more is needed.
    #[must_use]
    pub fn standby_share(&self) -> u64 {
        self.standby
    }

    /// Charged pages above which reclaim should start.
    #[must_use]
    pub fn start_above(&self) -> u64 {
        self.limit - self.start
    }

    /// Whether reclaim should start: the lower watermark is passed.
    #[must_use]
    pub fn is_low(&self, usage: &Usage) -> bool {
        self.free(usage) < self.start
    }

    /// Whether faults that map have to wait for room.
    #[must_use]
    pub fn is_full(&self, usage: &Usage) -> bool {
        self.uncharged(usage) <= self.reserve
    }

    /// How far memory is below the lower watermark.
    #[must_use]
    pub fn depth(&self, usage: &Usage) -> u64 {
        self.start.saturating_sub(self.free(usage))
    }

    /// Most pages that may be kept free for faults.
    #[must_use]
    pub fn margin_max(&self) -> u64 {
        self.start_share - self.reserve
    }

    /// Pages that faults may take before reclaim should start.
    #[must_use]
    pub fn margin(&self, usage: &Usage) -> u64 {
        self.free(usage).saturating_sub(self.start)
    }

    /// Pages that are missing until the reclaimer rests, or a batch of them if it works for another reason.
    #[must_use]
    pub fn wanted(&self, usage: &Usage) -> u64 {
        self.end.saturating_sub(self.free(usage)).max(self.reserve)
    }

    /// The next step of a reclaimer that is at work. It rests only above the upper watermark.
    ///
    /// Frames go round: the cleaner makes them spare, the evictor fills them again and thereby makes room for faults.
    /// So the cleaner runs until a sweep's worth is spare, then the first. Reads fill frames too, and nobody unmaps
    /// anything for them: as much as they take stays spare, and the evictor comes round as often as the second, so that
    /// what is mapped is not local for longer than what stands. What it sweeps has its second chance.
    #[must_use]
    pub fn decide(&self, usage: &Usage) -> Action {
        let action = self.next_step(usage);
        debug_assert!(
            match action {
                Action::Rest => true,
                Action::Drain(pages) => (1..=usage.standby).contains(&pages),
                Action::Sweep(pages) =>
                    usage.resident > 0 && (1..=usage.spare_frames + usage.headroom).contains(&pages),
                Action::Trim(pages) => (1..=usage.spare_frames).contains(&pages),
                Action::AwaitWrites => usage.writing > 0,
            },
            "{action:?} has nothing to work on in {usage:?}"
        );
        action
    }

    fn next_step(&self, usage: &Usage) -> Action {
        let (free, uncharged) = (self.free(usage), self.uncharged(usage));
        let can_map = uncharged > self.least_to_map();
        if free >= self.end && can_map {
            return Action::Rest;
        }
        let batch = self.reserve;
        // Who maps has no use for them, and is served first if there is little else.
        let for_reads = if can_map { self.spare_for_reads(usage.reads) } else { 0 };
        // Where everything fits, sweeps end as soon as their frames are given back.
        let wanted_spare = if usage.resident > 0 && self.start > 0 { batch } else { 0 };
        if usage.spare_frames > 2 * wanted_spare + for_reads {
            return Action::Trim(usage.spare_frames - wanted_spare - for_reads);
        }
        let room = usage.spare_frames + usage.headroom;
        if self.is_first_hands_turn(usage) && room >= batch / 2 {
            return Action::Sweep(room.min(batch));
        }
        let drain = Self::DRAIN_PAGES.min(usage.standby);
        // Frames being written will be spare in a moment.
        if usage.standby > self.standby && usage.spare_frames + usage.writing < batch + for_reads {
            return Action::Drain(drain);
        }
        if usage.writing > 0 && room < batch / 2 {
            // A sweep of few pages costs as many TLB flushes as one of many.
            Action::AwaitWrites
        } else if usage.resident > 0 && room > 0 {
            Action::Sweep(room.min(batch.max(self.end.saturating_sub(free))))
        } else if drain > 0 {
            Action::Drain(drain)
        } else if usage.writing > 0 {
            Action::AwaitWrites
        } else {
            Action::Rest
        }
    }

    /// Whether the cleaner is ahead of the first: it has taken more than its part of a batch of what is mapped, as far
    /// as reads are who it works for.
    fn is_first_hands_turn(&self, usage: &Usage) -> bool {
        let taken = u128::from(usage.drained) * u128::from(usage.resident) * u128::from(usage.reads);
        usage.resident > 0 && usage.reads > 0 && taken >= u128::from(self.reserve) * u128::from(usage.standby) * 256
    }

    /// How many spare frames count as free while reads take this share of local memory, in 256ths.
    #[must_use]
    pub fn spare_for_reads(&self, reads: u32) -> u64 {
        debug_assert!(reads <= 256, "{reads} parts of 256 are reads");
        self.end * u64::from(reads) / 256
    }

    /// Pages that could be taken now. Of the spare frames only those are free that reads will take: a fault that maps
    /// cannot use them.
    #[must_use]
    pub fn free(&self, usage: &Usage) -> u64 {
        self.uncharged(usage) + usage.spare_frames.min(self.spare_for_reads(usage.reads))
    }

    /// Pages that are never left to spare frames: faults that map, and what is fetched ahead of them, find more than
    /// that.
    fn least_to_map(&self) -> u64 {
        self.reserve.max(self.start.midpoint(self.reserve))
    }

    fn uncharged(&self, usage: &Usage) -> u64 {
        self.limit.saturating_sub(usage.charged)
    }
}

#[cfg(test)]
mod tests;
