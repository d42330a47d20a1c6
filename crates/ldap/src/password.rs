//! Compares a password with the values of `userPassword`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Whether the password is one of the stored ones. They may be plain, or hashed by slappasswd with
/// SHA-1, with salt ({SSHA}) or without ({SHA}).
pub fn is_one_of<'a>(password: &[u8], stored: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut is_right = false;
    for value in stored {
        // No early return: the time taken must not reveal which value was right.
        is_right |= is_equal(password, value);
    }
    is_right
}

fn is_equal(password: &[u8], stored: &[u8]) -> bool {
    let Some((scheme, encoded)) = scheme(stored) else {
        return same(password, stored);
    };
    let has_salt = scheme.eq_ignore_ascii_case("SSHA");
    if !has_salt && !scheme.eq_ignore_ascii_case("SHA") {
        return false;
    }
    let Ok(decoded) = STANDARD.decode(encoded) else {
        return false;
    };
    let Some((digest, salt)) = decoded.split_at_checked(20) else {
        return false;
    };
    let mut hash = sha1_smol::Sha1::new();
    hash.update(password);
    hash.update(salt);
    (has_salt || salt.is_empty()) && same(&hash.digest().bytes(), digest)
}

fn scheme(stored: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(stored)
        .ok()?
        .strip_prefix('{')?
        .split_once('}')
}

/// Compares in a time that does not depend on where the first difference is.
pub fn same(left: &[u8], right: &[u8]) -> bool {
    let differing = left
        .iter()
        .zip(right)
        .fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_as_slapd_does() {
        // Made by `slappasswd -s secret`, with -h {SSHA} and {SHA}.
        let salted: &[u8] = b"{SSHA}UfPXWVVeNn/MvaFs8MYSlikzRHX0QXAy";
        let plain: &[u8] = b"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
        assert!(is_one_of(b"secret", [plain].into_iter()));
        assert!(is_one_of(b"secret", [salted].into_iter()));
        assert!(is_one_of(
            b"as it is",
            [b"other", b"as it is".as_slice()].into_iter()
        ));
        for stored in [plain, salted, b"{CRYPT}secret", b"{SSHA}!", b"secrets", b""] {
            assert!(!is_one_of(b"Secret", [stored].into_iter()));
        }
    }
}
