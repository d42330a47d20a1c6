//! Changes bytes in the ways of libFuzzer.

use atomdir_testing::Random;

/// A random input of the corpus with up to eight changes.
pub fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.choose(corpus).clone();
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len() + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.number() as u8),
            2 => {
                let other = random.choose(corpus);
                let from = random.below(other.len() + 1);
                let piece = other[from..].to_vec();
                bytes.splice(at.., piece);
            }
            3 => {
                let end = at + random.below(bytes.len() - at + 1);
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let end = at + random.below((bytes.len() - at).min(64) + 1);
                bytes.drain(at..end);
            }
            5 => {
                let number = *random.choose(&[0, 1, 0x7f, 0x80, 0xff, u64::MAX, 1 << 63]);
                let number = number.to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}
