//! On what terms a transaction is committed, and what is reported of them.

use crate::context::Context;
use crate::error::Error;
use crate::output::time;
use atomdir::TransactionId;
use atomdir::client::{Committed, Connection, EarlyReason, TIMES_WORDS, Terms};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How long a commit waits to be confirmed; zero (`off`): it does not wait.
fn confirm_time(text: &str) -> Result<Duration, String> {
    match text {
        "off" => Ok(Duration::ZERO),
        text => crate::duration::parse(text),
    }
}

/// Options of the verbs that commit.
#[derive(Debug, Args)]
pub struct TermsArguments {
    /// Have the commit take itself back after T (30s, 5m) unless `atomdir confirm` comes first,
    /// also after a crash or a restart of the machine
    #[arg(long, value_name = "T", value_parser = confirm_time)]
    confirm: Option<Duration>,
    /// Which time the files get that were written: that of the write, or of the commit, which make
    /// and rsync do not miss; by default what `config times` says
    #[arg(long, value_name = "WHICH", value_parser = PossibleValuesParser::new(TIMES_WORDS))]
    times: Option<String>,
}

impl TermsArguments {
    /// Whether the commit takes itself back unless somebody confirms it.
    pub fn waits(&self) -> bool {
        self.confirm.is_some_and(|wait| !wait.is_zero())
    }

    /// Says on what terms the transaction is to be committed, if anything is said of it.
    pub fn set(
        &self,
        connection: &mut Connection,
        transaction: TransactionId,
        label: Option<&OsStr>,
    ) -> Result<(), Error> {
        let times = self.times.as_deref();
        let terms = Terms {
            label: label.map(|label| label.as_bytes().to_vec()),
            confirm_ms: self.confirm.map(Terms::wait_ms),
            times_at_commit: times.map(|times| times == TIMES_WORDS[1]),
        };
        match terms == Terms::default() {
            true => Ok(()),
            false => Ok(connection.set_terms(transaction, terms)?),
        }
    }
}

/// Why commits are forgotten early.
pub fn early_reason(why: EarlyReason) -> &'static str {
    match why {
        EarlyReason::Space => "the history takes more space than `history-space` allows",
        EarlyReason::FreeSpace => "the file system has too little free space",
        EarlyReason::TooMany => "the history has too many commits",
        EarlyReason::Asked => "somebody has asked for it",
    }
}

/// Says what the user has to know or do after a commit.
pub fn note_terms(context: &Context, committed: &Committed) {
    let Some(sequence) = committed.sequence else {
        return;
    };
    if let Some(wait_ms) = committed.confirm_ms {
        let wait = time::age(wait_ms.div_ceil(1000));
        context.output.note(format_args!(
            "commit {sequence} takes itself back in {wait} unless `atomdir confirm {sequence}` \
             comes first"
        ));
    }
    if let Some(why) = committed.forgets_early {
        context.output.note(format_args!(
            "commits are forgotten early: {}; `atomdir log` marks them, `atomdir pin COMMIT` keeps \
             one",
            early_reason(why)
        ));
    }
}
