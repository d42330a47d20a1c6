//! `recover --system`: recovers all stores, and waits until what was in doubt is decided.

use super::commits;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::escaped;
use atomdir::client::TransactionStatus;
use std::time::Duration;

/// The services ask the store that decides by themselves.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Afterwards the stores show the same transactions.
pub fn recover(context: &Context) -> Result<(), Error> {
    // This starts the services, which recover their stores.
    let mut stores = commits::connect(context)?;
    let mut said: Option<String> = None;
    while let Some((store, one)) = in_doubt(&mut stores)? {
        let (root, id) = (store.root.display(), one.transaction);
        let known = one.in_doubt.and_then(|one| one.reason);
        let why = known.map_or_else(String::new, |why| format!(": {}", escaped(why.as_bytes())));
        let message = format!("waiting for transaction {id} of '{root}', which is in doubt{why}");
        if said.as_ref() != Some(&message) {
            context.output.note(&message);
            said = Some(message);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// A transaction of one of the stores that another store decides.
pub fn in_doubt(
    stores: &mut [Connected],
) -> Result<Option<(&Connected, TransactionStatus)>, Error> {
    for store in stores {
        let open = store.connection.transactions()?.into_iter();
        if let Some(one) = open.into_iter().find(|one| one.in_doubt.is_some()) {
            return Ok(Some((store, one)));
        }
    }
    Ok(None)
}
