//! What a completing shell gets. Whatever it puts into the command line is a file's name, which anybody
//! may have chosen, and the user's next key may be Enter.
//!
//! zsh and fish quote what they insert. bash inserts it as it is, so here it gets words that are quoted,
//! and a script that neither splits nor expands them. Names that a shell cannot take are left out: in
//! zsh and fish a candidate is a line.

use crate::output::is_unseen;
use clap::Command;
use clap_complete::engine::complete;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub const SHELLS: Shells<'static> = Shells(&[
    &Quoting,
    &Elvish,
    &Lines(Format::Fish),
    &Powershell,
    &Lines(Format::Zsh),
]);

/// For bash.
#[derive(Debug)]
struct Quoting;

const BASH_SCRIPT: &str = r#"
_clap_complete_NAME() {
    local _CLAP_COMPLETE_INDEX=${COMP_CWORD} words=("${COMP_WORDS[@]}") answer
    compopt +o nospace 2> /dev/null
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
    COMPREPLY=()
    answer=$(_CLAP_COMPLETE_INDEX="$_CLAP_COMPLETE_INDEX" VAR="bash" COMPLETER -- "${words[@]}") || return
    [[ -n $answer ]] || return
    mapfile -t COMPREPLY <<< "$answer"
    if [[ "${COMPREPLY-}" =~ [=/:]$ ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_NAME BIN
else
    complete -o nospace -o bashdefault -F _clap_complete_NAME BIN
fi
"#;

impl EnvCompleter for Quoting {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        let text = BASH_SCRIPT
            .replace("NAME", &name.replace('-', "_"))
            .replace("BIN", &for_bash(program.as_bytes()))
            .replace("COMPLETER", &for_bash(completer.as_bytes()))
            .replace("VAR", variable);
        script.write_all(text.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        directory: Option<&Path>,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let found = complete(command, words, index(), directory)?;
        for candidate in found {
            let word = for_bash(candidate.get_value().as_bytes());
            writeln!(output, "{word}")?;
        }
        Ok(())
    }
}

/// For a shell that quotes what it inserts, and takes one candidate a line.
#[derive(Debug)]
struct Lines(Format);

#[derive(Debug, Clone, Copy)]
enum Format {
    /// A description comes after a tab.
    Fish,
    /// It comes after a colon.
    Zsh,
}

impl Lines {
    fn completer(&self) -> &'static dyn EnvCompleter {
        match self.0 {
            Format::Fish => &Fish,
            Format::Zsh => &Zsh,
        }
    }
}

impl EnvCompleter for Lines {
    fn name(&self) -> &'static str {
        self.completer().name()
    }

    fn is(&self, name: &str) -> bool {
        self.completer().is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        let shell = self.completer();
        shell.write_registration(variable, name, program, completer, script)
    }

    fn write_complete(
        &self,
        command: &mut Command,
        mut words: Vec<OsString>,
        directory: Option<&Path>,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let index = match self.0 {
            Format::Fish => words.len().saturating_sub(1),
            Format::Zsh => index(),
        };
        // zsh leaves an empty word out.
        if words.len() == index {
            words.push(OsString::new());
        }
        for candidate in complete(command, words, index, directory)? {
            let value = candidate.get_value().to_str();
            let Some(value) = value.filter(|value| !value.chars().any(is_unseen)) else {
                continue;
            };
            let help = candidate.get_help().map(ToString::to_string);
            let help = help.as_deref().and_then(|help| help.lines().next());
            match self.0 {
                Format::Fish => {
                    let help = help.map_or(String::new(), |help| format!("\t{help}"));
                    writeln!(output, "{value}{help}")?;
                }
                Format::Zsh => {
                    let value = value.replace('\\', "\\\\").replace(':', "\\:");
                    let help = help.map(|help| help.replace('\\', "\\\\"));
                    let help = help.map_or(String::new(), |help| format!(":{help}"));
                    writeln!(output, "{value}{help}")?;
                }
            }
        }
        Ok(())
    }
}

/// Which word is being completed.
fn index() -> usize {
    let index = std::env::var(super::INDEX).ok();
    index
        .and_then(|index| index.parse().ok())
        .unwrap_or_default()
}

/// One word of bash that means exactly these bytes.
fn for_bash(value: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,@%:=".contains(&byte);
    let text = std::str::from_utf8(value).ok();
    let text = text.filter(|text| !text.is_empty() && !text.chars().any(is_unseen));
    let Some(text) = text else {
        let bytes = value.iter().map(|byte| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
            b' '..=b'~' => char::from(*byte).to_string(),
            byte => format!("\\{byte:03o}"),
        });
        return format!("$'{}'", bytes.collect::<String>());
    };
    let mut word = String::new();
    for character in text.chars() {
        if character.is_ascii() && !is_plain(character as u8) {
            word.push('\\');
        }
        word.push(character);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_word_of_bash_means_what_it_was_made_of() {
        let all: Vec<u8> = (1..=255).collect();
        let hostile: [&[u8]; 9] = [
            b"plain-1.0_x",
            b"$(id>pwned)",
            b"`id`; id & id | id > x",
            b"a'b\"c\\d",
            b"*?[a]{b,c}~!#^",
            b"new\nline\ttab\x1b[2J",
            "r\u{202e}l\u{200b}".as_bytes(),
            b"\xff\xfe",
            &all,
        ];
        for name in hostile {
            let script = format!("printf %s {}", for_bash(name));
            let output = std::process::Command::new("bash")
                .args([&b"-c"[..], script.as_bytes()].map(OsStr::from_bytes))
                .output()
                .unwrap();
            assert_eq!(output.stdout, name, "{script}");
        }
    }
}
