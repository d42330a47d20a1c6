//! The workloads: one file for each family.

mod beyond;
mod build;
mod bulk;
mod calls;
mod clients;
mod commands;
mod deliveries;
mod empty;
mod entries;
mod files;
mod history;
mod idioms;
mod isolation;
mod killed_deliveries;
mod library;
mod ordering;
mod outside;
mod overwrite;
mod postmark;
mod recovery;
mod search;
mod several;
mod sqlite;
mod steps;
mod tools;
mod transactions;
mod transfer;
mod trees;
mod undo;
mod unpack;

use crate::bench::Bench;
use crate::error::Result;
use crate::report::Row;

type Workload = fn(&Bench) -> Result<Vec<Row>>;

pub const ALL: &[(&str, Workload)] = &[
    ("empty", empty::empty),
    ("nested", empty::nested),
    ("commands", commands::commands),
    ("unpack", unpack::unpack),
    ("git", unpack::git),
    ("bulk", bulk::bulk),
    ("search", search::search),
    ("build", build::build),
    ("serializable", isolation::serializable),
    ("history", history::history),
    ("undo", undo::undo),
    ("outside", outside::outside),
    ("memory", outside::memory),
    ("files", files::files),
    ("threads", files::threads),
    ("calls", calls::calls),
    ("transfer", transfer::transfer),
    ("beyond", beyond::beyond),
    ("postmark", postmark::postmark),
    ("mail", steps::mail),
    ("cancel", ordering::cancel),
    ("log", ordering::log),
    ("order", ordering::order),
    ("overwrite", overwrite::overwrite),
    ("sizes", overwrite::sizes),
    ("granularity", overwrite::granularity),
    ("writers", clients::writers),
    ("clients", clients::clients),
    ("transactions", transactions::transactions),
    ("library", library::library),
    ("idioms", idioms::idioms),
    ("deliveries", deliveries::deliveries),
    ("killed-deliveries", killed_deliveries::killed_deliveries),
    ("entries", entries::entries),
    ("sqlite", sqlite::sqlite),
    ("recipes", tools::recipes),
    ("archives", tools::archives),
    ("several", several::several),
    ("recovery", recovery::recovery),
    ("uncommitted", recovery::uncommitted),
    ("trees", trees::trees),
];
