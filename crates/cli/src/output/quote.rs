//! Names for display: unusual ones in C quotes, as git prints them.
//!
//! Besides characters that control a terminal, those are escaped that show nothing, or show others in
//! another order: a name must not look like another one. Names of people who write from right to left
//! need none of these characters.

/// Puts a name with control characters, quotes, backslashes or bytes that are
/// not UTF-8 in double quotes, with escapes. Other names are unchanged.
pub fn quoted(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    let mut odd = false;
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            odd |= push(&mut text, character);
        }
        for byte in chunk.invalid() {
            odd = true;
            push_octal(&mut text, *byte);
        }
    }
    if odd { format!("\"{text}\"") } else { text }
}

/// Returns whether the character had to be escaped.
fn push(text: &mut String, character: char) -> bool {
    let letter = match character {
        '"' | '\\' => character,
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        _ if is_unseen(character) => {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                push_octal(text, byte);
            }
            return true;
        }
        _ => {
            text.push(character);
            return false;
        }
    };
    text.push('\\');
    text.push(letter);
    true
}

/// Whether a character controls the terminal, or is not seen as itself: controls (Cc), format characters
/// (Cf), line and paragraph separators (Zl, Zp), and others that show as nothing, as variation selectors
/// and the fillers of Hangul.
pub fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

fn push_octal(text: &mut String, byte: u8) {
    text.push_str(&format!("\\{byte:03o}"));
}

/// Puts foreign text on one line, without characters that could control a terminal.
pub fn escaped(text: &[u8]) -> String {
    escape(text, &[])
}

/// Escapes control characters, except those in `keep`, and bytes that are not
/// UTF-8. Unlike in a name, quotes and backslashes are unchanged.
pub(super) fn escape(text: &[u8], keep: &[char]) -> String {
    let mut plain = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_unseen(character) && !keep.contains(&character) {
                push(&mut plain, character);
            } else {
                plain.push(character);
            }
        }
        for byte in chunk.invalid() {
            push_octal(&mut plain, *byte);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_by_git_without_quotepath() {
        assert_eq!(quoted(b"a b/c-d"), "a b/c-d");
        assert_eq!(quoted("größe/日".as_bytes()), "größe/日");
        assert_eq!(quoted(b"a\nb"), r#""a\nb""#);
        assert_eq!(quoted(br#"say "hi"\"#), r#""say \"hi\"\\""#);
        assert_eq!(quoted(b"x\xff\x1b\x7f"), r#""x\377\033\177""#);
        assert_eq!(quoted("\u{9b}".as_bytes()), r#""\302\233""#);
        assert_eq!(quoted("a\u{202e}b".as_bytes()), r#""a\342\200\256b""#);
        assert_eq!(quoted("שלום/مرحبا".as_bytes()), "שלום/مرحبا");
    }

    #[test]
    fn text_loses_only_terminal_controls() {
        assert_eq!(escaped(br#"sh -c 'echo "\n"'"#), r#"sh -c 'echo "\n"'"#);
        assert_eq!(escaped(b"a\x1b[31m\nb\r\xff"), r"a\033[31m\nb\r\377");
        assert_eq!(escaped("größe\u{9b}".as_bytes()), r"größe\302\233");
        assert_eq!(escape(b"a\tb\n\x07", &['\t', '\n']), "a\tb\n\\a");
        for unseen in [
            "\u{202e}",
            "\u{200b}",
            "\u{2028}",
            "\u{2066}",
            "\u{feff}",
            "\u{e0041}",
        ] {
            assert!(escaped(unseen.as_bytes()).is_ascii(), "{unseen:?}");
        }
    }
}
