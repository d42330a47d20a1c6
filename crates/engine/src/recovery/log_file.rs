//! Reading the log, and finding out whether it has all that it must have.

use atomdir_disk::Disk;
use atomdir_format::header::StoreHeader;
use atomdir_format::record::LogRecord;

use crate::control::applied_mark::AppliedFile;
use crate::control::failed;
use crate::control::log_elsewhere::LogFile;
use crate::error::StoreError;
use crate::log::{ReadRecords, read_records_from};
use crate::names;

/// Reads the log, except the commits at its start that are durably in the base, and keeps of
/// the other commits what `keep` returns.
pub(crate) fn read_log<D: Disk, T>(
    disk: &D,
    log: &LogFile<D>,
    applied: &AppliedFile<D>,
    header: &StoreHeader,
    keep: impl Fn(LogRecord) -> T,
) -> Result<ReadRecords<T>, StoreError> {
    let newest = header.last_sequence;
    let mut found = newest;
    let read = read_records_from(
        disk,
        (&log.handle, log.start()),
        header.store_id,
        newest + 1,
        |record: LogRecord| {
            (record.sequence() > newest).then(|| {
                found = record.sequence();
                keep(record)
            })
        },
    )?;
    let durable = applied
        .durable(disk)
        .map_err(failed("read the applied mark"))?;
    match durable {
        Some(durable) if durable.0 > found => Err(StoreError::Damaged {
            file: names::LOG,
            offset: read.tail,
            reason: format!(
                "record {} is missing, although all records up to {durable} were durable",
                found + 1
            ),
        }),
        _ => Ok(read),
    }
}
