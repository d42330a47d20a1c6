//! Adds advice to the errors of a store.
//!
//! The engine says what happened, and knows no commands. This adds what to do, in the same words for
//! users of the command line, of the libraries and of the service.

use atomdir_engine::StoreError;

/// The error's message and what to do about it.
pub fn with_remedy(error: &StoreError) -> String {
    match remedy(error) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}

fn remedy(error: &StoreError) -> Option<&'static str> {
    let remedy = match error {
        StoreError::Header { .. } => {
            "restore '.atomdir/header' from a backup, or move the control directory away and run \
             `atomdir init`"
        }
        StoreError::Copied {
            shares_control: false,
        } => "`atomdir init --adopt` makes the copy a store of its own",
        StoreError::Copied {
            shares_control: true,
        } => "remove its file '.atomdir' and run `atomdir init`",
        StoreError::CopiedTail => {
            "run `atomdir recover` on the original and copy it again. If there is no original any \
             more, move the control directory away and run `atomdir init`: the files stay as they are"
        }
        StoreError::Inherited { .. } => {
            "take it from the directory above, or name another control directory by `--control`"
        }
        StoreError::Foreign { .. } => "move it away and run `atomdir init` again",
        StoreError::Lost { .. } => {
            "`atomdir recover` makes it again if no commit in the log waits to be applied. \
             Otherwise contents of commits may have been in it: restore the store from a backup, \
             or make the directory if you know that it was empty"
        }
        StoreError::Log { .. } => {
            "mount its file system or put the file back where it was, and try again. If it is gone for \
             good, `atomdir recover --without-log` gives up what only it knows"
        }
        StoreError::Apply { .. } => "take away the cause, then run `atomdir recover`",
        StoreError::Poisoned { .. } => {
            "end the service with `atomdir service stop` and run `atomdir recover`; a program that \
             has the store open itself closes it and opens it again"
        }
        _ => return None,
    };
    Some(remedy)
}
