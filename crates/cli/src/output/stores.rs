//! Results of several stores: the text of each under a heading, and in JSON a list.

use super::{Painter, Show, Style, json::Text, quoted};
use serde::{Serialize, Serializer};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The result of one of several stores.
#[derive(Serialize)]
pub struct InStore<T> {
    #[serde(serialize_with = "root")]
    pub store: PathBuf,
    #[serde(flatten)]
    pub result: T,
}

#[derive(Serialize)]
pub struct Stores<T> {
    pub stores: Vec<InStore<T>>,
}

impl<T: Show> Show for Stores<T> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for (place, one) in self.stores.iter().enumerate() {
            if place > 0 {
                painter.line(Style::Heading, "")?;
            }
            let store = quoted(one.store.as_os_str().as_bytes());
            painter.line(Style::Heading, format!("store {store}"))?;
            one.result.show(painter)?;
        }
        Ok(())
    }
}

fn root<S: Serializer>(store: &PathBuf, serializer: S) -> Result<S::Ok, S::Error> {
    Text(store.as_os_str().as_bytes()).serialize(serializer)
}
