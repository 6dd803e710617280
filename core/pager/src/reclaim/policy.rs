//! [`Policy`]: watermarks and the choice between the two hands.

use crate::reclaim::Margin;

/// Fewest pages of local memory that reclaim can work with: the evictor needs frames while it copies.
pub const LIMIT_PAGES_MIN: u64 = 512;
/// Most pages of local memory that can be accounted for: 8 TiB.
pub const LIMIT_PAGES_MAX: u64 = 1 << 31;
/// Most pages kept back for the evictor, so that it can always copy: one block.
pub const RESERVE_PAGES_MAX: u64 = 512;
const _: () = assert!(LIMIT_PAGES_MIN / 8 >= 64, "a sweep of fewer pages does not pay for its TLB flushes");

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
        Ok(Self { limit, start_share: start, least_share: least, end_share: end, start, end, standby, reserve }
            .checked())
    }

    /// The same with no more on standby than half of so many frames, which fetches and sweeps need as well.
    #[must_use]
    pub fn for_frames(self, frames: u64) -> Self {
        Self { standby: self.standby.min(frames / 2), ..self }
    }

    /// The same limit and shares for `pages` pages of far memory in all, and faults that need `margin`. More is never
    /// kept free than could be asked for: pages that all fit beside the reserve stay, and of pages that almost fit, few
    /// are away.
    #[must_use]
    pub fn for_pages(self, pages: u64, margin: &Margin) -> Self {
        let missing = (pages + self.reserve).saturating_sub(self.limit);
        let wanted = (self.reserve + margin.pages()).max(self.least_share).min(self.start_share);
        // Faults may not touch the reserve, so reclaim starts before they reach it, or not at all.
        let start = if missing == 0 { 0 } else { wanted.min(self.reserve + missing) };
        // Once started, for whatever reason, it goes on until faults have room again.
        let end = wanted + (self.end_share - self.start_share);
        let end = end.min(self.reserve + Self::DRAIN_PAGES + missing).max(start + 1);
        Self { start, end, ..self }.checked()
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(limit: u64) -> Policy {
        Policy::new(limit, Shares::default()).unwrap()
    }

    #[test]
    fn shares_must_be_ordered() {
        for (start_percent, end_percent) in [(0.0, 5.0), (17.0, 15.0), (50.0, 89.0)] {
            assert!(Policy::new(4096, Shares { start_percent, end_percent, ..Shares::default() }).is_err());
        }
    }

    #[test]
    fn starts_low_and_stops_high() {
        let policy = policy(10_000);
        let at = |resident| Usage { charged: resident, resident, headroom: 10_000 - resident, ..Usage::default() };
        assert!(!policy.is_low(&at(8_400)) && policy.is_low(&at(8_501)));
        assert_eq!(policy.decide(&at(8_300)), Action::Rest);
        assert!(matches!(policy.decide(&at(8_400)), Action::Sweep(_)));
    }

    #[test]
    fn what_fits_stays() {
        let full = |policy: Policy| {
            let charged = policy.limit() - policy.reserve();
            Usage { charged, resident: charged, headroom: policy.reserve(), ..Usage::default() }
        };
        let most = Margin::of(65_536);
        let fits = policy(65_536).for_pages(65_536 - RESERVE_PAGES_MAX, &most);
        assert!(!fits.is_low(&full(fits)) && fits.start_above() == fits.limit());
        // Somebody waits for room nevertheless: frames hold it, and are given back.
        assert_ne!(fits.decide(&full(fits)), Action::Rest);
        let with_frames = Usage { charged: fits.limit() - 100, spare_frames: 600, headroom: 100, ..full(fits) };
        assert_eq!(fits.decide(&with_frames), Action::Trim(600), "they hold what is missing");
        let almost = policy(65_536).for_pages(65_536, &most);
        assert!(!matches!(almost.decide(&with_frames), Action::Trim(_)), "sweeps need them");
        assert!(almost.is_low(&full(almost)));
        assert_eq!(almost.start_above(), 65_536 - 2 * RESERVE_PAGES_MAX);
        // It rests once as many are away as there is no room for, and a batch: more would only be missed.
        let away = RESERVE_PAGES_MAX + Policy::DRAIN_PAGES;
        let with_away = |pages: u64| {
            let charged = almost.limit() - almost.reserve() - pages;
            Usage { charged, resident: charged, headroom: almost.reserve() + pages, ..Usage::default() }
        };
        assert_eq!(almost.decide(&with_away(away)), Action::Rest);
        assert_ne!(almost.decide(&with_away(away - 1)), Action::Rest);
        let scarce = policy(65_536);
        assert_eq!(scarce.for_pages(5 * 65_536, &most), scarce);
        let little = scarce.for_pages(5 * 65_536, &Margin::default());
        assert_eq!(little.start_above(), 65_536 - 655, "faults that need little leave the rest to pages");
    }

    #[test]
    fn a_limit_far_below_what_is_mapped_is_still_swept_towards() {
        let usage = Usage { charged: 1550, resident: 1550, headroom: 2_400, ..Usage::default() };
        assert!(matches!(policy(1024).decide(&usage), Action::Sweep(_)));
    }

    #[test]
    fn dead_node_leaves_only_waiting() {
        let usage = Usage { charged: 512, writing: 512, ..Usage::default() };
        assert_eq!(policy(512).decide(&usage), Action::AwaitWrites);
    }

    proptest! {
        /// A model of local memory under the policy: whatever faults do, the limit holds and reclaim ends.
        #[test]
        fn reclaim_always_reaches_the_upper_watermark(
            limit in 512u64..100_000, faults in prop::collection::vec(1u64..5_000, 1..30), dirty in any::<bool>(),
            percent in 80u64..500, start_percent in 0.1f64..40.0, more_percent in 0.1f64..20.0, depth in 0u64..10_000,
            reads in 0u32..=256,
        ) {
            let end_percent = start_percent + more_percent;
            let shares = Shares { start_percent, least_percent: start_percent / 8.0, end_percent, standby_percent: 10.0 };
            let mut margin = Margin::default();
            margin.saw(depth, 20_000);
            let policy = Policy::new(limit, shares).unwrap().for_pages(limit * percent / 100, &margin);
            let mut usage = Usage { reads, ..Usage::default() };
            for wanted in faults {
                // Reads take spare frames before they take bare ones.
                let (to_read, to_map) = (wanted * u64::from(reads) / 256, wanted - wanted * u64::from(reads) / 256);
                let from_spare = to_read.min(usage.spare_frames);
                let room = policy.limit().saturating_sub(policy.reserve()).saturating_sub(usage.charged);
                let bare = (to_read - from_spare).min(room);
                let mapped = to_map.min(room - bare);
                usage.spare_frames -= from_spare;
                usage.standby += from_spare + bare;
                usage.charged += bare + mapped;
                usage.resident += mapped;
                for step in 0.. {
                    prop_assert!(step < 100_000, "reclaim does not end: {usage:?}");
                    prop_assert!(usage.charged <= policy.limit());
                    usage.headroom = policy.limit() - usage.charged;
                    match policy.decide(&usage) {
                        Action::Rest => break,
                        Action::Trim(pages) => { usage.spare_frames -= pages; usage.charged -= pages; }
                        Action::Drain(pages) => {
                            prop_assert!(pages <= usage.standby);
                            usage.standby -= pages;
                            usage.drained += pages;
                            if dirty { usage.writing += pages } else { usage.spare_frames += pages }
                        }
                        Action::Sweep(pages) => {
                            let swept = pages.min(usage.resident).min(512);
                            let backed = swept.saturating_sub(usage.spare_frames);
                            prop_assert!(usage.charged + backed <= policy.limit(), "no room to copy: {usage:?}");
                            usage.spare_frames -= swept - backed;
                            usage.charged = usage.charged + backed - swept;
                            usage.resident -= swept;
                            usage.drained = 0;
                            usage.standby += swept;
                        }
                        Action::AwaitWrites => { usage.spare_frames += usage.writing; usage.writing = 0; }
                    }
                }
                prop_assert!(policy.free(&usage) >= policy.end || usage.resident == 0);
                prop_assert!(policy.uncharged(&usage) > policy.least_to_map(), "faults have no room: {policy:?}, {usage:?}");
            }
        }

        /// What is mapped and not touched again does not hold local memory against reads for ever: it goes in the time
        /// in which they go through all of it a few times.
        #[test]
        fn reads_take_the_place_of_what_is_mapped_and_cold(limit in 1_024u64..100_000, mapped_percent in 5u64..80) {
            let policy = Policy::new(limit, Shares::default()).unwrap().for_pages(5 * limit, &Margin::default());
            let resident = limit * mapped_percent / 100;
            let mut usage = Usage { resident, charged: resident, reads: 256, ..Usage::default() };
            let mut read = 0;
            while read < 5 * limit {
                let bare = (policy.start_above() + 1).saturating_sub(usage.charged);
                read += usage.spare_frames + bare;
                usage.standby += usage.spare_frames + bare;
                usage.charged += bare;
                usage.spare_frames = 0;
                for step in 0.. {
                    prop_assert!(step < 10_000, "reclaim does not end: {usage:?}");
                    usage.headroom = policy.limit() - usage.charged;
                    match policy.decide(&usage) {
                        Action::Drain(pages) => {
                            usage.standby -= pages;
                            usage.spare_frames += pages;
                            usage.drained += pages;
                        }
                        Action::Sweep(pages) => {
                            let swept = pages.min(usage.resident);
                            let backed = swept.saturating_sub(usage.spare_frames);
                            usage.spare_frames -= swept - backed;
                            usage.charged = usage.charged + backed - swept;
                            usage.resident -= swept;
                            usage.standby += swept;
                            usage.drained = 0;
                        }
                        Action::Trim(pages) => {
                            usage.spare_frames -= pages;
                            usage.charged -= pages;
                        }
                        Action::Rest => break,
                        Action::AwaitWrites => unreachable!("nothing is dirty"),
                    }
                }
            }
            prop_assert!(usage.resident < resident / 10 + policy.reserve(), "{usage:?} of {resident}");
        }

        /// Where nobody reads in frames, spare frames are not free, and the cleaner has them all for the first.
        #[test]
        fn spare_frames_are_free_as_far_as_reads_take_them(spare in 0u64..20_000, reads in 0u32..=256) {
            let policy = policy(100_000);
            let usage = Usage { charged: 90_000, resident: 60_000, spare_frames: spare, reads, ..Usage::default() };
            let free = policy.free(&usage);
            prop_assert!((10_000..=10_000 + spare).contains(&free));
            prop_assert_eq!(free == 10_000, spare.min(policy.spare_for_reads(reads)) == 0);
        }
    }

    #[test]
    #[should_panic(expected = "the watermarks cross")]
    fn watermarks_that_cross_are_our_bug() {
        let policy = policy(LIMIT_PAGES_MIN);
        let _ = Policy { end: policy.start, ..policy }.checked();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "parts of 256")]
    fn more_reads_than_all_are_our_bug() {
        let _ = policy(LIMIT_PAGES_MIN).decide(&Usage { reads: 257, ..Usage::default() });
    }
}
