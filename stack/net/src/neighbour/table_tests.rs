//! Every transition of a neighbour, and the table's invariants under random histories.

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

fn table(entries_max: u32) -> Neighbours {
    Neighbours::new(NeighbourConfig { entries_max, ..NeighbourConfig::default() }, FlowHasher::new([1, 2]))
}

/// Requests sent until `until`, as (when, to whom), letting the table run at each of its deadlines.
fn run(table: &mut Neighbours, until: Nanos) -> Vec<(Nanos, IpAddr, Option<MacAddr>)> {
    let mut sent = Vec::new();
    while let Some(due) = table.next_due().filter(|&due| due <= until) {
        table.on_due(due, |addr, mac| sent.push((due, addr, mac)));
        table.check().expect("invariants");
    }
    sent
}

#[test]
fn a_neighbour_is_asked_once_however_often_it_is_wanted() {
    let mut table = table(8);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::SendRequest);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::Pending);
    assert_eq!(table.learn(SECOND, addr(2), NeighbourUpdate::by_arp(mac(2), false)), LearnOutcome::Resolved);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::Known(mac(2)));
}

#[test]
fn a_silent_neighbour_is_asked_three_times_a_second_apart_and_then_left_alone_for_a_while() {
    // RFC 1122 s2.3.2.1: at most one request a second to one destination.
    let mut table = table(8);
    table.ask(Nanos::ZERO, addr(2));
    let sent = run(&mut table, SECOND.times(3));
    assert_eq!(sent, [(SECOND, addr(2), None), (SECOND.times(2), addr(2), None)]);
    assert_eq!(table.ask(SECOND.times(3), addr(2)), Lookup::Failed);
    assert_eq!(run(&mut table, SECOND.times(6)), []);
    assert_eq!(table.ask(SECOND.times(6), addr(2)), Lookup::SendRequest);
}

#[test]
fn a_neighbour_in_use_is_probed_at_its_own_address_and_stays_usable() {
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    table.ask(SECOND, addr(2));
    assert_eq!(run(&mut table, SECOND.times(60)), [(SECOND.times(60), addr(2), Some(mac(2)))]);
    assert_eq!(table.ask(SECOND.times(60), addr(2)), Lookup::Known(mac(2)));
    assert_eq!(
        table.learn(SECOND.times(60), addr(2), NeighbourUpdate::by_arp(mac(2), false)),
        LearnOutcome::Confirmed
    );
    assert_eq!(run(&mut table, SECOND.times(119)), []);
}

#[test]
fn a_probed_neighbour_that_stays_silent_is_forgotten() {
    // RFC 1122 s2.3.2.1 (2): unicast poll, entry deleted after N requests without an answer.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    table.ask(SECOND, addr(2));
    assert_eq!(run(&mut table, SECOND.times(63)).len(), 3);
    assert_eq!(table.ask(SECOND.times(63), addr(2)), Lookup::SendRequest);
}

#[test]
fn a_neighbour_nobody_uses_is_forgotten_without_a_request() {
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    assert_eq!(run(&mut table, SECOND.times(60)), []);
    assert_eq!(table.next_due(), None);
    assert_eq!(table.ask(SECOND.times(60), addr(2)), Lookup::SendRequest);
}

#[test]
fn a_new_link_address_supersedes_the_old_one() {
    // RFC 826, "Related issue": the new hardware address wins.
    let mut table = table(8);
    table.learn(SECOND, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    assert_eq!(table.learn(SECOND, addr(2), NeighbourUpdate::by_arp(mac(9), false)), LearnOutcome::Moved);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::Known(mac(9)));
}

#[test]
fn an_unknown_station_is_not_added_unless_asked_for() {
    let mut table = table(8);
    assert_eq!(table.learn(SECOND, addr(2), NeighbourUpdate::by_arp(mac(2), false)), LearnOutcome::Ignored);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::SendRequest);
}

#[test]
fn unsolicited_entries_replace_each_other_but_not_those_in_use() {
    let mut table = table(4);
    table.learn(SECOND, addr(1), NeighbourUpdate::by_arp(mac(1), true));
    table.ask(SECOND, addr(1));
    table.ask(SECOND, addr(2));
    for unsolicited in 10..60 {
        assert_eq!(
            table.learn(SECOND, addr(unsolicited), NeighbourUpdate::by_arp(mac(unsolicited), true)),
            LearnOutcome::Added
        );
        table.check().expect("invariants");
    }
    assert_eq!(table.ask(SECOND, addr(1)), Lookup::Known(mac(1)));
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::Pending);
}

#[test]
fn a_table_full_of_questions_refuses_another() {
    let mut table = table(2);
    table.ask(SECOND, addr(1));
    table.ask(SECOND, addr(2));
    assert_eq!(table.ask(SECOND, addr(3)), Lookup::TableFull);
    assert_eq!(table.learn(SECOND, addr(4), NeighbourUpdate::by_arp(mac(4), true)), LearnOutcome::Ignored);
    assert_eq!(table.ask(SECOND, addr(1)), Lookup::Pending);
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_the_table_or_asks_too_often(
        events in prop::collection::vec((0u8..4, 0u8..12, 0u64..1500), 0..400),
    ) {
        let mut table = table(6);
        let mut now = SECOND;
        let mut asked: HashMap<IpAddr, Nanos> = HashMap::new();
        for (event, n, wait_ms) in events {
            now += Nanos::from_millis(wait_ms);
            let mut sent = Vec::new();
            match event {
                0 => sent.extend((table.ask(now, addr(n)) == Lookup::SendRequest).then_some(addr(n))),
                3 => { table.on_due(now, |addr, _| sent.push(addr)); }
                _ => {
                    table.learn(now, addr(n), NeighbourUpdate::by_arp(mac(n + event), event == 1));
                    asked.remove(&addr(n));
                }
            }
            // RFC 1122 s2.3.2.1: while a station does not answer, a second lies between two requests to it.
            for addr in sent {
                let before = asked.insert(addr, now);
                prop_assert!(before.is_none_or(|before| now - before >= SECOND), "{addr} asked too often");
            }
            prop_assert_eq!(table.check(), Ok(()));
        }
    }
}

/// An advertisement of `mac` that nobody asked for.
fn unsolicited(mac: MacAddr, overrides: bool) -> NeighbourUpdate {
    NeighbourUpdate { mac, add: false, overrides, confirms: false }
}

#[test]
fn a_neighbour_that_has_not_answered_us_is_probed_soon_after_its_first_use() {
    // RFC 4861 s7.3.3: STALE, DELAY, PROBE, and back to REACHABLE with the answer.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate { add: true, ..unsolicited(mac(2), true) });
    assert_eq!(run(&mut table, SECOND.times(10)), []);
    assert_eq!(table.ask(SECOND.times(10), addr(2)), Lookup::Known(mac(2)));
    assert_eq!(run(&mut table, SECOND.times(15)), [(SECOND.times(15), addr(2), Some(mac(2)))]);
    assert_eq!(
        table.learn(SECOND.times(15), addr(2), NeighbourUpdate::by_arp(mac(2), false)),
        LearnOutcome::Confirmed
    );
    assert_eq!(run(&mut table, SECOND.times(74)), []);
}

#[test]
fn an_advertisement_without_override_casts_doubt_and_changes_nothing() {
    // RFC 4861 s7.2.5, I.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    table.ask(Nanos::ZERO, addr(2));
    assert_eq!(table.learn(SECOND, addr(2), unsolicited(mac(9), false)), LearnOutcome::Confirmed);
    assert_eq!(table.ask(SECOND, addr(2)), Lookup::Known(mac(2)));
    assert_eq!(run(&mut table, SECOND.times(6)), [(SECOND.times(6), addr(2), Some(mac(2)))]);
}

#[test]
fn an_advertisement_with_override_replaces_and_is_verified_when_in_use() {
    // RFC 4861 s7.2.5, II: the state becomes STALE.
    let mut table = table(8);
    table.learn(Nanos::ZERO, addr(2), NeighbourUpdate::by_arp(mac(2), true));
    table.ask(Nanos::ZERO, addr(2));
    assert_eq!(table.learn(SECOND, addr(2), unsolicited(mac(9), true)), LearnOutcome::Moved);
    assert_eq!(run(&mut table, SECOND.times(6)), [(SECOND.times(6), addr(2), Some(mac(9)))]);
}

#[test]
fn an_answer_without_a_link_address_confirms_what_is_known_and_resolves_nothing() {
    // RFC 4861 s7.2.5.
    let mut table = table(8);
    table.ask(SECOND, addr(3));
    assert_eq!(table.confirm(SECOND, addr(3)), LearnOutcome::Ignored);
    table.learn(SECOND, addr(2), NeighbourUpdate { add: true, ..unsolicited(mac(2), true) });
    assert_eq!(table.confirm(SECOND, addr(2)), LearnOutcome::Confirmed);
    assert_eq!(table.ask(SECOND, addr(3)), Lookup::Pending);
}
