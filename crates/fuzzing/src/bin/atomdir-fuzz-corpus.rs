//! Writes the first inputs of each target: `atomdir-fuzz-corpus DIR` makes `DIR/TARGET/NUMBER`.

use std::fs;
use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let usage = || io::Error::other("usage: atomdir-fuzz-corpus DIR");
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or_else(usage)?);
    let corpus = atomdir_fuzzing::corpus();
    for (target, _) in atomdir_fuzzing::TARGETS {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in corpus.of(target).iter().enumerate() {
            fs::write(folder.join(number.to_string()), bytes)?;
        }
    }
    Ok(())
}
