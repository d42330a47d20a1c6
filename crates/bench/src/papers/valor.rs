use super::{Figure, Paper, fast, long, stated};
use crate::measure::Side;

pub const VALOR: Paper = Paper {
    key: "valor",
    title: "Valor (Spillane and others, FAST 2009)",
    text: "A log in the kernel, under ext3, on a disk of that time. Sizes here are a sixteenth of the paper's, \
           or as the remark says; `--scale 16` has the paper's 2 GiB. Here each side is durable at its end. In \
           the paper the overwrites and the concurrent writers are asynchronous, on both sides.",
    figures: FIGURES,
};

const FIGURES: &[Figure] = &[
    long("2 GiB overwritten, beside an ideal logger", 1.35)
        .also("Stasis 2.04x")
        .at("overwrite", "overwrite a file")
        .to(Side::Logger)
        .remark("128 MiB. Atomdir writes the data once, into a new file or in place; a logger twice."),
    long("Overwritten in sequence, beside ext3", 2.75)
        .also("Stasis 1.75 and Berkeley DB 8.2 times Valor's time")
        .at("sizes", "serial overwrite, 64x")
        .remark("64 MiB."),
    long("2 writers of a file each, beside ext3", 3.0).at("writers", "2 writers").remark("4 MiB each."),
    long("4 writers", 2.6).at("writers", "4 writers"),
    long("8 writers", 2.4).at("writers", "8 writers"),
    long("16 writers", 2.3).at("writers", "16 writers"),
    stated("Durable transactions of a page, beside ext3", "a curve from here on (1.76x Stasis)")
        .at("granularity", "transactions of 1 pages")
        .remark("The plain side flushes the file after each write."),
    stated("Durable transactions of 4 pages", "").at("granularity", "transactions of 4 pages"),
    stated("Durable transactions of 16 pages", "").at("granularity", "transactions of 16 pages"),
    stated("Durable transactions of 64 pages", "").at("granularity", "transactions of 64 pages"),
    long("Durable transactions of many pages: the limit", 2.9)
        .also("Stasis 4.2x, Berkeley DB 23x")
        .at("granularity", "transactions of 256 pages")
        .remark("256 pages."),
    stated("Recovery of uncommitted data, 2 processes, 8 to 16 MiB", "1.46x")
        .growth("uncommitted", "recover uncommitted by 2, 8x", "recover uncommitted by 2, 16x")
        .remark("The time includes the start of the service. Uncommitted data is not in the log, so recovery only removes staged files."),
    stated("The same, 16 to 32 MiB", "2.31x")
        .growth("uncommitted", "recover uncommitted by 2, 16x", "recover uncommitted by 2, 32x"),
    stated("3 processes, 8 to 16 MiB", "1.5x")
        .growth("uncommitted", "recover uncommitted by 3, 8x", "recover uncommitted by 3, 16x"),
    stated("The same, 16 to 32 MiB", "2.04x")
        .growth("uncommitted", "recover uncommitted by 3, 16x", "recover uncommitted by 3, 32x"),
    fast("passwd, shadow and group changed together", 1.0)
        .also("\"statistically indistinguishable\"")
        .at("idioms", "three files changed together")
        .remark("The plain side replaces each file durably, one after the other."),
    stated("Programs that know nothing of transactions", "negligible, by word")
        .at("outside", "outside, one open")
        .remark("The paper did not measure it. Create, stat and unlink beside an open transaction with changes."),
];
