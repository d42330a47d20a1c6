//! The service over its real socket, as clients and others meet it.

mod hostile;
mod lifecycle;
mod support;
mod users;
