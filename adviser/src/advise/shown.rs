//! Texts of the user's file as messages, tables and pictures show them.

/// The most characters of a key in a table.
const KEY_CHARACTERS: usize = 48;
/// The most characters of an invalid value in a message.
const VALUE_CHARACTERS: usize = 60;

/// The start of a text on one line. Characters that control a terminal or that XML does not allow
/// are escaped.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    let one = |char: char| match char {
        control if control.is_control() => control.escape_debug().to_string(),
        harmful if is_bidirectional(harmful) || ends_line(harmful) || is_not_xml(harmful) => {
            harmful.escape_unicode().to_string()
        }
        harmless => harmless.to_string(),
    };
    let mut shown: String = text.chars().take(characters).map(one).collect();
    if text.chars().nth(characters).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether this is a bidirectional control (Unicode, UAX #9), which can disguise a text as another.
const fn is_bidirectional(char: char) -> bool {
    matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

const fn ends_line(char: char) -> bool {
    matches!(char, '\u{2028}' | '\u{2029}')
}

/// XML 1.0 excludes these two characters besides control characters.
const fn is_not_xml(char: char) -> bool {
    matches!(char, '\u{fffe}' | '\u{ffff}')
}

/// A key in a table.
pub(super) fn plain(key: &str) -> String {
    one_line(key, KEY_CHARACTERS)
}

/// A key within a sentence.
pub(super) fn quoted(key: &str) -> String {
    format!("\"{}\"", plain(key))
}

/// An invalid value in a message.
pub(super) fn shortened(value: &str) -> String {
    one_line(value, VALUE_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_control_the_terminal() {
        assert_eq!(plain("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(
            plain("a\u{202e}b\u{2066}\u{fffe}\u{2028}é"),
            "a\\u{202e}b\\u{2066}\\u{fffe}\\u{2028}é"
        );
        assert_eq!(plain(&"é".repeat(60)).chars().count(), KEY_CHARACTERS + 1);
    }
}
