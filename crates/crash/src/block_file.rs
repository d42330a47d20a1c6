//! One file of a FUSE file system: a disk in memory that records each write and
//! each flush.

use atomdir_disk::sync;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use atomdir_disk::{Kind, Owner, Timestamp};
use atomdir_fuse::wire::{
    DATA_LENGTH_MAX, InitReply, Operation, REQUEST_LENGTH_MAX, ReplyWriter, decode_header,
    decode_operation, reply_header,
};
use atomdir_fuse::{Entry, NodeAttributes, ROOT_NODE, Validity};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::image::Image;
use crate::recording::{CommitEvent, Event, Recording};

const FILE_NAME: &str = "disk";
const FILE_NODE: u64 = 2;

/// From `linux/fuse.h`. The product's views need none of these.
const OPENDIR: u32 = 27;
const INTERRUPT: u32 = 36;
const FOPEN_DIRECT_IO: u32 = 1;
const BIG_WRITES: u64 = 1 << 5;
const MAX_PAGES: u64 = 1 << 22;

/// The file is served until this is dropped. Programs that still use it then get I/O errors.
#[derive(Debug)]
pub struct BlockFile {
    mount_point: PathBuf,
    disk: Arc<Mutex<Disk>>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Disk {
    image: Image,
    opened_count: usize,
    /// Set while a recording is made.
    initial: Option<Image>,
    events: Vec<Event>,
}

impl BlockFile {
    /// Serves the image in a new directory. Needs root.
    pub fn serve(image: Image, mount_point: &Path) -> Self {
        std::fs::create_dir_all(mount_point).expect("the mount point can be made");
        let disk = Arc::new(Mutex::new(Disk {
            image,
            opened_count: 0,
            initial: None,
            events: Vec::new(),
        }));
        let (ready, mounted) = channel();
        let server = std::thread::spawn({
            let (disk, mount_point) = (Arc::clone(&disk), mount_point.to_owned());
            move || serve(&disk, &mount_point, &ready)
        });
        let outcome = mounted.recv().expect("the server says whether it mounted");
        outcome.unwrap_or_else(|error| panic!("cannot serve {}: {error}", mount_point.display()));
        Self {
            mount_point: mount_point.to_owned(),
            disk,
            server: Some(server),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.mount_point.join(FILE_NAME)
    }

    /// Waits until nobody has the file open. Only then is a file system on it unmounted everywhere:
    /// another mount namespace may have had a copy of the mount.
    pub fn wait_until_closed(&self) {
        while lock(&self.disk).opened_count > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn start_recording(&self) {
        let mut disk = lock(&self.disk);
        disk.initial = Some(disk.image.clone());
        disk.events.clear();
    }

    /// Records the event between the writes.
    pub fn note_commit(&self, event: CommitEvent) {
        lock(&self.disk).record(Event::Commit(event));
    }

    /// A seed reproduces the workload, but not when the kernel writes. So a test that fails saves
    /// the disk as it was when the recording began.
    fn save_first_image(&self) {
        let Some(image) = lock(&self.disk).initial.take() else {
            return;
        };
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("disk");
        let name = format!("atomdir-{test}-{}.image", std::process::id());
        let path = std::env::temp_dir().join(name);
        match File::create(&path).and_then(|file| image.save(&file)) {
            Ok(()) => eprintln!("the disk was saved in {}", path.display()),
            Err(error) => eprintln!("cannot save the disk in {}: {error}", path.display()),
        }
    }

    pub fn stop_recording(&self) -> Recording {
        let mut disk = lock(&self.disk);
        let initial = disk.initial.take().expect("a recording was started");
        Recording::new(initial, std::mem::take(&mut disk.events))
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.save_first_image();
        }
        // Force ends the connection, so that nobody waits for the server.
        let flags = UnmountFlags::DETACH | UnmountFlags::FORCE;
        if let Err(error) = rustix::mount::unmount(&self.mount_point, flags) {
            eprintln!("cannot unmount {}: {error}", self.mount_point.display());
            return;
        }
        if let Some(server) = self.server.take()
            && server.join().is_err()
        {
            eprintln!("the server of {} has panicked", self.mount_point.display());
        }
    }
}

impl Disk {
    fn record(&mut self, event: Event) {
        if self.initial.is_some() {
            self.events.push(event);
        }
    }
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    sync::lock(disk)
}

fn serve(disk: &Mutex<Disk>, mount_point: &Path, ready: &Sender<io::Result<()>>) {
    let device = match own_descriptors().and_then(|()| mount(mount_point)) {
        Ok(device) => device,
        Err(error) => {
            // `BlockFile::serve` reports the error.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let mut buffer = vec![0; REQUEST_LENGTH_MAX];
    loop {
        let length = match (&device).read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
            // Interrupted, or the request was withdrawn.
            Err(_) => continue,
        };
        let (header, body) = decode_header(&buffer[..length]).expect("the kernel's requests parse");
        let answer = decode_operation(header.opcode, body)
            .map_err(|_| Errno::NOSYS)
            .and_then(|operation| answer(disk, header.node, operation));
        if let Some(answer) = answer.transpose() {
            reply(&device, header.unique, &answer);
        }
    }
}

/// Gives this thread a descriptor table of its own. If the process is killed while another thread
/// waits for the disk, the end of this thread ends the connection, and thereby the wait.
fn own_descriptors() -> io::Result<()> {
    // SAFETY: this thread has not opened any; those closed are its own copies.
    let outcome = unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_UNSHARE as i32) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn mount(mount_point: &Path) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0\0",
        device.as_raw_fd()
    );
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("disk", mount_point, "fuse.crash", flags, Some(data))?;
    Ok(device)
}

fn reply(device: &File, unique: u64, answer: &Result<Vec<u8>, Errno>) {
    let (error, body) = match answer {
        Ok(body) => (0, body.as_slice()),
        Err(errno) => (-errno.raw_os_error(), &[][..]),
    };
    let header = reply_header(unique, error, body.len());
    // It fails when nobody waits for the answer any more.
    let _ = rustix::io::writev(device, &[IoSlice::new(&header), IoSlice::new(body)]);
}

/// `Ok(None)`: the kernel expects no answer.
fn answer(disk: &Mutex<Disk>, node: u64, operation: Operation) -> Result<Option<Vec<u8>>, Errno> {
    let mut body = Vec::new();
    let mut writer = ReplyWriter::new(&mut body);
    match operation {
        Operation::Init(kernel) => {
            let accepted = InitReply {
                flags: kernel.flags & (BIG_WRITES | MAX_PAGES),
                readahead_length_max: DATA_LENGTH_MAX as u32,
            };
            writer.bytes(&accepted.encode());
        }
        Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Other(INTERRUPT) => {
            return Ok(None);
        }
        Operation::Lookup { name } if node == ROOT_NODE && name == FILE_NAME.as_bytes() => {
            writer.entry(&Entry {
                node: FILE_NODE,
                generation: 0,
                valid: Validity::Forever,
                attributes_valid: Validity::Forever,
                attributes: attributes(disk, FILE_NODE),
            });
        }
        Operation::Lookup { .. } => return Err(Errno::NOENT),
        Operation::GetAttributes | Operation::SetAttributes(_) => {
            writer.attributes_reply(&attributes(disk, node), Validity::Forever);
        }
        Operation::Open { .. } | Operation::Other(OPENDIR) => {
            lock(disk).opened_count += usize::from(node == FILE_NODE);
            writer.u64(0);
            writer.u32(FOPEN_DIRECT_IO);
            writer.u32(0);
        }
        Operation::Release { .. } => lock(disk).opened_count -= usize::from(node == FILE_NODE),
        Operation::ReadDirectory { .. } | Operation::Closing => {}
        Operation::Read { offset, length } => {
            body.resize(length as usize, 0);
            let read = lock(disk).image.read(offset, &mut body);
            body.truncate(read);
        }
        Operation::Write { offset, data, .. } => {
            let mut disk = lock(disk);
            let written = disk.image.write(offset, data);
            disk.record(Event::Write {
                offset,
                data: data[..written].into(),
            });
            writer.u32(written as u32);
            writer.u32(0);
        }
        Operation::Flush => lock(disk).record(Event::Flush),
        _ => return Err(Errno::NOSYS),
    }
    Ok(Some(body))
}

fn attributes(disk: &Mutex<Disk>, node: u64) -> NodeAttributes {
    let is_file = node == FILE_NODE;
    let length = if is_file {
        lock(disk).image.length()
    } else {
        0
    };
    let never = Timestamp {
        seconds: 0,
        nanoseconds: 0,
    };
    NodeAttributes {
        inode: node,
        kind: if is_file { Kind::File } else { Kind::Directory },
        mode: if is_file { 0o600 } else { 0o700 },
        links: 1,
        owner: Owner { user: 0, group: 0 },
        device_number: 0,
        length,
        blocks: length / 512,
        accessed: never,
        modified: never,
        changed: never,
    }
}
