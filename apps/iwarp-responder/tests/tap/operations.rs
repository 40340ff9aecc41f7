//! Sends of every kind: each is echoed and reported, and one with Invalidate ends the tag of the
//! offered memory.

use serde_json::{Value, json};

use crate::events::Events;
use crate::lab::{Ended, Lab};

/// RFC 5040 s5.3: a Send with Solicited Event is reported as one; its echo is solicited too.
#[test]
fn a_solicited_send_is_reported_and_echoed_as_one() {
    let Some((done, ended)) = conversation("solicited") else { return };
    let (asking, plain) = ("solicited send", "send");
    let sizes = [0, 1, 5000].map(|size| [json!([asking, size]), json!([plain, size])]).concat();
    assert_eq!(done["echoes"], json!(sizes));
    let received = received(&ended.events);
    assert_eq!(flags(&received, "solicited"), [true, false, true, false, true, false]);
    assert!(received.iter().all(|event| event["invalidated"].is_null()), "{received:?}");
}

/// RFC 5040 s5.3, s8.1.1: the tag is valid until the Send with Invalidate is delivered, and invalid
/// after that.
#[test]
fn a_send_with_invalidate_ends_the_tag_and_is_reported() {
    for (case, solicited) in [("invalidate", false), ("invalidate-solicited", true)] {
        let Some((done, ended)) = conversation(case) else { return };
        // RFC 5040 s4.8: an invalid STag is a remote protection error.
        assert_eq!(done["terminate"], json!([0, 1, 0]), "{case}");
        let received = received(&ended.events);
        assert_eq!(received.len(), 1, "{case}: {received:?}");
        assert_eq!(
            (&received[0]["invalidated"], &received[0]["bytes"]),
            (&done["stag"], &json!(14)),
            "{case}"
        );
        assert_eq!(flags(&received, "solicited"), [solicited], "{case}");
        one_terminate_sent(&ended.events, &done);
    }
}

/// RFC 5041 s7.2: a Write after it meets an invalid STag.
#[test]
fn a_write_behind_a_send_with_invalidate_is_terminated() {
    let Some((done, ended)) = conversation("write-behind") else { return };
    assert_eq!(done["terminate"], json!([1, 1, 0]));
    one_terminate_sent(&ended.events, &done);
}

/// RFC 5040 s7.2: a tag that is unknown or already invalidated is invalid to a Send with Invalidate
/// too.
#[test]
fn a_tag_that_is_none_cannot_be_invalidated() {
    for (case, echoes) in [("invalidate-foreign", 0), ("invalidate-twice", 1)] {
        let Some((done, ended)) = conversation(case) else { return };
        assert_eq!(done["terminate"], json!([0, 1, 0]), "{case}");
        assert_eq!(received(&ended.events).len(), echoes, "{case}");
        one_terminate_sent(&ended.events, &done);
    }
}

/// One client, and the responder's events about it.
fn conversation(case: &str) -> Option<(Value, Ended)> {
    let lab = Lab::with_shipped_config(&["--once"])?;
    let done = lab.client("operations.py", &[case]);
    let ended = lab.ended();
    assert!(ended.status.success(), "{case}: {}: {}", ended.status, ended.log);
    Some((done, ended))
}

/// The received Sends, in order.
fn received(events: &Events) -> Vec<&Value> {
    let wanted = |event: &&Value| event["opcode"] == "Receive" && event["status"] == "Success";
    events.all("completion").into_iter().filter(wanted).collect()
}

fn flags(events: &[&Value], name: &str) -> Vec<bool> {
    events.iter().map(|event| event[name].as_bool().expect("a flag")).collect()
}

fn one_terminate_sent(events: &Events, done: &Value) {
    let sent = events.all("terminate_sent");
    assert_eq!(sent.len(), 1, "{events:?}");
    assert_eq!(json!([sent[0]["layer"], sent[0]["type"], sent[0]["code"]]), done["terminate"]);
}
