//! A fast hash that is the same in every run.

#[derive(Default)]
pub(crate) struct Hasher(u64);

impl Hasher {
    pub fn number(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.number(u64::from(*byte));
        }
    }

    pub fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^ hash >> 27
    }
}
