//! Compares the flow table with a hash map, and tests its probe limit with crafted collisions.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_look_up_returns_the_entry_that_the_caller_accepts() {
    let mut table = FlowTable::new(4);
    table.insert(9, 1).expect("room");
    table.insert(9, 2).expect("room");
    assert_eq!(table.lookup(9, |value| value == 2), Some(2));
    assert_eq!(table.lookup(9, |_| false), None);
    assert_eq!(table.lookup(10, |_| true), None);
}

#[test]
fn a_full_table_rejects_an_entry_until_one_is_removed() {
    let mut table = FlowTable::new(2);
    assert_eq!(table.capacity(), 2);
    assert_eq!(table.insert(1, 1), Ok(()));
    assert_eq!(table.insert(2, 2), Ok(()));
    assert_eq!(table.insert(3, 3), Err(TableFull));
    assert!(table.remove(1, 1));
    assert_eq!(table.insert(3, 3), Ok(()));
}

#[test]
fn colliding_hashes_are_bounded_by_the_probe_limit() {
    let mut table = FlowTable::new(1024);
    let taken = (0..1024).take_while(|&value| table.insert(77, value).is_ok()).count();
    assert_eq!(taken, PROBES_MAX);
    assert_eq!(table.lookup(77, |value| value == 127), Some(127));
    assert_eq!(table.lookup(77, |value| value == 128), None);
}

#[test]
fn removing_an_absent_entry_changes_nothing() {
    let mut table = FlowTable::new(4);
    table.insert(5, 1).expect("room");
    assert!(!table.remove(5, 2));
    assert!(!table.remove(6, 1));
    assert_eq!(table.len(), 1);
}

#[test]
fn a_removal_closes_the_gap_in_a_cluster_across_the_end_of_the_table() {
    let mut table = FlowTable::new(4);
    for value in 0..4 {
        table.insert(6, value).expect("room");
    }
    assert!(table.remove(6, 0));
    assert!((1..4).all(|value| table.lookup(6, |v| v == value) == Some(value)));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u32),
    Remove(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // A few distinct hashes near the end of the table make long clusters that wrap.
    let hash = prop_oneof![0u32..6, 58u32..70, any::<u32>()];
    let step = (hash, 0u32..24, any::<bool>()).prop_map(|(hash, value, insert)| {
        if insert { Step::Insert(hash, value) } else { Step::Remove(hash, value) }
    });
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_hash_map(steps in steps()) {
        let mut table = FlowTable::new(32);
        let mut model: HashMap<(u32, u32), usize> = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(hash, value) => {
                    if table.insert(hash, value).is_ok() {
                        *model.entry((hash, value)).or_default() += 1;
                    }
                }
                Step::Remove(hash, value) => {
                    let had = model.get(&(hash, value)).is_some_and(|&n| n > 0);
                    prop_assert_eq!(table.remove(hash, value), had);
                    if had {
                        *model.entry((hash, value)).or_default() -= 1;
                    }
                }
            }
            prop_assert_eq!(table.len(), model.values().sum::<usize>());
            for (&(hash, value), &n) in &model {
                prop_assert_eq!(table.lookup(hash, |v| v == value).is_some(), n > 0);
            }
        }
    }
}
