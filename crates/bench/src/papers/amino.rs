use super::{Figure, Paper, fast, long, rate, stated};
use crate::measure::Side;

pub const AMINO: Paper = Paper {
    key: "amino",
    title: "Amino (Wright, Stony Brook 2006)",
    text: "A program's calls are intercepted and its files kept in Berkeley DB. The paper compares this with \
           ext3, and durable calls with ext3 mounted `sync`. In Amino each call is a transaction, unless the \
           program marks a longer one; in Atomdir a `run` is one. So calls are measured twice: within one \
           transaction (`files`), and each as a transaction of its own (`calls`). PostMark is measured \
           unchanged, and changed so that each of its steps is a transaction. The paper's ratios are ratios of \
           rates, unless a row says otherwise.",
    figures: FIGURES,
};

const SYNC: &str = "The plain side flushes file and directory after each call, as a file system mounted `sync` does.";
const THREADS: &str = "Each thread has a directory of its own.";

const FIGURES: &[Figure] = &[
    fast("Create, not durable", 0.18)
        .at("files", "create, write, close")
        .remark("In one transaction."),
    fast("Unlink", 0.37).at("files", "unlink"),
    fast("Stat", 0.43).at("files", "stat, first").remark("The first stat of each file; the next row has the second."),
    fast("Stat, again", 0.43).at("files", "stat, again").remark("From the kernel's cache."),
    fast("Readdir", 2.3).at("files", "readdir, first"),
    fast("Create, 1 thread", 0.18)
        .at("threads", "create, 1 threads")
        .remark("The paper measured this, and the next three, with one thread only."),
    rate("Create, 4 threads", "no figure").at("threads", "create, 4 threads"),
    rate("Create, 16 threads", "no figure").at("threads", "create, 16 threads"),
    rate("Create, 32 threads", "no figure").at("threads", "create, 32 threads").remark(THREADS),
    fast("Unlink, 1 thread", 0.37).at("threads", "unlink, 1 threads"),
    rate("Unlink, 4 threads", "no figure").at("threads", "unlink, 4 threads"),
    rate("Unlink, 16 threads", "no figure").at("threads", "unlink, 16 threads"),
    rate("Unlink, 32 threads", "no figure").at("threads", "unlink, 32 threads"),
    fast("Stat, 1 thread", 0.43).at("threads", "stat, 1 threads"),
    rate("Stat, 4 threads", "no figure").at("threads", "stat, 4 threads"),
    rate("Stat, 16 threads", "no figure").at("threads", "stat, 16 threads"),
    rate("Stat, 32 threads", "no figure").at("threads", "stat, 32 threads"),
    fast("Readdir, 1 thread", 2.3).at("threads", "readdir, 1 threads"),
    rate("Readdir, 4 threads", "no figure").at("threads", "readdir, 4 threads"),
    rate("Readdir, 16 threads", "no figure").at("threads", "readdir, 16 threads"),
    rate("Readdir, 32 threads", "no figure").at("threads", "readdir, 32 threads"),
    fast("Create, each a transaction, not durable", 0.18)
        .at("calls", "create, each lazy")
        .remark("By `begin` and `commit`, which Amino adds by itself."),
    fast("Unlink, each a transaction, not durable", 0.37).at("calls", "unlink, each lazy"),
    fast("PostMark, 2 500 small files", 1.32)
        .at("postmark", "PostMark, small files")
        .remark("PostMark unchanged: in the paper each call is a transaction, here all is one, durable at its end."),
    fast("PostMark, 10 times larger files", 1.0).at("postmark", "PostMark, 10x larger files"),
    rate("PostMark, 25 000 files", "no figure").at("postmark", "PostMark, 10x more files"),
    fast("PostMark, 25 000 files in 250 directories", 4.3)
        .at("postmark", "PostMark, 10x more files in 250 directories"),
    fast("PostMark, each step a transaction, not durable", 1.04)
        .at("mail", "PostMark, small files, each step lazy")
        .remark("2 500 small files. Here and below, 300 steps; PostMark makes as many as there are files."),
    fast("The same, 10 times larger files", 0.81).at("mail", "PostMark, 10x larger files, each step lazy"),
    rate("The same, 25 000 files", "no figure").at("mail", "PostMark, 10x more files, each step lazy"),
    rate("The same, 25 000 files in 250 directories", "no figure")
        .at("mail", "PostMark, 10x more files in 250 directories, each step lazy"),
    fast("PostMark with transactions, durable", 2.6)
        .at("mail", "PostMark, small files, each step durable")
        .remark(SYNC),
    fast("The same, 10 times larger files", 6.7).at("mail", "PostMark, 10x larger files, each step durable"),
    rate("The same, 25 000 files", "no figure").at("mail", "PostMark, 10x more files, each step durable"),
    fast("The same, 25 000 files in 250 directories", 2.4)
        .at("mail", "PostMark, 10x more files in 250 directories, each step durable"),
    fast("Create, durable", 1.04).at("calls", "create, each durable").remark(SYNC),
    fast("Unlink, durable", 3.9).at("calls", "unlink, each durable").remark(SYNC),
    long("Unpacking Linux 2.6.16: time", 7.0)
        .at("unpack", "unpack, durable")
        .remark("9 000 entries of /usr, 118 MiB, instead of 20 433 and 260 MB; one transaction."),
    rate("GNU tar with transactions: the archive one", "no figure")
        .at("archives", "unpack an archive, whole")
        .remark("The same archive, `atomdir unpack` beside tar; the paper changes 35 lines of tar."),
    fast("Each entry one, not durable", 0.14).also("7.3x as long").at("archives", "unpack an archive, each entry"),
    stated("Each entry one, durable", "4.2x as fast as a sync mount")
        .remark("Not measured: with `--each` the entries commit lazily, and all are durable at the end."),
    long("OpenSSH, configure: time", 1.85).at("build", "configure less").remark("less instead of OpenSSH."),
    long("OpenSSH, build: time", 1.40).at("build", "make less"),
    long("OpenSSH, build with transactions, durable: time", 1.55)
        .also("sync mount 6.4x")
        .at("recipes", "make -j1 of less")
        .remark("Each recipe a durable transaction, beside a plain make that flushes once."),
    fast("Mail delivery, beside the plain mailer", 0.77)
        .also("to 0.93x")
        .at("deliveries", "mbox, 1 at once")
        .to(Side::Maildrop)
        .remark("Beside maildrop, which flushes. [mail.md](mail.md#how-fast) has procmail, too."),
    fast("Mail delivery, six at once", 0.77).also("to 0.93x").at("deliveries", "mbox, 6 at once").to(Side::Maildrop),
    stated("mail.local's delivery with transactions: lines of code", "0.16x as many (72 in place of 451)")
        .remark("Not a time. 0.34x as many: 385 in place of procmail's 1 143 ([mail.md](mail.md#how-much-code))."),
    fast("8 GB, not cached: sequential read", 0.20)
        .at("beyond", "sequential read beyond memory")
        .remark("128 MiB, with program and service limited to 32 MiB of memory."),
    fast("Random read", 0.90).at("beyond", "random read beyond memory"),
    fast("Sequential write", 0.28).at("beyond", "sequential write beyond memory").remark("A new file."),
    fast("Random write", 0.41)
        .at("beyond", "random write beyond memory")
        .remark("An old file; a native view copies it first."),
    fast("Sequential read, 32 threads", 0.018).at("beyond", "sequential read beyond memory, 32 threads"),
    rate("Random read, 32 threads", "no figure").at("beyond", "random read beyond memory, 32 threads"),
    fast("Sequential write, 32 threads", 0.40).at("beyond", "sequential write beyond memory, 32 threads"),
    fast("Random write, 32 threads", 0.53).at("beyond", "random write beyond memory, 32 threads"),
    fast("Durable writes, sequential", 1.9)
        .at("granularity", "transactions of 1 pages")
        .remark("One page in each transaction, cached; the plain side flushes after each page."),
    fast("Durable writes, random", 1.1).at("granularity", "transactions of a random page"),
    fast("One intercepted stat, beside a bare one", 0.051)
        .also("19.8x as long; open 18.9x")
        .at("files", "stat, first")
        .remark("A first stat in a view, which is a request to the service."),
    stated("One intercepted call, beside a bare getpid", "46x to 89x as long")
        .remark("Atomdir intercepts no call, so that getpid takes as long in a view as elsewhere."),
    stated("A first stat in a view, beside a bare getpid", "no figure")
        .at("files", "stat, first, beside getpid")
        .remark("What stands here in the place of an intercepted call."),
];
