//! All transitions of a neighbour, and the invariants of the table after random events.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const SECOND: Nanos = Nanos::from_secs(1);

fn addr(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn table(entries_max: u32) -> NeighbourTable {
    NeighbourTable::new(
        NeighbourConfig { entries_max, ..NeighbourConfig::default() },
        FlowHasher::new([1, 2]),
    )
}

/// Runs the table at each of its deadlines up to `until`. Returns the sent requests with their
/// times.
fn run(table: &mut NeighbourTable, until: Nanos) -> Vec<(Nanos, IpAddr, Option<MacAddr>)> {
    let mut sent = Vec::new();
    while table.next_due() <= until {
        let due = table.next_due();
        table.on_due(due, |addr, mac| sent.push((due, addr, mac)));
        table.check().expect("invariants");
    }
    sent
}

#[test]
fn a_pending_neighbour_is_requested_once() {
    let mut table = table(8);
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::SendRequest);
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::Pending);
    assert_eq!(
        table.learn(SECOND, addr(2), NeighbourUpdate::from_arp(mac(2), false)),
        LearnOutcome::Resolved
    );
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::Known(mac(2)));
}

#[test]
fn a_silent_neighbour_fails_after_three_requests_and_is_held_down() {
    // RFC 1122 s2.3.2.1: at most one request per second to one destination.
    let mut table = table(8);
    table.resolve(Nanos::ZERO, addr(2));
    let sent = run(&mut table, SECOND.times(3));
    assert_eq!(sent, [(SECOND, addr(2), None), (SECOND.times(2), addr(2), None)]);
    assert_eq!(table.resolve(SECOND.times(3), addr(2)), Lookup::Failed);
    assert_eq!(run(&mut table, SECOND.times(6)), []);
    assert_eq!(table.resolve(SECOND.times(6), addr(2)), Lookup::SendRequest);
}

#[test]
fn a_neighbour_in_use_is_probed_by_unicast_and_stays_known() {
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    table.resolve(SECOND, addr(2));
    assert_eq!(run(&mut table, SECOND.times(60)), [(SECOND.times(60), addr(2), Some(mac(2)))]);
    assert_eq!(table.resolve(SECOND.times(60), addr(2)), Lookup::Known(mac(2)));
    assert_eq!(
        table.learn(SECOND.times(60), addr(2), NeighbourUpdate::from_arp(mac(2), false)),
        LearnOutcome::Confirmed
    );
    assert_eq!(run(&mut table, SECOND.times(119)), []);
}

/// RFC 4861 s7.3.3.
#[test]
fn a_neighbour_that_does_not_reply_to_probes_is_removed() {
    // RFC 1122 s2.3.2.1 (2): a unicast poll; the entry is deleted after some requests without a
    // reply.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    table.resolve(SECOND, addr(2));
    assert_eq!(run(&mut table, SECOND.times(63)).len(), 3);
    assert_eq!(table.resolve(SECOND.times(63), addr(2)), Lookup::SendRequest);
}

/// RFC 1122 s2.3.2.1.
#[test]
fn an_unused_neighbour_is_removed_without_a_request() {
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    assert_eq!(run(&mut table, SECOND.times(60)), []);
    assert_eq!(table.next_due(), Nanos::MAX);
    assert_eq!(table.resolve(SECOND.times(60), addr(2)), Lookup::SendRequest);
}

#[test]
fn a_new_link_address_replaces_the_old_one() {
    // RFC 826, "Related issue": the new hardware address wins.
    let mut table = table(8);
    table.learn(SECOND, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    assert_eq!(table.learn(SECOND, addr(2), NeighbourUpdate::from_arp(mac(9), false)), LearnOutcome::Moved);
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::Known(mac(9)));
}

#[test]
fn an_update_without_add_does_not_add_a_neighbour() {
    let mut table = table(8);
    assert_eq!(table.learn(SECOND, addr(2), NeighbourUpdate::from_arp(mac(2), false)), LearnOutcome::Ignored);
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::SendRequest);
}

#[test]
fn an_unsolicited_entry_evicts_only_unused_entries() {
    let mut table = table(4);
    table.learn(SECOND, addr(1), NeighbourUpdate::from_arp(mac(1), true));
    table.resolve(SECOND, addr(1));
    table.resolve(SECOND, addr(2));
    for unsolicited in 10..60 {
        assert_eq!(
            table.learn(SECOND, addr(unsolicited), NeighbourUpdate::from_arp(mac(unsolicited), true)),
            LearnOutcome::Added
        );
        table.check().expect("invariants");
    }
    assert_eq!(table.resolve(SECOND, addr(1)), Lookup::Known(mac(1)));
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::Pending);
}

#[test]
fn a_table_full_of_pending_neighbours_rejects_another() {
    let mut table = table(2);
    table.resolve(SECOND, addr(1));
    table.resolve(SECOND, addr(2));
    assert_eq!(table.resolve(SECOND, addr(3)), Lookup::TableFull);
    assert_eq!(table.learn(SECOND, addr(4), NeighbourUpdate::from_arp(mac(4), true)), LearnOutcome::Ignored);
    assert_eq!(table.resolve(SECOND, addr(1)), Lookup::Pending);
}

proptest! {
    /// RFC 4861 s7.2.2 and s7.3.3.
    #[test]
    fn no_sequence_of_events_breaks_the_table_or_the_request_rate(
        events in prop::collection::vec((0u8..4, 0u8..12, 0u64..1500), 0..400),
    ) {
        let mut table = table(6);
        let mut now = SECOND;
        let mut requested: HashMap<IpAddr, Nanos> = HashMap::new();
        for (event, n, wait_ms) in events {
            now += Nanos::from_millis(wait_ms);
            let mut sent = Vec::new();
            match event {
                0 => sent.extend((table.resolve(now, addr(n)) == Lookup::SendRequest).then_some(addr(n))),
                3 => { table.on_due(now, |addr, _| sent.push(addr)); }
                _ => {
                    table.learn(now, addr(n), NeighbourUpdate::from_arp(mac(n + event), event == 1));
                    requested.remove(&addr(n));
                }
            }
            // RFC 1122 s2.3.2.1: at least a second between two requests to a station that does not
            // reply.
            for addr in sent {
                let before = requested.insert(addr, now);
                prop_assert!(before.is_none_or(|before| now - before >= SECOND), "{addr} requested too often");
            }
            prop_assert_eq!(table.check(), Ok(()));
        }
    }
}

/// An unsolicited advertisement of `mac`.
fn unsolicited(mac: MacAddr, overrides: bool) -> NeighbourUpdate {
    NeighbourUpdate { mac, add: false, overrides, confirms: false }
}

/// RFC 4861 s7.2.3.
#[test]
fn an_unconfirmed_neighbour_is_probed_after_its_first_use() {
    // RFC 4861 s7.3.3: STALE, DELAY, PROBE, and REACHABLE after the reply.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate { add: true, ..unsolicited(mac(2), true) });
    assert_eq!(run(&mut table, SECOND.times(10)), []);
    assert_eq!(table.resolve(SECOND.times(10), addr(2)), Lookup::Known(mac(2)));
    assert_eq!(run(&mut table, SECOND.times(15)), [(SECOND.times(15), addr(2), Some(mac(2)))]);
    assert_eq!(
        table.learn(SECOND.times(15), addr(2), NeighbourUpdate::from_arp(mac(2), false)),
        LearnOutcome::Confirmed
    );
    assert_eq!(run(&mut table, SECOND.times(74)), []);
}

#[test]
fn an_advertisement_without_override_only_starts_a_probe() {
    // RFC 4861 s7.2.5, I.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    table.resolve(Nanos::ZERO, addr(2));
    assert_eq!(table.learn(SECOND, addr(2), unsolicited(mac(9), false)), LearnOutcome::Confirmed);
    assert_eq!(table.resolve(SECOND, addr(2)), Lookup::Known(mac(2)));
    assert_eq!(run(&mut table, SECOND.times(6)), [(SECOND.times(6), addr(2), Some(mac(2)))]);
}

/// RFC 4861 s7.2.5 and s7.3.1.
#[test]
fn an_advertisement_with_override_replaces_the_address_and_starts_a_probe() {
    // RFC 4861 s7.2.5, II: the state becomes STALE.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::from_arp(mac(2), true));
    table.resolve(Nanos::ZERO, addr(2));
    assert_eq!(table.learn(SECOND, addr(2), unsolicited(mac(9), true)), LearnOutcome::Moved);
    assert_eq!(run(&mut table, SECOND.times(6)), [(SECOND.times(6), addr(2), Some(mac(9)))]);
}

/// RFC 4861 s7.2.5.
#[test]
fn a_reply_without_a_link_address_confirms_only_a_known_neighbour() {
    // RFC 4861 s7.2.5.
    let mut table = table(8);
    table.resolve(SECOND, addr(3));
    assert_eq!(table.confirm(SECOND, addr(3)), LearnOutcome::Ignored);
    table.learn(SECOND, addr(2), NeighbourUpdate { add: true, ..unsolicited(mac(2), true) });
    assert_eq!(table.confirm(SECOND, addr(2)), LearnOutcome::Confirmed);
    assert_eq!(table.resolve(SECOND, addr(3)), Lookup::Pending);
}
