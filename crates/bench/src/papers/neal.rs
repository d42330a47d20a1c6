use super::{Figure, Paper, fast, stated, written};
use crate::measure::Side;

pub const NEAL: Paper = Paper {
    key: "neal",
    title: "Porting applications to TxFS (Neal, UT Austin 2017)",
    text: "SQLite and OpenLDAP on TxFS. Here they are the SQLite extension ([sqlite.md](sqlite.md)), and slapd \
           over `atomdir-ldap` beside slapd over its own back-ldif ([ldap.md](ldap.md)). back-ldif flushes \
           nothing, so a power cut can take away changes that it has acknowledged. Each change through \
           `atomdir-ldap` is durable: it has no lazy mode, in which neither side would wait for the disk. \
           In the rows with 1 ms flushes, each flush takes 1 ms longer, for all sides alike.",
    figures: FIGURES,
};

const EXTENSION: &[Side] = &[Side::Embedded];
const TWELVE: &str = "SQLite: six threads, twelve databases";

const FIGURES: &[Figure] = &[
    fast("Twelve databases, beside SQLite's rollback journal", 3.3)
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Rollback)
        .remark("Six threads; 3 000 rows in each database instead of 100 000."),
    fast("Twelve databases, beside SQLite's write-ahead log", 2.1)
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("Twelve databases, 1 ms flushes, beside SQLite's rollback journal", 3.3)
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Rollback)
        .slowed(),
    fast("Twelve databases, 1 ms flushes, beside SQLite's write-ahead log", 2.1)
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Sqlite)
        .slowed(),
    written("Written for it, beside SQLite's rollback journal", 0.30)
        .also("122 to 404 MB")
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Rollback),
    written("Written for it, beside SQLite's write-ahead log", 0.60)
        .also("122 to 202 MB")
        .at("sqlite", TWELVE)
        .of(EXTENSION)
        .to(Side::Sqlite),
    fast("OpenLDAP, add, six threads", 1.47)
        .at("entries", "add, 6 clients")
        .to(Side::BackLdif)
        .remark("1 000 entries, as in the paper; a client is a process of ldap-utils."),
    fast("Search, six threads", 1.10).at("entries", "search, 6 clients").to(Side::BackLdif),
    fast("Modify, six threads", 1.90).at("entries", "modify, 6 clients").to(Side::BackLdif),
    fast("Add, one thread", 0.66).at("entries", "add, one client").to(Side::BackLdif),
    fast("Search, one thread", 1.21).at("entries", "search, one client").to(Side::BackLdif),
    fast("Modify, one thread", 0.83).at("entries", "modify, one client").to(Side::BackLdif),
    fast("One adder with one searcher", 3.94)
        .at("entries", "add and search, one client")
        .to(Side::BackLdif)
        .remark("100 entries added, as in the paper, beside 60 searches."),
    stated("One adder with five searchers", "1.22x as fast").remark("Not measured."),
    stated("slapd killed during changes: temporary files left", "after 96 % of the kills, never with transactions")
        .remark("Not a time. Of 100 kills here, back-ldif left some after 20, `atomdir-ldap` never: [ldap.md](ldap.md)."),
];
