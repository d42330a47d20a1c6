//! The first inputs: real logs, headers and messages.

use crate::messages::{replies, requests};
use atomdir_protocol::TransactionId;
use atomdir_sim::{AtRest, workloads};

/// Longer files would slow the targets down too much.
const FILE_BYTES_MAX: usize = 16 << 10;

/// The first inputs of each target.
pub struct Corpus {
    pub headers: Vec<Vec<u8>>,
    pub logs: Vec<Vec<u8>>,
    pub payloads: Vec<Vec<u8>>,
    pub messages: Vec<Vec<u8>>,
}

impl Corpus {
    pub fn of(&self, target: &str) -> &[Vec<u8>] {
        match target {
            "header" => &self.headers,
            "record" => &self.payloads,
            "message" => &self.messages,
            _ => &self.logs,
        }
    }
}

pub fn corpus() -> Corpus {
    let mut all = workloads::kinds();
    all.extend(workloads::sequences());
    let stores: Vec<AtRest> = all.iter().map(|one| AtRest::after(one, true)).collect();
    let files = |name| -> Vec<Vec<u8>> {
        let files = stores.iter().map(|store| used(store.file(name)));
        let fits = |file: &Vec<u8>| (1..=FILE_BYTES_MAX).contains(&file.len());
        files.filter(fits).collect()
    };
    let mut logs = files("log");
    logs.extend(files("history"));
    let mut headers = files("header");
    headers.extend(files("applied"));
    Corpus {
        headers,
        payloads: logs.iter().flat_map(|log| payloads(log)).collect(),
        logs,
        messages: [requests(TransactionId(5)), replies()].concat(),
    }
}

/// The file without most of the zeros by which a log grows ahead.
fn used(mut file: Vec<u8>) -> Vec<u8> {
    let last = file.iter().rposition(|byte| *byte != 0);
    let length = last.map_or(0, |last| last + 1).next_multiple_of(64);
    file.truncate(length);
    file
}

/// The payloads of a whole log: see docs/format.md.
fn payloads(log: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut rest = log;
    while let Some((header, body)) = rest.split_at_checked(40) {
        let mut length = [0; 8];
        length.copy_from_slice(&header[8..16]);
        let length = u64::from_le_bytes(length) as usize;
        let Some(payload) = body.get(..length) else {
            break;
        };
        payloads.push(payload.to_vec());
        rest = body.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    payloads
}
