//! A child process that waits for the mount, so that the session's process need not.
//!
//! It runs the barrier before a commit ([`super`]), opens view roots, and finds out how programs use
//! files of the mount. It is a fork
//! without exec of a program with several threads, so until it ends it may only make
//! system calls and must not allocate. It obeys one order after another, answers each
//! with an errno or 0, and ends when its parent does.
//!
//! Programs in the mount can hold the child up for as long as they like, by the locks
//! of its directories. So a [`Breaker`] can stop a thread that waits for its answer, and
//! nobody waits for its end.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use atomdir_disk::{Errno, FileUsers, LinuxDisk, PartLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use rustix::path::DecInt;

use super::NAME;
use crate::filesystem::Result;

/// The distance between two pages that the barrier changes in its file. It is more than
/// the kernel ever caches or sends as one piece, so each page becomes its own request.
pub const STRIDE: usize = 8 << 20;

/// Orders: begin a barrier; change its pages again; write them, which ends it; open the
/// directory whose path follows; queue everything that was written; look up the path that
/// follows; say how programs use the file whose inode number and path below the mount follow.
const BEGIN: u8 = 0;
const CHANGE: u8 = 1;
const WRITE: u8 = 2;
const OPEN: u8 = 3;
const SYNC: u8 = 4;
const LOOK: u8 = 5;
const USERS: u8 = 6;
const ORDER_LENGTH_MAX: usize = 4096;

/// Bits of the answer to [`USERS`], of which the last is always there. The answer is negative,
/// unlike an error.
const IN_USE: i32 = 1;
const PART_SHARED: i32 = 2;
const PART_EXCLUSIVE: i32 = 4;
const KNOWN: i32 = 8;

/// The size of the buffer for getdents(2).
const LISTED_LENGTH: usize = 4 << 10;
const FUSE_DEVICE: libc::dev_t = libc::makedev(10, 229);

pub struct BarrierProcess {
    channel: Arc<OwnedFd>,
    process: libc::pid_t,
}

/// Wakes the thread that waits for the child's answer, even if the child is held up.
#[derive(Clone)]
pub struct Breaker(Arc<OwnedFd>);

impl Breaker {
    pub fn pull(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

impl BarrierProcess {
    /// `pages_count`: how many pages the barrier's file has.
    pub fn start(mountpoint: &Path, pages_count: usize) -> Result<BarrierProcess> {
        // The path is made before the fork, since the child must not allocate.
        let file = mountpoint.join(OsStr::from_bytes(NAME));
        let of = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let paths = (of(mountpoint), of(&file));
        let (Ok(mountpoint), Ok(file)) = paths else {
            return Err(Errno::INVAL);
        };
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (channel, child) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        // SAFETY: the child only makes system calls and ends in `serve`.
        match unsafe { libc::fork() } {
            -1 => Err(Errno::AGAIN),
            0 => serve(&child, (&mountpoint, &file), pages_count),
            process => Ok(BarrierProcess {
                channel: Arc::new(channel),
                process,
            }),
        }
    }

    pub fn process(&self) -> u32 {
        self.process.unsigned_abs()
    }

    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::clone(&self.channel))
    }

    /// Whether the child has ended. It ends if somebody kills it, or if its [`Breaker`] is pulled.
    pub fn has_ended(&self) -> bool {
        let mut poll = [PollFd::new(&*self.channel, PollFlags::RDHUP)];
        let now = Timespec::default();
        retry(|| rustix::event::poll(&mut poll, Some(&now))).is_ok_and(|ready| ready > 0)
    }

    /// Makes the kernel queue everything that was written, and changes the barrier's pages.
    pub fn begin(&self) -> Result<()> {
        self.order(&[BEGIN]).map(|_| ())
    }

    /// Changes those of the barrier's pages that the kernel has written meanwhile.
    pub fn change(&self) -> Result<()> {
        self.order(&[CHANGE]).map(|_| ())
    }

    /// Makes the kernel write the barrier's pages, and waits for it.
    pub fn write(&self) -> Result<()> {
        self.order(&[WRITE]).map(|_| ())
    }

    /// Makes the kernel queue everything that was written. With rings the barrier needs no
    /// more of the child.
    pub fn sync(&self) -> Result<()> {
        self.order(&[SYNC]).map(|_| ())
    }

    /// Opens a directory of the mount.
    pub fn open_directory(&self, path: &Path) -> Result<OwnedFd> {
        self.order_at(OPEN, path)?.ok_or(Errno::NOTCONN)
    }

    /// Makes the kernel look up a path, whatever it has cached.
    pub fn look(&self, path: &Path) -> Result<()> {
        self.order_at(LOOK, path).map(|_| ())
    }

    /// How programs use a file of the mount. `path`: below the mount point.
    pub fn users(&self, path: &[u8], inode: u64, may_wait: bool) -> Result<FileUsers> {
        let head = [USERS, u8::from(may_wait)];
        let order = [&head, &inode.to_ne_bytes()[..], path].concat();
        let (answer, _) = self.ask(&checked(order)?)?;
        let has = |bit| -answer & bit != 0;
        if answer >= 0 {
            return Err(Errno::from_raw_os_error(answer));
        }
        Ok(FileUsers {
            is_in_use: has(IN_USE),
            part_lock: match has(PART_EXCLUSIVE) {
                true => Some(PartLock::Exclusive),
                false => has(PART_SHARED).then_some(PartLock::Shared),
            },
        })
    }

    fn order_at(&self, order: u8, path: &Path) -> Result<Option<OwnedFd>> {
        let order = [&[order], path.as_os_str().as_bytes()].concat();
        if order[1..].contains(&0) {
            return Err(Errno::NAMETOOLONG);
        }
        self.order(&checked(order)?)
    }

    fn order(&self, order: &[u8]) -> Result<Option<OwnedFd>> {
        match self.ask(order)? {
            (0, opened) => Ok(opened),
            (errno, _) => Err(Errno::from_raw_os_error(errno)),
        }
    }

    fn ask(&self, order: &[u8]) -> Result<(i32, Option<OwnedFd>)> {
        retry(|| rustix::io::write(&self.channel, order))?;
        let mut answer = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry(|| {
            let mut parts = [IoSliceMut::new(&mut answer)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            recvmsg(&self.channel, &mut parts, &mut control, flags)
        })?;
        if received.bytes != answer.len() {
            return Err(Errno::NOTCONN);
        }
        let opened = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((i32::from_ne_bytes(answer), opened))
    }
}

/// An order with room for the byte that ends it.
fn checked(order: Vec<u8>) -> Result<Vec<u8>> {
    match order.len() < ORDER_LENGTH_MAX {
        true => Ok(order),
        false => Err(Errno::NAMETOOLONG),
    }
}

impl Drop for BarrierProcess {
    /// The child ends by itself when the channel ends, unless something holds it up. An
    /// example is a lock of a directory in the mount whose holder waits for a page of their
    /// own file system. Then not even a signal ends the child, so nobody waits for it.
    fn drop(&mut self) {
        self.breaker().pull();
        let process = self.process;
        let reap = move || {
            let mut status = 0;
            // SAFETY: a child of ours that nobody else waits for.
            while unsafe { libc::waitpid(process, &mut status, 0) } == -1 {
                if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("fuse-reaper".to_owned());
        // If no thread can be started, the child stays a zombie until this process ends.
        let _ = thread.spawn(reap);
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Everything that the child does.
fn serve(channel: &OwnedFd, (mountpoint, file): (&CString, &CString), pages_count: usize) -> ! {
    close_connections();
    // SAFETY: descriptors of this process's own table; `channel` is moved to
    // 0, and nothing here uses any other afterwards.
    let channel = unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"atomdir-barrier".as_ptr());
        libc::dup2(channel.as_raw_fd(), 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        BorrowedFd::borrow_raw(0)
    };
    let mut order = [0; ORDER_LENGTH_MAX];
    while let Some(wanted) = wait_for_order(channel, &mut order) {
        match wanted {
            Order::Open(path) => answer_with(channel, open_directory(path)),
            Order::Look(path) => answer(channel, look(path).as_ref().map(|_| ())),
            Order::Users(may_wait, inode, path) => {
                let bits = users(mountpoint, path, (inode, may_wait));
                answer_number(channel, bits.unwrap_or_else(Errno::raw_os_error));
            }
            Order::Begin => run_barrier(channel, file, pages_count),
            // Its barrier has failed.
            Order::Change | Order::Write => answer(channel, Err(&Errno::INVAL)),
            Order::Sync => answer(channel, sync(file).as_ref().map(|_| ())),
        }
    }
    // SAFETY: ends the process without running anything of its parent's.
    unsafe { libc::_exit(0) }
}

/// Closes inherited descriptors of connections before all others. Closing a file of a
/// mount may need an answer from the session that serves it. A session that is about to
/// end gives none, so its connection must break instead, which our copy would prevent.
fn close_connections() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(descriptors) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else {
        return;
    };
    let mut buffer = [MaybeUninit::uninit(); LISTED_LENGTH];
    let mut entries = RawDir::new(&descriptors, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str().ok();
        let Some(descriptor) = name.and_then(|name| name.parse().ok()) else {
            continue;
        };
        // SAFETY: a descriptor of this process's own table, which nobody uses any more.
        unsafe {
            let mut status = std::mem::zeroed::<libc::stat>();
            if libc::fstat(descriptor, &raw mut status) == 0
                && status.st_mode & libc::S_IFMT == libc::S_IFCHR
                && status.st_rdev == FUSE_DEVICE
            {
                libc::close(descriptor);
            }
        }
    }
}

fn run_barrier(channel: BorrowedFd<'_>, file: &CString, pages_count: usize) {
    let begun = sync(file).and_then(|file| Pages::map(file.as_fd(), pages_count));
    let Ok(pages) = &begun else {
        return answer(channel, begun.as_ref().map(|_| ()));
    };
    let mut changed = pages.change();
    let mut order = [0; ORDER_LENGTH_MAX];
    loop {
        answer(channel, changed.as_ref().map(|_| ()));
        match wait_for_order(channel, &mut order) {
            Some(Order::Change) => changed = pages.change(),
            Some(_) => return answer(channel, pages.write().as_ref().map(|_| ())),
            None => return,
        }
    }
}

enum Order<'a> {
    Begin,
    Change,
    Write,
    Open(&'a CStr),
    Look(&'a CStr),
    /// Whether to wait for locks of directories, an inode number, and a path below the mount point.
    Users(bool, u64, &'a CStr),
    Sync,
}

/// `None` when the parent is gone.
fn wait_for_order<'a>(
    channel: BorrowedFd<'_>,
    order: &'a mut [u8; ORDER_LENGTH_MAX],
) -> Option<Order<'a>> {
    // The last byte stays 0 and ends the longest path.
    order.fill(0);
    let length = retry(|| rustix::io::read(channel, &mut order[..ORDER_LENGTH_MAX - 1])).ok()?;
    let path_from = |start: usize| CStr::from_bytes_until_nul(&order[start..]).ok();
    Some(match *order[..length].first()? {
        OPEN => Order::Open(path_from(1)?),
        LOOK => Order::Look(path_from(1)?),
        USERS => {
            let inode = order[2..].first_chunk()?;
            let path = path_from(2 + size_of::<u64>())?;
            Order::Users(order[1] != 0, u64::from_ne_bytes(*inode), path)
        }
        SYNC => Order::Sync,
        BEGIN => Order::Begin,
        CHANGE => Order::Change,
        _ => Order::Write,
    })
}

fn open_directory(path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn look(path: &CStr) -> Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::TYPE).map(|_| ())
}

/// The answer to [`USERS`]. The path may lead to another object by now, perhaps a device or another
/// file system: that is not opened.
fn users(mountpoint: &CStr, path: &CStr, (inode, may_wait): (u64, bool)) -> Result<i32> {
    let found = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let root = rustix::fs::open(mountpoint, found | OFlags::DIRECTORY, Mode::empty())?;
    let find = |how| rustix::fs::openat2(&root, path, found, Mode::empty(), how);
    // The kernel finds what it has cached without locking a directory.
    let object = match find(beneath | ResolveFlags::CACHED) {
        Err(Errno::AGAIN) if may_wait => find(beneath)?,
        object => object?,
    };
    let stat = rustix::fs::fstat(&object)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_ino != inode {
        return Err(Errno::STALE);
    }
    let own = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::open(c"/proc/self/fd", own, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let users = match rustix::fs::openat(&own, DecInt::from_fd(&object), flags, Mode::empty()) {
        Ok(file) => LinuxDisk::users(&file),
        // Somebody who has it open for writing holds a lease on it.
        Err(Errno::AGAIN) => FileUsers {
            is_in_use: true,
            part_lock: None,
        },
        Err(errno) => return Err(errno),
    };
    let in_use = if users.is_in_use { IN_USE } else { 0 };
    let part = match users.part_lock {
        None => 0,
        Some(PartLock::Shared) => PART_SHARED,
        Some(PartLock::Exclusive) => PART_EXCLUSIVE,
    };
    Ok(-(KNOWN | in_use | part))
}

fn answer_with(channel: BorrowedFd<'_>, opened: Result<OwnedFd>) {
    let opened = match &opened {
        Ok(opened) => [opened.as_fd()],
        Err(errno) => return answer(channel, Err(errno)),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&opened));
    let answer = 0_i32.to_ne_bytes();
    let parts = [IoSlice::new(&answer)];
    let _ = retry(|| sendmsg(channel, &parts, &mut control, SendFlags::NOSIGNAL));
}

fn answer(channel: BorrowedFd<'_>, result: std::result::Result<(), &Errno>) {
    let errno = result.map_or_else(|errno| errno.raw_os_error(), |()| 0);
    answer_number(channel, errno);
}

fn answer_number(channel: BorrowedFd<'_>, number: i32) {
    let _ = retry(|| rustix::io::write(channel, &number.to_ne_bytes()));
}

/// Makes the kernel queue everything that was written. Returns the session's file, open.
fn sync(file: &CString) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(file.as_c_str(), flags, Mode::empty())?;
    rustix::fs::syncfs(&file)?;
    Ok(file)
}

/// A shared mapping of the session's file.
struct Pages {
    start: *mut c_void,
    count: usize,
}

impl Pages {
    fn map(file: BorrowedFd<'_>, count: usize) -> Result<Pages> {
        let (access, length) = (ProtFlags::READ | ProtFlags::WRITE, count * STRIDE);
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address the kernel chooses; only Pages
        // knows it, and unmaps it once.
        let start =
            unsafe { rustix::mm::mmap(anywhere, length, access, MapFlags::SHARED, file, 0)? };
        let pages = Pages { start, count };
        // SAFETY: the mapping's own range; the advice changes no contents.
        unsafe { rustix::mm::madvise(start, length, Advice::Random)? };
        Ok(pages)
    }

    fn change(&self) -> Result<()> {
        for number in 0..self.count {
            // Populating changes a page as a store would. Once the file system is
            // gone, a store would be killed by SIGBUS, but this call only fails.
            // SAFETY: one page within the mapping, which nothing refers to.
            unsafe {
                let page = self.start.cast::<u8>().add(number * STRIDE).cast();
                rustix::mm::madvise(page, rustix::param::page_size(), Advice::LinuxPopulateWrite)?;
            }
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        // SAFETY: the mapping's own range.
        unsafe { rustix::mm::msync(self.start, self.count * STRIDE, MsyncFlags::SYNC) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping's own range, unmapped only here; nothing keeps
        // a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.count * STRIDE) };
    }
}
