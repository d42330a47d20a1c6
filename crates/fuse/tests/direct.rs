//! Files written past the kernel's cache (O_DIRECT) and read through it.

#![cfg(test)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atomdir_testing::wait_until;

const PAGE: usize = 4096;

#[repr(align(4096))]
struct Page([u8; PAGE]);

/// struct iocb of linux/aio_abi.h, on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    key: u32,
    flags: u32,
    code: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    event_flags: u32,
    event: u32,
}

#[repr(C)]
#[derive(Default)]
struct Completion {
    data: u64,
    operation: u64,
    result: i64,
    result2: i64,
}

const WRITE: u16 = 1;

/// Writes asynchronously (io_submit).
struct Writer {
    file: File,
    context: libc::c_ulong,
}

impl Writer {
    fn new(path: &Path) -> Writer {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path).unwrap();
        let mut context = 0;
        // SAFETY: the call sets the context.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        assert_eq!(made, 0);
        Writer { file, context }
    }

    /// Returns when the kernel has reported that the write is complete.
    fn write(&self, page: &Page, offset: usize) {
        let mut operation = Operation {
            code: WRITE,
            file: self.file.as_raw_fd() as u32,
            buffer: page.0.as_ptr() as u64,
            length: PAGE as u64,
            offset: offset as i64,
            ..Operation::default()
        };
        let mut completion = Completion::default();
        let mut list = [&raw mut operation];
        let (context, events) = (self.context, &raw mut completion);
        let no_timeout = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: all arguments of the calls live until the operation is complete.
        unsafe {
            let submitted = libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr());
            assert_eq!(submitted, 1);
            let done = libc::syscall(libc::SYS_io_getevents, context, 1, 1, events, no_timeout);
            assert_eq!(done, 1);
        }
        assert_eq!(completion.result, PAGE as i64);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: `new` made the context, and nothing else uses it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn read(file: &File, offset: usize) -> Page {
    let mut page = Page([0; PAGE]);
    file.read_exact_at(&mut page.0, offset as u64).unwrap();
    page
}

/// The reader reads while the write is under way.
#[test]
fn finished_direct_write_is_visible() {
    let Some(mounted) = support::mount() else {
        return;
    };
    let path = mounted.join("f");
    fs::write(&path, [b'o'; 2 * PAGE]).unwrap();
    let (direct, buffered) = (Writer::new(&path), File::open(&path).unwrap());
    mounted.filesystem.put_off.begin(b'n');
    let writer = thread::spawn(move || direct.write(&Page([b'n'; PAGE]), PAGE));
    wait_until("the write", || mounted.filesystem.put_off.files() > 0);
    assert!(read(&buffered, PAGE).0 == [b'o'; PAGE]);
    mounted.filesystem.put_off.resume();
    writer.join().unwrap();
    assert!(
        read(&buffered, PAGE).0 == [b'n'; PAGE],
        "the kernel still has the old contents in its cache"
    );
}

#[test]
fn finished_direct_write_in_a_view_is_visible() {
    const ROUNDS: usize = 2000;
    const PAGES: usize = 4;
    let Some(mounted) = support::store::mount() else {
        return;
    };
    fs::write(mounted.base.join("f"), [0; PAGES * PAGE]).unwrap();
    let (transaction, view) = mounted.begin();
    let path = view.join("f");
    let (direct, buffered) = (Writer::new(&path), File::open(&path).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::open(&path).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                for page in 0..PAGES {
                    let _ = read(&file, page * PAGE);
                }
            }
        });
        for round in 1..=ROUNDS {
            let (offset, byte) = (round % PAGES * PAGE, round as u8);
            direct.write(&Page([byte; PAGE]), offset);
            let seen = read(&buffered, offset).0;
            if seen != [byte; PAGE] {
                is_over.store(true, Ordering::Relaxed);
                panic!("round {round}: {} is still seen, not {byte}", seen[0]);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mounted.store.abort(&transaction);
}

#[test]
fn as_an_ordinary_user() {
    support::run_as_ordinary_user();
}
