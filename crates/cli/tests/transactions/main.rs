//! The verbs on a real store, through the service and its mounted views.

mod administration;
mod completion;
mod diff;
mod hostile;
mod pager;
mod run;
mod store;
mod verbs;
