//! Copies of files that programs are about to change.
//!
//! A file may be long, and few workers serve all programs. So a thread of its own makes the copy, while the
//! program's open waits. A signal to the program ends the wait.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use atomdir_disk::{Disk, LinuxDisk, sync};
use atomdir_fuse::{Request, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::acting::{Acting, set_umask};
use crate::nodes::Node;
use crate::{Known, calls};

const CHUNK: usize = 1 << 20;
/// How often a file is copied anew because others have changed it meanwhile.
const TRIES_MAX: usize = 8;

/// By the numbers of the requests that wait for them. `None`: it is being made.
#[derive(Default)]
pub struct Copies(Mutex<HashMap<u64, Option<Result<OwnedFd>>>>);

impl Copies {
    /// The copy of a file. `EINPROGRESS`: it is being made, and the request comes again. The copy has no
    /// name; its file system is that of the directory.
    pub fn get(
        self: &Arc<Copies>,
        known: &Arc<Known>,
        request: &Request,
        (file, directory): (&Arc<Node>, &Arc<Node>),
    ) -> Result<OwnedFd> {
        let mut waiting = sync::lock(&self.0);
        match waiting.remove(&request.unique) {
            Some(Some(copy)) => return copy,
            // It is made already.
            Some(None) => {
                waiting.insert(request.unique, None);
                return Err(Errno::INPROGRESS);
            }
            None => waiting.insert(request.unique, None),
        };
        drop(waiting);
        let (copies, known, request) = (self.clone(), known.clone(), *request);
        let (file, directory) = (file.clone(), directory.clone());
        let make = move || {
            let copy = copies.make(&request, &file, &directory);
            if let Some(slot) = sync::lock(&copies.0).get_mut(&request.unique) {
                *slot = Some(copy);
            }
            known.retry_requests();
        };
        let thread = std::thread::Builder::new().name("guard-copy".to_owned());
        match thread.spawn(make) {
            Ok(_) => Err(Errno::INPROGRESS),
            Err(_) => {
                self.give_up(request.unique);
                Err(Errno::NOMEM)
            }
        }
    }

    /// The request does not come again.
    pub fn give_up(&self, unique: u64) {
        sync::lock(&self.0).remove(&unique);
    }

    fn make(&self, request: &Request, file: &Node, directory: &Node) -> Result<OwnedFd> {
        let disk = LinuxDisk::new();
        let acting = Acting::begin(&disk, request)?;
        set_umask(0)?;
        let copy = calls::make_unnamed(&directory.object, 0o600)?;
        for _ in 0..TRIES_MAX {
            let before = disk.stat(&file.object)?;
            self.copy_contents(request, &file.object, &copy)?;
            if disk.stat(&file.object)?.changed == before.changed {
                break;
            }
        }
        drop(acting);
        calls::copy_attributes(&disk.stat(&file.object)?, &file.object, &copy)?;
        Ok(copy)
    }

    fn copy_contents(&self, request: &Request, from: &OwnedFd, to: &OwnedFd) -> Result<()> {
        let to = calls::open(to, OFlags::WRONLY | OFlags::TRUNC)?;
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        loop {
            let count = calls::read(from, offset, &mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            calls::write(&to, offset, &chunk[..count])?;
            offset += count as u64;
            if !sync::lock(&self.0).contains_key(&request.unique) {
                return Err(Errno::INTR);
            }
        }
    }
}
