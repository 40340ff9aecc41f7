//! Text of another user's page, made safe for a terminal.
//!
//! The page and the files beside it may belong to anybody, and a terminal obeys control characters:
//! they could change its title, move the cursor or hide a line. Here they become the escapes of
//! Rust (`\u{1b}`), as do the characters that change the direction of text or have no width.

use serde_json::Value;

/// Escapes all that is not a printable character. A backslash is doubled, so that the result is
/// unambiguous.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '\'' | '"' => safe.push(one),
            _ => safe.extend(one.escape_debug()),
        }
    }
    safe
}

/// A value as JSON of ASCII alone. JSON lets a control character beyond 0x1f stand for itself.
pub(crate) fn ascii_json(value: &Value) -> String {
    let mut ascii = String::new();
    let mut units = [0; 2];
    for one in value.to_string().chars() {
        match one {
            ' '..='~' => ascii.push(one),
            _ => {
                one.encode_utf16(&mut units).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")))
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_other_text_is_not() {
        for (text, safe) in [
            ("nqn.2014-08.org.example:disk 'a' \"b\"", "nqn.2014-08.org.example:disk 'a' \"b\""),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\r\nb\tc\u{7f}", "a\\r\\nb\\tc\\u{7f}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{202e}txt\u{200b}", "\\u{202e}txt\\u{200b}"),
            ("C:\\é", "C:\\\\é"),
        ] {
            assert_eq!(printable(text), safe);
            assert!(!printable(text).contains(char::is_control));
        }
    }

    #[test]
    fn json_is_ascii_and_means_the_same() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}[2J é \u{1f600} \u{7f} \u{202e} \" \\" });
        let text = ascii_json(&value);
        assert!(text.chars().all(|one| matches!(one, ' '..='~')), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }
}
