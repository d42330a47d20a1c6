use super::{Figure, Paper, long, stated};

pub const SPINELLIS: Paper = Paper {
    key: "spinellis",
    title: "User-level operating system transactions (Spinellis, SP&E 2009)",
    text: "A service that clones directories, for unchanged programs. 1x means that the paper reports almost no \
           cost, in words or in a drawing; 2x is read from its drawing. The paper used OpenSSH, Linux and MySQL.",
    figures: FIGURES,
};

const BARELY: &str = "barely above";

const FIGURES: &[Figure] = &[
    long("Unpacking: less", 2.0)
        .also("the dearest step")
        .at("build", "unpack less"),
    long("Unpacking: dash", 2.0).at("build", "unpack dash"),
    long("Unpacking: zlib", 2.0).at("build", "unpack zlib"),
    long("configure: less", 1.0)
        .also(BARELY)
        .at("build", "configure less"),
    long("configure: dash", 1.0).at("build", "configure dash"),
    long("configure: zlib", 1.0).at("build", "configure zlib"),
    long("make: less", 1.0)
        .also(BARELY)
        .at("build", "make less"),
    long("make: dash", 1.0).at("build", "make dash"),
    long("make: zlib", 1.0).at("build", "make zlib"),
    long("make test: zlib", 1.0)
        .also(BARELY)
        .at("build", "test zlib")
        .remark("less and dash have no tests."),
    long("make install: less", 1.0)
        .also(BARELY)
        .at("build", "install less"),
    long("make install: dash", 1.0).at("build", "install dash"),
    long("make install: zlib", 1.0).at("build", "install zlib"),
    long("All steps, and the commit: less", 1.0)
        .also(BARELY)
        .at("build", "all of less"),
    long("All steps, and the commit: dash", 1.0).at("build", "all of dash"),
    long("All steps, and the commit: zlib", 1.0).at("build", "all of zlib"),
    stated(
        "PostMark, 5 000 files",
        "2 500 files of 5 to 100 KB, 9 000 operations; no ratio",
    )
    .at("postmark", "PostMark, 5 000 files")
    .remark("5 000 small files of at most 10 KB, and 5 000 steps, in one transaction."),
    stated("PostMark, 2 500 files of 5 to 98 KB", "the same")
        .at("postmark", "PostMark, 10x larger files")
        .remark("2 500 steps, in one transaction: the nearest to the paper's sizes."),
    stated("PostMark, 100 000 files", "").at("postmark", "PostMark, 100 000 files"),
    long("Whole workloads beside an empty open transaction", 1.0)
        .at("postmark", "PostMark, small files, outside")
        .remark("PostMark with 2 500 small files."),
    long("Events outside transactions", 1.0)
        .also("nearly free")
        .at("outside", "outside, one open")
        .remark(
            "Create, stat and unlink of 2 000 files beside a transaction with as many changes.",
        ),
    stated("Memory for each event", "127 bytes: 13 MB for 107 000")
        .bytes("memory", "memory per change, open")
        .remark("For each new file, which is several events."),
];
