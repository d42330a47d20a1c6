//! `-- PATH...`: selects the changes at or below these paths.

use crate::error::Error;
use atomdir::client::ChangeLine;
use atomdir::client::compare::PathFilter;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

#[derive(Default)]
pub struct Filter(PathFilter);

impl Deref for Filter {
    type Target = PathFilter;

    fn deref(&self) -> &PathFilter {
        &self.0
    }
}

impl Filter {
    /// The paths are relative to the caller's directory. They may name removed
    /// objects, so this does not resolve them.
    pub fn new(root: &Path, start: &Path, paths: &[PathBuf]) -> Result<Filter, Error> {
        let paths = paths.iter().map(|path| path_in_store(root, start, path));
        let paths = paths.collect::<Result<_, _>>()?;
        Ok(Filter(PathFilter::new(paths)))
    }

    /// Selects what is at or below the paths of a change.
    pub fn only(line: &ChangeLine) -> Filter {
        let paths = line.from.iter().chain([&line.path]);
        let paths = paths.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        Filter(PathFilter::new(paths.collect()))
    }
}

/// Makes a path of the caller's relative to the store's root.
pub fn path_in_store(root: &Path, start: &Path, path: &Path) -> Result<PathBuf, Error> {
    let absolute = root.join(start).join(path);
    match without_dots(&absolute).strip_prefix(root) {
        Ok(relative) => Ok(relative.to_owned()),
        Err(_) => Err(Error::usage(format!(
            "'{}' is not in the store '{}'",
            path.display(),
            root.display()
        ))),
    }
}

pub fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir::Change;

    fn wants(paths: &[&str], change: &str) -> bool {
        let (root, start) = (Path::new("/srv/site"), Path::new("docs"));
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        Filter::new(root, start, &paths)
            .unwrap()
            .wants(&ChangeLine {
                change: Change::Renamed,
                path: change.into(),
                from: Some(b"old/name".to_vec()),
            })
    }

    #[test]
    fn paths_are_relative_to_the_directory_and_match_whole_names() {
        assert!(wants(&[], "anything"));
        assert!(wants(&["guide"], "docs/guide/a"));
        assert!(wants(&["."], "docs/guide"));
        assert!(!wants(&["gui"], "docs/guide"));
        assert!(wants(&["../img/./x"], "img/x"));
        assert!(wants(&["/srv/site"], "img/x"));
        assert!(wants(&["nothing", "/srv/site/old"], "img/x"));
    }

    #[test]
    fn a_path_outside_the_store_is_refused() {
        let (root, start) = (Path::new("/srv/site"), Path::new(""));
        assert!(Filter::new(root, start, &["../other".into()]).is_err());
    }
}
