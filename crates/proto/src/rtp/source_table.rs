//! Table of the sources of one port, with their addresses and a bound on their slot.
//!
//! A flood of forged sources must not cost memory and must not stop a running stream. When the
//! table is full, the least recently received source that is not validated is removed; a validated
//! source is removed only after a timeout. One SSRC from two addresses is a collision or a loop
//! (RFC 3550, 8.2): the first address keeps it.

use core::net::SocketAddr;

use aulos_core::{Instant, Span};

use super::ssrc_map::SsrcMap;

/// Configuration of a [`SourceTable`].
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a configuration, made with Default and changed")]
pub struct SourceTableConfig {
    /// Maximum number of sources; 1 to 1,048,576.
    pub capacity: usize,
    /// A source without packets for this long may move to another address, or be evicted.
    pub idle_timeout: Span,
    /// Hash key, which peers must not be able to guess.
    pub key: u64,
}

impl Default for SourceTableConfig {
    fn default() -> Self {
        Self { capacity: 64, idle_timeout: Span::from_secs(5), key: 0 }
    }
}

/// Handle of a source in its table; valid until the source is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(u32);

/// Result of looking up a packet's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a receiver has to handle every case")]
pub enum SourceLookup<T> {
    /// A known source.
    Known(SourceId),
    /// A new source, with the evicted one if the table was full.
    Inserted(SourceId, Option<(u32, T)>),
    /// A known source that was idle and has a new address.
    Moved(SourceId),
    /// Another address uses this SSRC and is still sending: a collision or a loop. Drop the packet.
    Collision,
    /// The table is full of validated sources that are not idle. Drop the packet.
    Full,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceTableStats {
    /// Inserted sources.
    pub inserted: u64,
    /// Evicted sources.
    pub evicted: u64,
    /// Packets of new sources that were dropped because the table was full.
    pub refused: u64,
    /// Packets with the SSRC of a source at another address.
    pub collisions: u64,
    /// Sources that changed their address.
    pub moved: u64,
}

/// Sources of one port by SSRC, with a value `T` each.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::{RtpReceiver, SourceLookup, SourceTable, SourceTableConfig};
///
/// let mut table = SourceTable::<RtpReceiver>::new(SourceTableConfig::default());
/// let from = "192.0.2.1:5004".parse()?;
/// let inserted = table.find_or_insert(Instant::ZERO, 7, from, RtpReceiver::new);
/// let SourceLookup::Inserted(id, None) = inserted else { unreachable!("there is room") };
/// let again = table.find_or_insert(Instant::ZERO, 7, from, RtpReceiver::new);
/// assert!(matches!(again, SourceLookup::Known(known) if known == id));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SourceTable<T> {
    slots: SsrcMap<SourceEntry<T>>,
    idle: Span,
    stats: SourceTableStats,
}

#[derive(Clone, Debug)]
struct SourceEntry<T> {
    from: SocketAddr,
    last_received: Instant,
    value: T,
}

impl<T> SourceTable<T> {
    /// An empty table. All memory is allocated here.
    #[must_use]
    pub fn new(config: SourceTableConfig) -> Self {
        let slots = SsrcMap::new(config.capacity, config.key);
        Self { slots, idle: config.idle_timeout, stats: SourceTableStats::default() }
    }

    /// Looks up a packet's source and inserts it when it is new.
    ///
    /// # Real-time
    /// Neither waits nor allocates, if `make` does not.
    pub fn find_or_insert(
        &mut self,
        now: Instant,
        ssrc: u32,
        from: SocketAddr,
        make: impl FnOnce() -> T,
    ) -> SourceLookup<T> {
        if let Some(slot) = self.slots.find(ssrc) {
            return self.update_known(now, slot, from);
        }
        let evicted = if self.slots.len() < self.slots.capacity() {
            None
        } else if let Some(victim) = self.eviction_candidate(now) {
            self.stats.evicted += 1;
            self.slots.remove(victim).map(|(ssrc, entry)| (ssrc, entry.value))
        } else {
            self.stats.refused += 1;
            return SourceLookup::Full;
        };
        match self.slots.insert(ssrc, SourceEntry { from, last_received: now, value: make() }) {
            Some(slot) => {
                self.stats.inserted += 1;
                SourceLookup::Inserted(SourceId(slot), evicted)
            }
            None => SourceLookup::Full,
        }
    }

    /// Marks the source as validated: from now on it is evicted only when it is idle.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn mark_valid(&mut self, id: SourceId) {
        self.slots.mark_valid(id.0);
    }

    /// Removes a source.
    ///
    /// # Real-time
    /// Neither allocates nor frees, but for the value that it returns.
    pub fn remove(&mut self, id: SourceId) -> Option<(u32, T)> {
        self.slots.remove(id.0).map(|(ssrc, entry)| (ssrc, entry.value))
    }

    /// Removes a source that has been idle for at least `limit`; call it until it returns `None`.
    ///
    /// # Real-time
    /// Neither allocates nor frees, but for the value that it returns.
    pub fn expire(&mut self, now: Instant, limit: Span) -> Option<(u32, T)> {
        let quiet = |slot: &u32| self.idle_time(now, *slot) >= limit;
        let oldest = [false, true].into_iter().filter_map(|proven| self.slots.least_recent(proven));
        let slot = oldest.filter(quiet).max_by_key(|slot| self.idle_time(now, *slot))?;
        self.remove(SourceId(slot))
    }

    /// The value of a source.
    pub fn get_mut(&mut self, id: SourceId) -> Option<&mut T> {
        self.slots.get_mut(id.0).map(|entry| &mut entry.value)
    }

    /// The value of a source.
    #[must_use]
    pub fn get(&self, id: SourceId) -> Option<&T> {
        self.slots.get(id.0).map(|entry| &entry.value)
    }

    /// Address of a source.
    #[must_use]
    pub fn address(&self, id: SourceId) -> Option<SocketAddr> {
        self.slots.get(id.0).map(|entry| entry.from)
    }

    /// Handle of a source by its SSRC.
    #[must_use]
    pub fn find(&self, ssrc: u32) -> Option<SourceId> {
        self.slots.find(ssrc).map(SourceId)
    }

    /// All sources with their SSRCs, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().map(|(ssrc, entry)| (ssrc, &entry.value))
    }

    /// All sources with their SSRCs, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.iter_mut().map(|(ssrc, entry)| (ssrc, &mut entry.value))
    }

    /// All sources with their SSRCs, beginning after `ssrc`: a report has room for 31, and the next
    /// one continues after the last source reported.
    pub fn iter_mut_after(&mut self, ssrc: u32) -> impl Iterator<Item = (u32, &mut T)> {
        let slot = self.slots.find(ssrc).unwrap_or(0);
        let entries = self.slots.iter_mut_after(slot);
        entries.map(|(ssrc, entry)| (ssrc, &mut entry.value))
    }

    /// Number of sources.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> SourceTableStats {
        self.stats
    }

    fn update_known(&mut self, now: Instant, slot: u32, from: SocketAddr) -> SourceLookup<T> {
        let idle = self.idle_time(now, slot) >= self.idle;
        let Some(entry) = self.slots.get_mut(slot) else { return SourceLookup::Full };
        let moved = entry.from != from;
        if moved && !idle {
            self.stats.collisions += 1;
            return SourceLookup::Collision;
        }
        (entry.from, entry.last_received) = (from, entry.last_received.max(now));
        self.slots.touch(slot);
        if moved {
            self.stats.moved += 1;
            return SourceLookup::Moved(SourceId(slot));
        }
        SourceLookup::Known(SourceId(slot))
    }

    /// The source to evict when the table is full.
    fn eviction_candidate(&self, now: Instant) -> Option<u32> {
        let proven =
            || self.slots.least_recent(true).filter(|at| self.idle_time(now, *at) >= self.idle);
        self.slots.least_recent(false).or_else(proven)
    }

    fn idle_time(&self, now: Instant, slot: u32) -> Span {
        self.slots.get(slot).map_or(Span::ZERO, |entry| now.since(entry.last_received))
    }
}

/// Maximum number of remembered conflicting addresses.
pub const MAX_CONFLICTS: usize = 8;

/// Classification of a packet by its SSRC (RFC 3550, 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a receiver has to handle every case")]
pub enum SsrcCheck {
    /// The SSRC is not the local one.
    Foreign,
    /// The local SSRC, for the first time from this address: send BYE and choose another SSRC.
    Collision,
    /// The local SSRC again from a conflicting address, although it was changed: packets of this
    /// host are looped back.
    Loop,
}

/// The local SSRC, and the addresses that used it as well.
#[derive(Clone, Debug)]
pub struct LocalSsrc {
    ssrc: u32,
    conflict_timeout: Span,
    conflicts: [Option<(SocketAddr, Instant)>; MAX_CONFLICTS],
}

impl LocalSsrc {
    /// `conflict_timeout` is how long a conflicting address is remembered; RFC 3550 recommends ten
    /// report intervals.
    #[must_use]
    pub const fn new(ssrc: u32, conflict_timeout: Span) -> Self {
        Self { ssrc, conflict_timeout, conflicts: [None; MAX_CONFLICTS] }
    }

    /// The local SSRC.
    #[must_use]
    pub const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Changes the SSRC after a collision.
    pub const fn change(&mut self, ssrc: u32) {
        self.ssrc = ssrc;
    }

    /// Classifies a packet by its SSRC and source address.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn check(&mut self, now: Instant, ssrc: u32, from: SocketAddr) -> SsrcCheck {
        if ssrc != self.ssrc {
            return SsrcCheck::Foreign;
        }
        let alive = |at: &Instant| now.since(*at) < self.conflict_timeout;
        let known = self.conflicts.iter_mut().flatten();
        if let Some((_, at)) = known.into_iter().find(|(other, at)| *other == from && alive(at)) {
            *at = now;
            return SsrcCheck::Loop;
        }
        let age = |entry: &&mut Option<(SocketAddr, Instant)>| entry.map(|(_, at)| at);
        if let Some(oldest) = self.conflicts.iter_mut().min_by_key(age) {
            *oldest = Some((from, now));
        }
        SsrcCheck::Collision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn at(millis: i64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    fn table(capacity: usize) -> SourceTable<u32> {
        SourceTable::new(SourceTableConfig { capacity, ..SourceTableConfig::default() })
    }

    #[test]
    fn a_flood_does_not_evict_active_sources() {
        let mut table = table(100);
        for ssrc in 0..90 {
            let SourceLookup::Inserted(id, None) =
                table.find_or_insert(at(0), ssrc, from(1), || ssrc)
            else {
                panic!("there is room")
            };
            table.mark_valid(id);
        }
        for packet in 0..100_000_u32 {
            let now = at(i64::from(packet / 100));
            table.find_or_insert(now, 1_000 + packet, from(2), || 0);
            assert!(matches!(
                table.find_or_insert(now, packet % 90, from(1), || 0),
                SourceLookup::Known(_)
            ));
        }
        assert_eq!(table.len(), 100);
        let stats = table.stats();
        assert_eq!((stats.inserted, stats.evicted, stats.refused), (100_090, 99_990, 0));
        assert!((0..90).all(|ssrc| table.find(ssrc).is_some()));
    }

    #[test]
    fn a_validated_source_times_out_when_silent() {
        let mut table = table(2);
        for ssrc in [1, 2] {
            let SourceLookup::Inserted(id, _) = table.find_or_insert(at(0), ssrc, from(1), || ssrc)
            else {
                panic!()
            };
            table.mark_valid(id);
        }
        table.find_or_insert(at(1_000), 1, from(1), || 0);
        assert_eq!(table.find_or_insert(at(4_999), 3, from(1), || 3), SourceLookup::Full);
        assert!(matches!(
            table.find_or_insert(at(5_000), 3, from(1), || 3),
            SourceLookup::Inserted(_, Some((2, 2)))
        ));
        assert_eq!(table.stats().refused, 1);
        assert_eq!(table.expire(at(5_999), Span::from_secs(5)), None);
        assert_eq!(table.expire(at(6_000), Span::from_secs(5)), Some((1, 1)));
        assert_eq!(table.expire(at(60_000), Span::from_secs(5)), Some((3, 3)));
        assert!(table.is_empty() && table.expire(at(60_000), Span::ZERO).is_none());
    }

    #[test]
    fn the_first_address_has_the_number() {
        let mut table = table(2);
        let SourceLookup::Inserted(id, None) = table.find_or_insert(at(0), 1, from(1), || 1) else {
            panic!()
        };
        assert_eq!(table.find_or_insert(at(4_999), 1, from(2), || 2), SourceLookup::Collision);
        assert_eq!(table.address(id), Some(from(1)));
        assert_eq!(table.find_or_insert(at(5_000), 1, from(2), || 2), SourceLookup::Moved(id));
        assert_eq!((table.get(id), table.address(id)), (Some(&1), Some(from(2))));
        assert_eq!((table.stats().collisions, table.stats().moved), (1, 1));
    }

    #[test]
    fn everybody_has_a_turn() {
        let mut table = table(100);
        for ssrc in 0..100 {
            table.find_or_insert(at(0), ssrc, from(1), || 0);
        }
        let mut last = 0;
        for _ in 0..10 {
            for (ssrc, turns) in table.iter_mut_after(last).take(31) {
                *turns += 1;
                last = ssrc;
            }
        }
        assert!(table.iter().all(|(_, turns)| (3..=4).contains(turns)));
        table.remove(SourceId(0));
        assert_eq!(table.iter_mut_after(99).count(), 99);
        assert_eq!(table.iter_mut_after(12_345).count(), 99, "a source that is gone");
    }

    /// RFC 3550, 8.2: the first packet is a collision, further ones from that address are a loop.
    #[test]
    fn our_own_ssrc_in_a_packet_is_a_collision() {
        let mut identity = LocalSsrc::new(7, Span::from_secs(50));
        assert_eq!(identity.check(at(0), 8, from(1)), SsrcCheck::Foreign);
        assert_eq!(identity.check(at(0), 7, from(1)), SsrcCheck::Collision);
        identity.change(9);
        assert_eq!(identity.check(at(20), 9, from(1)), SsrcCheck::Loop);
        assert_eq!(identity.check(at(49_000), 9, from(1)), SsrcCheck::Loop);
        assert_eq!(identity.check(at(99_000), 9, from(1)), SsrcCheck::Collision, "forgotten");
        for port in 0..100 {
            assert_eq!(identity.check(at(100_000), 9, from(port + 2)), SsrcCheck::Collision);
        }
    }
}
