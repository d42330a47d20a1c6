//! Configure and make of a C project.

use super::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::Result;
use crate::measure::{Side, alternate, rest, timed};
use crate::programs::{Store, clear, make_directory, output, shell};
use crate::report::{Line, Target};

const PACKAGE: &str = "gzip";
const NAME: &str = "configure and make";
const BUILD: &str = "./configure --disable-silent-rules; make -j2";
/// A build takes long: few rounds tell enough.
const ROUNDS_MAX: usize = 3;

pub fn measure(bench: &Bench) -> Result<Vec<Line>> {
    let Some(archive) = corpus::c_project(&bench.cache, PACKAGE)? else {
        eprintln!("{NAME}: left out, no source of {PACKAGE} can be fetched");
        return Ok(Vec::new());
    };
    let plain = bench.directory.join("build-plain");
    let base = bench.directory.join("build-store");
    let unpack = format!(
        "tar xf '{}' --no-same-owner --strip-components=1",
        archive.display()
    );
    let pair = alternate(bench.rounds.min(ROUNDS_MAX), |side, _| {
        let place = match side {
            Side::Plain => &plain,
            Side::Transaction => &base,
        };
        clear(place)?;
        make_directory(place)?;
        shell(place, &unpack)?;
        match side {
            Side::Plain => {
                rest();
                Ok(timed(|| shell(place, BUILD))?.0)
            }
            Side::Transaction => {
                let store = Store::warm(&bench.program, place)?;
                rest();
                let arguments = ["run", "--", "/bin/sh", "-ec", BUILD];
                let (took, _) = timed(|| output(&mut store.command(arguments)))?;
                store.stop()?;
                Ok(took)
            }
        }
    })?;
    compare::trees(NAME, Degree::Names, &plain, &base)?;
    clear(&plain)?;
    clear(&base)?;
    Ok(vec![Line {
        workload: NAME,
        pair,
        target: Target::Ratio(1.15),
        note: PACKAGE.to_owned(),
    }])
}
