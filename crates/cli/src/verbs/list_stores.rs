//! The stores of the machine that are in use.

use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, json::Text, quoted, user_name};
use atomdir::client::{TransactionStatus, mounts, services};
use atomdir::{StoreLocation, Trust};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

struct InUse {
    store: StoreLocation,
    /// `Err`: why they are not known.
    transactions: Result<Vec<TransactionStatus>, String>,
}

struct Stores(Vec<InUse>);

impl Show for Stores {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for InUse {
            store,
            transactions,
        } in &self.0
        {
            let root = quoted(store.root.as_os_str().as_bytes());
            painter.paint(Style::Heading, &root)?;
            let owner = user_name(store.owner);
            match transactions {
                Ok(open) => {
                    let count = counted(open.len() as u64, "open transaction");
                    writeln!(painter, "  of {owner}: {count}")?;
                    if !open.is_empty() {
                        super::list::Transactions(open.clone()).show(painter)?;
                    }
                }
                Err(reason) => {
                    let reason = escaped(reason.as_bytes());
                    writeln!(painter, "  of {owner}: not looked at: {reason}")?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct StoresJson<'a> {
    stores: Vec<StoreJson<'a>>,
}

#[derive(Serialize)]
struct StoreJson<'a> {
    store: Text<'a>,
    owner: u32,
    /// `null`: they are not known.
    transactions: Option<Vec<json::Transaction<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_because: Option<&'a str>,
}

impl Serialize for Stores {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stores = self.0.iter().map(|one| {
            let open = one.transactions.as_ref();
            StoreJson {
                store: Text(one.store.root.as_os_str().as_bytes()),
                owner: one.store.owner,
                transactions: open.ok().map(|open| open.iter().map(Into::into).collect()),
                unknown_because: open.err().map(String::as_str),
            }
        });
        let stores = stores.collect();
        StoresJson { stores }.serialize(serializer)
    }
}

/// Lists the stores that have a service, as far as the user may see that they have one.
pub(super) fn run(context: &Context) -> Result<(), Error> {
    let mut roots = mounts::stores_with_views().unwrap_or_default();
    roots.extend(services::stores_with_services());
    roots.sort();
    roots.dedup();
    let user = rustix::process::geteuid().as_raw();
    let mut stores = Vec::new();
    for root in roots {
        // Anybody can mount a file system, or start a process, that names a directory.
        let Ok(store) = StoreLocation::at_with(&root, Trust::Everyone) else {
            continue;
        };
        let transactions = match context.connect_to_running_at(&store.root) {
            Ok(None) => continue,
            Ok(Some(mut connected)) => {
                let open = connected.connection.transactions();
                open.map_err(|error| error.to_string())
            }
            Err(_) if user != 0 && user != store.owner => continue,
            Err(error) => Err(error.to_string()),
        };
        stores.push(InUse {
            store,
            transactions,
        });
    }
    context.output.print_paged(&Stores(stores))
}
