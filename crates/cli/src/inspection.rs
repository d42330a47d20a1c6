//! Inspects a store without changing it, through its service if one runs.

use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir_service::{Inspection, ServiceError, inspect};

pub enum Inspected {
    InUse(Connected),
    AtRest(Inspection),
}

/// Does not start a service, and changes nothing.
pub fn look(context: &Context) -> Result<Inspected, Error> {
    if let Some(connected) = context.connect_if_running()? {
        return Ok(Inspected::InUse(connected));
    }
    match inspect(&context.store()?.root) {
        // Someone has just started the service.
        Err(ServiceError::AlreadyRunning { .. }) => {
            Ok(Inspected::InUse(context.connect_to_running()?))
        }
        other => Ok(Inspected::AtRest(other?)),
    }
}
