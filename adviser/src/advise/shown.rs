//! Texts of the user's file as messages, tables and pictures show them.

/// The most characters of a key in a table, before escaping.
const KEY_CHARACTERS: usize = 48;
/// The most characters of an invalid value in a message.
const VALUE_CHARACTERS: usize = 60;

/// The start of a text on one line. Characters that control a terminal or that XML does not allow
/// are escaped.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    let one = |char: char| match char {
        control if control.is_control() => control.escape_debug().to_string(),
        harmful if is_harmful(harmful) => harmful.escape_unicode().to_string(),
        harmless => harmless.to_string(),
    };
    let mut shown: String = text.chars().take(characters).map(one).collect();
    if text.chars().nth(characters).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether this is a bidirectional control (Unicode, UAX #9), which can disguise a text as another,
/// ends a line, or is one of the two other characters that XML 1.0 excludes.
const fn is_harmful(char: char) -> bool {
    let is_bidirectional = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_bidirectional || matches!(char, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

pub(super) fn plain(key: &str) -> String {
    one_line(key, KEY_CHARACTERS)
}

pub(super) fn quoted(key: &str) -> String {
    format!("\"{}\"", plain(key))
}

pub(super) fn shortened(value: &str) -> String {
    one_line(value, VALUE_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_control_the_terminal() {
        assert_eq!(plain("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        let harmful = "a\u{202e}b\u{2066}\u{fffe}\u{2028}é";
        assert_eq!(plain(harmful), "a\\u{202e}b\\u{2066}\\u{fffe}\\u{2028}é");
        assert_eq!(plain(&"é".repeat(60)).chars().count(), KEY_CHARACTERS + 1);
    }
}
