//! A process that makes transactions.

use std::io::{self, BufRead, Write};
use std::sync::Barrier;

use super::{Peer, Session, Work, delayed, files, transactions};
use crate::error::{Describe, Error, Result};
use crate::measure::Side;

/// Runs the work that these words describe. Waits for the parent before and after it.
pub fn run(words: &[String]) -> Result<()> {
    let work = Work::parse(words)?;
    let peer: Box<dyn Peer> = match work.side {
        Side::Append => Box::new(files::Append(work.clone())),
        Side::Plain => Box::new(files::Renames(work.clone())),
        Side::Embedded if work.delay_us > 0 => Box::new(delayed::Engine::open(&work)?),
        Side::Embedded | Side::Service => Box::new(transactions::Library::open(&work)?),
        #[cfg(feature = "fstx")]
        Side::Fstx => Box::new(transactions::Fstx::open(&work)?),
        _ => return Err(Error::NoSide("commit small transactions")),
    };
    let barrier = Barrier::new(work.threads as usize + 1);
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let (peer, work, barrier) = (&*peer, &work, &barrier);
            scope.spawn(move || commits(peer, work, thread, barrier))
        };
        let running: Vec<_> = (work.first..work.first + work.threads).map(spawn).collect();
        barrier.wait();
        say("ready")?;
        wait()?;
        barrier.wait();
        running.into_iter().try_for_each(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    say("done")?;
    wait()
}

/// The work of one thread. Waits at the barrier twice, also after an error, since all threads must.
fn commits(peer: &dyn Peer, work: &Work, thread: u64, barrier: &Barrier) -> Result<()> {
    let prepare = || {
        let mut session = peer.session(thread)?;
        if !work.is_new {
            session.commit(&work.names(thread, 0), &vec![b'o'; work.bytes])?;
        }
        Ok(session)
    };
    let prepared: Result<Box<dyn Session + '_>> = prepare();
    barrier.wait();
    barrier.wait();
    let mut session = prepared?;
    (0..work.commits).try_for_each(|commit| {
        // Other contents in each commit, since SQLite does not write an unchanged value.
        let contents = vec![b'a' + (commit % 26) as u8; work.bytes];
        session.commit(&work.names(thread, commit), &contents)
    })
}

fn say(word: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")
        .and_then(|()| out.flush())
        .describe("write", "the standard output".as_ref())
}

fn wait() -> Result<()> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map(drop)
        .describe("read", "the standard input".as_ref())
}
