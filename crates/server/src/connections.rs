//! Connection slots of a port: how many connections it accepts, and which one is closed for a new
//! one.
//!
//! A port has a fixed number of slots. A connection that has not made its first request (or has not
//! logged in, where a login is required) keeps its slot only until a new connection needs it; the
//! oldest one is closed first. Idle connections therefore cannot exhaust the port, and the time
//! limit for a first request need not be short. One address gets at most a quarter of the slots.
//! Connections that are neither local nor logged in leave an eighth of the slots free. A plain
//! connection count let one machine hold all slots of a port.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_control::count;
use aulos_io::reactor::address_key;
use tokio::sync::Notify;

/// The reciprocal of the share of slots that one address may hold. Loopback is exempt: a local
/// proxy makes all its connections from there.
const ADDRESS_SHARE: usize = 4;

/// The reciprocal of the share of slots reserved for local connections and those that have logged
/// in.
const RESERVED_SHARE: usize = 8;

/// The slots of a port, shared by its connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlots(Arc<Mutex<SlotTable>>);

impl ConnectionSlots {
    /// A port that accepts `total` connections at once.
    pub(crate) fn new(total: usize) -> Self {
        Self(Arc::new(Mutex::new(SlotTable::new(total))))
    }

    /// Admits a connection from this address.
    ///
    /// # Errors
    /// [`SlotError`].
    pub(crate) fn admit(&self, from: IpAddr) -> Result<ConnectionPermit, SlotError> {
        self.admit_sharing(from, Sharing::of(from))
    }

    /// Admits a connection from a trusted proxy, whose clients have their shares each
    /// ([`ConnectionPermit::set_client`]).
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(crate) fn admit_proxy(&self, from: IpAddr) -> Result<ConnectionPermit, SlotError> {
        self.admit_sharing(from, Sharing::Exempt)
    }

    fn admit_sharing(&self, from: IpAddr, sharing: Sharing) -> Result<ConnectionPermit, SlotError> {
        let cut = Arc::new(Notify::new());
        let id = lock(&self.0).admit(from, sharing, Arc::clone(&cut))?;
        Ok(ConnectionPermit { slots: Arc::clone(&self.0), id, cut })
    }
}

/// A connection's slot, released on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    slots: Arc<Mutex<SlotTable>>,
    id: u64,
    cut: Arc<Notify>,
}

impl ConnectionPermit {
    /// Waits until the slot is given to another connection.
    pub(crate) async fn revoked(&self) {
        self.cut.notified().await;
    }

    /// Runs a connection until it ends or loses its slot; the latter is counted in `revocations`.
    pub(crate) async fn run_until_revoked(
        &self,
        connection: impl Future<Output = ()>,
        revocations: &AtomicU64,
    ) {
        tokio::select! {
            biased;
            () = self.revoked() => count(revocations),
            () = connection => {}
        }
    }

    /// Sets the client of the connection's next request, where a trusted proxy passes on requests
    /// of many. The slot counts for that client from now on, and is no longer permanent if it is
    /// another one than before.
    ///
    /// # Errors
    /// [`SlotError::AddressShare`], when the client holds its share.
    pub(crate) fn set_client(&self, from: IpAddr) -> Result<(), SlotError> {
        lock(&self.slots).set_client(self.id, from)
    }

    /// Makes the slot permanent after the first permitted request. `trusted` means that the
    /// connection has logged in.
    ///
    /// # Errors
    /// [`SlotError::Full`], when the slots for connections without a login are taken.
    pub(crate) fn establish(&self, trusted: bool) -> Result<(), SlotError> {
        lock(&self.slots).establish(self.id, trusted)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        lock(&self.slots).remove(self.id);
    }
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// All slots are held by connections that have made a request.
    Full,
    /// The address holds its share.
    AddressShare,
}

/// How far a connection has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionStage {
    /// It has made no permitted request.
    Pending,
    /// It has made a request without a login.
    Anonymous,
    /// It has logged in, or is local.
    Trusted,
}

/// Whether an address has only a share of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Limited,
    Exempt,
}

impl Sharing {
    const fn of(from: IpAddr) -> Self {
        if from.to_canonical().is_loopback() { Self::Exempt } else { Self::Limited }
    }
}

#[derive(Debug)]
struct Connection {
    address: u128,
    is_local: bool,
    stage: ConnectionStage,
    cut: Arc<Notify>,
}

/// The slots of a port, without I/O.
#[derive(Debug)]
struct SlotTable {
    total: usize,
    /// Ordered by age.
    open: BTreeMap<u64, Connection>,
    next: u64,
}

impl SlotTable {
    const fn new(total: usize) -> Self {
        Self { total, open: BTreeMap::new(), next: 0 }
    }

    fn admit(
        &mut self,
        from: IpAddr,
        sharing: Sharing,
        cut: Arc<Notify>,
    ) -> Result<u64, SlotError> {
        let from = from.to_canonical();
        let (address, is_local) = (address_key(from), from.is_loopback());
        self.check_share(address, sharing)?;
        if self.open.len() >= self.total {
            self.evict_oldest_pending(|_| true).ok_or(SlotError::Full)?;
        }
        let id = self.next;
        self.next += 1;
        self.open
            .insert(id, Connection { address, is_local, stage: ConnectionStage::Pending, cut });
        Ok(id)
    }

    /// Checks that an address may hold one more slot; its oldest connection without a request gives
    /// way.
    fn check_share(&mut self, address: u128, sharing: Sharing) -> Result<(), SlotError> {
        let has_address = |one: &Connection| one.address == address;
        if sharing == Sharing::Limited && self.count(has_address) >= self.total / ADDRESS_SHARE {
            self.evict_oldest_pending(has_address).ok_or(SlotError::AddressShare)?;
        }
        Ok(())
    }

    fn set_client(&mut self, id: u64, from: IpAddr) -> Result<(), SlotError> {
        let from = from.to_canonical();
        let address = address_key(from);
        if self.open.get(&id).is_some_and(|one| one.address == address) {
            return Ok(());
        }
        self.check_share(address, Sharing::of(from))?;
        if let Some(one) = self.open.get_mut(&id) {
            (one.address, one.is_local) = (address, from.is_loopback());
            one.stage = ConnectionStage::Pending;
        }
        Ok(())
    }

    fn establish(&mut self, id: u64, trusted: bool) -> Result<(), SlotError> {
        // The slot was taken away a moment ago.
        let one = self.open.get(&id).ok_or(SlotError::Full)?;
        let stage = if trusted || one.is_local {
            ConnectionStage::Trusted
        } else {
            ConnectionStage::Anonymous
        };
        if one.stage >= stage {
            return Ok(());
        }
        let limit = self.total - self.total / RESERVED_SHARE;
        let anonymous = |one: &Connection| one.stage == ConnectionStage::Anonymous;
        if stage == ConnectionStage::Anonymous && self.count(anonymous) >= limit {
            return Err(SlotError::Full);
        }
        if let Some(one) = self.open.get_mut(&id) {
            one.stage = stage;
        }
        Ok(())
    }

    fn remove(&mut self, id: u64) {
        self.open.remove(&id);
    }

    fn count(&self, which: impl Fn(&Connection) -> bool) -> usize {
        self.open.values().filter(|one| which(one)).count()
    }

    /// Closes the oldest matching connection that has made no request.
    fn evict_oldest_pending(&mut self, which: impl Fn(&Connection) -> bool) -> Option<()> {
        let is_evictable = |one: &Connection| one.stage == ConnectionStage::Pending && which(one);
        let (&id, _) = self.open.iter().find(|(_, one)| is_evictable(one))?;
        self.open.remove(&id)?.cut.notify_one();
        Some(())
    }
}

/// A poisoned lock is taken all the same: the table is consistent after each statement.
fn lock(table: &Mutex<SlotTable>) -> MutexGuard<'_, SlotTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TOTAL: usize = 64;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xC000_0200 + number).into()
    }

    fn enter(table: &mut SlotTable, from: IpAddr) -> Result<u64, SlotError> {
        table.admit(from, Sharing::of(from), Arc::default())
    }

    #[test]
    fn one_address_has_a_quarter_of_the_slots_and_its_oldest_half_request_is_evictable() {
        let mut table = SlotTable::new(TOTAL);
        let quarter = TOTAL / ADDRESS_SHARE;
        let ids: Vec<_> = (0..quarter).map(|_| enter(&mut table, address(1)).unwrap()).collect();
        ids[1..].iter().for_each(|id| table.establish(*id, false).unwrap());
        // The first connection is idle; the new one takes its slot, and no other idle one is left.
        let newcomer = enter(&mut table, address(1)).unwrap();
        assert!(!table.open.contains_key(&ids[0]) && table.open.contains_key(&ids[1]));
        assert_eq!(table.establish(ids[0], true), Err(SlotError::Full), "it has been cut");
        table.establish(newcomer, false).unwrap();
        assert_eq!(enter(&mut table, address(1)), Err(SlotError::AddressShare));
        assert!(enter(&mut table, address(2)).is_ok());
        table.remove(newcomer);
        assert!(enter(&mut table, address(1)).is_ok());
    }

    #[test]
    fn the_share_of_a_client_behind_a_proxy_is_its_own() {
        let mut table = SlotTable::new(TOTAL);
        let quarter = TOTAL / ADDRESS_SHARE;
        let through_proxy = |table: &mut SlotTable, client: IpAddr| {
            let id = table.admit(address(99), Sharing::Exempt, Arc::default())?;
            let set = table.set_client(id, client);
            if set.is_err() {
                table.remove(id);
            }
            set?;
            table.establish(id, false).map(|()| id)
        };
        let mut ids = Vec::new();
        for client in 1..=3 {
            for _ in 0..quarter {
                ids.push(through_proxy(&mut table, address(client)).unwrap());
            }
            let one_more = through_proxy(&mut table, address(client));
            assert_eq!(one_more, Err(SlotError::AddressShare), "{client}");
        }
        // A connection that the proxy uses again counts for its present client alone.
        table.set_client(ids[0], address(4)).unwrap();
        assert_eq!(table.set_client(ids[quarter], address(1)), Ok(()));
        // A slot is permanent for the client that has made it so.
        assert_eq!(table.open[&ids[1]].stage, ConnectionStage::Anonymous);
        assert_eq!(table.open[&ids[0]].stage, ConnectionStage::Pending);
        // What comes from another machine is not local, whatever the proxy's address is.
        let local = enter(&mut table, Ipv4Addr::LOCALHOST.into()).unwrap();
        table.set_client(local, address(5)).unwrap();
        table.establish(local, false).unwrap();
        assert_eq!(table.open[&local].stage, ConnectionStage::Anonymous);
    }

    #[test]
    fn one_network_of_ipv6_is_one_address_and_loopback_has_every_slot() {
        let mut table = SlotTable::new(TOTAL);
        let host = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        for number in (0..).take(TOTAL / ADDRESS_SHARE) {
            let id = enter(&mut table, host(number)).unwrap();
            table.establish(id, false).unwrap();
        }
        assert_eq!(enter(&mut table, host(9_999)), Err(SlotError::AddressShare));
        let mut table = SlotTable::new(TOTAL);
        for _ in 0..TOTAL {
            let id = enter(&mut table, Ipv4Addr::LOCALHOST.into()).unwrap();
            table.establish(id, false).unwrap();
        }
        assert_eq!(enter(&mut table, Ipv4Addr::LOCALHOST.into()), Err(SlotError::Full));
    }

    #[test]
    fn silence_holds_no_slot_and_the_oldest_silence_ends_first() {
        let mut table = SlotTable::new(TOTAL);
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let ids: Vec<_> = (0..TOTAL).map(|_| enter(&mut table, local).unwrap()).collect();
        for expected in &ids {
            let id = enter(&mut table, address(1)).unwrap();
            assert!(!table.open.contains_key(expected));
            table.remove(id);
            enter(&mut table, local).unwrap();
        }
        assert_eq!(table.open.len(), TOTAL);
    }

    #[test]
    fn whoever_logs_in_finds_a_slot_when_those_who_do_not_have_taken_theirs() {
        let mut table = SlotTable::new(TOTAL);
        let places = TOTAL - TOTAL / RESERVED_SHARE;
        for number in (0..).take(places) {
            let id = enter(&mut table, address(number)).unwrap();
            table.establish(id, false).unwrap();
            // Establishing twice counts once.
            table.establish(id, false).unwrap();
        }
        let one_more = enter(&mut table, address(9_000)).unwrap();
        assert_eq!(table.establish(one_more, false), Err(SlotError::Full));
        for number in (10_000..).take(TOTAL / RESERVED_SHARE) {
            let id = enter(&mut table, address(number)).unwrap();
            assert_eq!(table.establish(id, true), Ok(()), "{number}");
        }
        assert!(!table.open.contains_key(&one_more), "it has made no request that it may make");
        assert_eq!(enter(&mut table, address(11_000)), Err(SlotError::Full));
    }

    #[test]
    fn a_slot_is_free_when_its_permit_is_dropped_and_the_one_that_is_cut_is_told() {
        let slots = ConnectionSlots::new(2);
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (first, second) = (slots.admit(local).unwrap(), slots.admit(local).unwrap());
        second.establish(false).unwrap();
        let third = slots.admit(local).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let cut = AtomicU64::new(0);
        runtime.block_on(first.run_until_revoked(std::future::pending(), &cut));
        assert_eq!(cut.into_inner(), 1);
        third.establish(false).unwrap();
        // The slot of a closed connection already belongs to another one.
        drop(first);
        assert_eq!(slots.admit(local).unwrap_err(), SlotError::Full);
        drop(second);
        assert!(slots.admit(local).is_ok());
    }
}
