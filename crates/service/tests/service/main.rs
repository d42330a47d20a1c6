//! Tests of the service over its real socket, as clients and other processes use it.

#[cfg(test)]
mod closed;
#[cfg(test)]
mod expiry;
#[cfg(test)]
mod holdups;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod killed;
mod lifecycle;
#[cfg(test)]
mod mutated;
#[cfg(test)]
mod roots;
#[cfg(test)]
mod stuck_page;
#[cfg(test)]
mod support;
#[cfg(test)]
mod take_over;
mod users;
#[cfg(test)]
mod waits;
