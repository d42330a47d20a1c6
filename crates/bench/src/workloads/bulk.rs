//! Bulk work, most of it on files that were there before: each job is one transaction, with its
//! commit. PostMark and git's init, add and commit are here because they have the same sides; as the
//! papers have them, they are the workloads `postmark` and `git`.

use std::path::{Path, PathBuf};

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Error, Result};
use crate::measure::{Side, Sides, in_turns};
use crate::programs::{clear, make_directory, shell};
use crate::report::Row;
use crate::workloads::{postmark, unpack};
use crate::workspace::Workspace;

/// Files in the tree that most jobs work on, with five bytes each.
const FILES: u64 = 20_000;
const FILES_IN_DIRECTORY: u64 = 100;
/// Files in the one directory that is filled or removed.
const IN_ONE_DIRECTORY: u64 = 50_000;
/// Files on each branch of the repository.
const BRANCH_FILES: u64 = 9000;
const PACKAGES: u64 = 20;
const PACKAGE_FILES: u64 = 200;

/// A job: on which files, what, and how its outcome is compared. Both scripts find the variables of
/// [`Places`].
struct Job {
    name: &'static str,
    /// Makes the tree once; each side gets a copy of it.
    files: &'static str,
    /// Run after `files`.
    then: &'static str,
    /// Prepares a copy.
    prepare: &'static str,
    script: &'static str,
    degree: Degree,
    needs: Needs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Root,
    Program(&'static str),
    PostMark,
}

const TREE: &str = r#"
for directory in $(seq "$directories"); do
    mkdir "d$directory"
    for file in $(seq "$per_directory"); do echo "file" > "d$directory/f$file"; done
done"#;

const OLD_PACKAGES: &str = r#"
make() {
    mkdir -p package tarballs
    for package in $(seq "$packages"); do
        rm -rf package/*
        for file in $(seq "$package_files"); do echo "$1 $file" > "package/f$file.js"; done
        echo "{\"name\":\"p$package\",\"version\":\"$1.0.0\"}" > package/package.json
        tar czf "tarballs/p$package-$1.tgz" package
    done
    rm -r package
    depend=$(seq "$packages" | sed "s,.*,\"p&\":\"file:tarballs/p&-$1.tgz\"," | paste -sd ,)
    echo "{\"name\":\"bulk\",\"version\":\"1.0.0\",\"dependencies\":{$depend}}" > package.json
    npm install --offline --ignore-scripts --no-audit --no-fund --loglevel=error \
        --cache "$npm_cache" > /dev/null
}
make 2; mv package.json package-lock.json "$source/"; rm -r node_modules
make 1; cp "$source"/package*.json ."#;

const BRANCHES: &str = r#"
for directory in d*; do
    test "${directory#d}" -le "$branch_directories" || rm -r "$directory"
done
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
commit() { git add --all; git -c gc.auto=0 commit --quiet --message="$1"; }
git init --quiet --initial-branch=one; commit one
git checkout --quiet -b two
find . -path ./.git -prune -o -name 'f*[05]' -exec rm {} + -o -name 'f*[1-4]' -exec sed -i s/file/two/ {} +
for directory in d*; do for file in 1 2 3 4 5; do echo new > "$directory/new$file"; done; done
commit two; git checkout --quiet one"#;

/// A tree of which every tenth file has changed, every tenth is gone, and as many are new.
const CHANGED: &str = r#"
cp -a . "$source/"
find "$source" -name 'f*5' -exec sh -c 'for file; do echo changed > "$file"; done' sh {} +
find "$source" -name 'f*6' -exec rm {} +
for directory in "$source"/d*; do for file in 1 2 3 4 5; do echo new > "$directory/new$file"; done; done"#;

const JOBS: &[Job] = &[
    Job::new("chmod -R g+w", "chmod -R g+w .").exactly(),
    Job::new("chown -R", "chown -R 1:1 d*")
        .exactly()
        .needing(Needs::Root),
    Job::new("rm -rf d*", "rm -rf d*"),
    Job {
        files: r#"mkdir old; cd old; seq "$in_one_directory" | xargs touch"#,
        ..Job::new("rm -r of one directory", "rm -r old")
    },
    Job {
        files: "mkdir old; echo file > old/file",
        ..Job::new(
            "new files in an old directory",
            r#"cd old; seq "$in_one_directory" | xargs touch"#,
        )
    },
    Job {
        prepare: r#"rm -rf "$copy""#,
        ..Job::new("cp -a out of the store", r#"cp -a . "$copy""#)
    },
    Job::new(
        "find | xargs cat, first pass",
        "find . -type f -print0 | xargs -0 cat > /dev/null",
    ),
    Job::new(
        "find | xargs sed -i",
        "find . -type f -print0 | xargs -0 sed -i s/file/line/",
    ),
    Job {
        prepare: "mkdir n",
        ..Job::new("mv d* n/", "mv d* n/").exactly()
    },
    Job {
        then: CHANGED,
        ..Job::new("rsync -a --delete", r#"rsync -a --delete "$source/" ."#)
            .exactly()
            .needing(Needs::Program("rsync"))
    },
    Job {
        // The copy's inodes are not those that the index knows.
        prepare: "git status --short",
        then: BRANCHES,
        degree: Degree::Names,
        ..Job::new(
            "git checkout of another branch",
            "GIT_CONFIG_GLOBAL=/dev/null git checkout --quiet two",
        )
    },
    Job {
        files: OLD_PACKAGES,
        degree: Degree::Names,
        ..Job::new(
            "npm ci over an old node_modules",
            r#"npm ci --offline --ignore-scripts --no-audit --no-fund --loglevel=error \
                --cache "$npm_cache" > /dev/null"#,
        )
        .needing(Needs::Program("npm"))
    },
    Job {
        files: "true",
        ..Job::new("PostMark, small files", "postmark").needing(Needs::PostMark)
    },
    Job {
        files: r#"tar xf "$archive""#,
        degree: Degree::Names,
        ..Job::new("git init, add, commit", unpack::GIT).needing(Needs::Program("git"))
    },
];

impl Job {
    const fn new(name: &'static str, script: &'static str) -> Job {
        Job {
            name,
            files: TREE,
            then: "",
            prepare: "",
            script,
            degree: Degree::Contents,
            needs: Needs::Nothing,
        }
    }

    const fn exactly(self) -> Job {
        Job {
            degree: Degree::Exact,
            ..self
        }
    }

    const fn needing(self, needs: Needs) -> Job {
        Job { needs, ..self }
    }
}

/// The directories that the jobs use, besides the tree of each side.
struct Places {
    /// The tree that is copied for each side.
    template: PathBuf,
    /// `rsync` and `npm` copy from here.
    source: PathBuf,
    /// `cp` copies to this place.
    copy: PathBuf,
    npm_cache: PathBuf,
}

impl Places {
    fn of(bench: &Bench) -> Places {
        let place = |name: &str| bench.directory.join(format!("bulk-{name}"));
        Places {
            template: place("template"),
            source: place("source"),
            copy: place("copy"),
            npm_cache: place("npm"),
        }
    }

    fn clear(&self) -> Result<()> {
        [&self.template, &self.source, &self.copy, &self.npm_cache]
            .into_iter()
            .try_for_each(|place| clear(place))
    }

    /// The lines of shell that define the places and the sizes, and PostMark as a function.
    fn variables(&self, bench: &Bench, postmark: Option<&str>) -> String {
        let (per_directory, branch) = (FILES_IN_DIRECTORY, bench.scaled(BRANCH_FILES));
        let files = bench.scaled(FILES);
        format!(
            "source='{}'; copy='{}'; npm_cache='{}'; archive='{}'\n\
             per_directory={per_directory}; directories={}; branch_directories={}\n\
             in_one_directory={}; packages={PACKAGES}; package_files={}\n\
             postmark() {{ {}; }}\n",
            self.source.display(),
            self.copy.display(),
            self.npm_cache.display(),
            bench.corpus.archive.display(),
            files.div_ceil(per_directory),
            branch.div_ceil(per_directory),
            bench.scaled(IN_ONE_DIRECTORY),
            bench.scaled(PACKAGE_FILES),
            postmark.unwrap_or("false"),
        )
    }
}

pub fn bulk(bench: &Bench) -> Result<Vec<Row>> {
    let is_unknown = |row: &&String| JOBS.iter().all(|job| job.name != **row);
    if let Some(row) = bench.rows.iter().find(is_unknown) {
        return Err(Error::NoRow(row.clone()));
    }
    let mut rows = Vec::new();
    let wanted = |job: &&Job| bench.rows.is_empty() || bench.rows.iter().any(|row| row == job.name);
    for job in JOBS.iter().filter(wanted) {
        let postmark = match job.needs {
            Needs::PostMark => postmark::script(bench, &postmark::CONFIGURATIONS[0])?,
            _ => None,
        };
        let missing = match job.needs {
            Needs::PostMark if postmark.is_none() => Some("Debian's package of PostMark"),
            Needs::Root if !bench.may_mount => Some("root"),
            Needs::Program(name)
                if shell(Path::new("/"), &format!("command -v {name}")).is_err() =>
            {
                Some(name)
            }
            _ => None,
        };
        match missing {
            Some(missing) => eprintln!("bulk: '{}' left out, it needs {missing}", job.name),
            None => rows.push(measure(bench, job, postmark.as_deref())?),
        }
    }
    Ok(rows)
}

fn measure(bench: &Bench, job: &Job, postmark: Option<&str>) -> Result<Row> {
    let places = Places::of(bench);
    places.clear()?;
    for place in [&places.template, &places.source] {
        make_directory(place)?;
    }
    let variables = places.variables(bench, postmark);
    let make = format!("{variables}{}\n{}", job.files, job.then);
    shell(&places.template, &make)?;
    let copy = format!(
        "cp -a '{}/.' .\n{variables}{}",
        places.template.display(),
        job.prepare
    );
    let script = format!("{variables}step -\n{}\nstep work", job.script);
    let sides = sides(bench);
    let measured = in_turns(bench.rounds, &sides, |side| {
        let fill = |path: &Path| shell(path, &copy).map(|_| ());
        Workspace::fresh(bench, side, "bulk", fill)?.run(&script)
    })?;
    // The bare overlay's changes are not in its directory.
    clear(&bench.directory.join(format!("bulk-{}", Side::Bare)))?;
    let compared: Vec<Side> = sides
        .into_iter()
        .filter(|side| *side != Side::Bare)
        .collect();
    compare::sides(bench, "bulk", job.degree, &compared)?;
    places.clear()?;
    let note = beside_bare(&measured.whole);
    Ok(Row::new(job.name, measured.whole).note(&note))
}

/// Plain, the bare overlay, and all kinds of views.
fn sides(bench: &Bench) -> Vec<Side> {
    let mut sides = bench.sides();
    if bench.may_mount {
        sides.insert(1, Side::Bare);
    }
    if bench.views.contains(&Side::Native) {
        sides.push(Side::Exclusive);
    }
    sides
}

/// How the views compare with the overlay.
fn beside_bare(sides: &Sides) -> String {
    let Some(bare) = sides.of(Side::Bare) else {
        return String::new();
    };
    let ratios = sides
        .iter()
        .filter(|(side, _)| side.has_store())
        .map(|(side, series)| format!("{side} {:.2}x", series.median() / bare.median()));
    format!(
        "to the bare overlay: {}",
        ratios.collect::<Vec<_>>().join(", ")
    )
}
