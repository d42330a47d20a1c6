//! `atomdir-deliver`: a local delivery agent with the interface that Postfix and Exim expect.
//!
//! It delivers one message to one mailbox, in one transaction:
//!
//! 1. The mailbox has the whole message or nothing of it, even if processes are killed.
//! 2. The mailbox and its index change together. So the index has each message that was
//!    delivered, and a message that the mail server sends again is recognized.
//! 3. The exit code is 0 only if the commit is durable.
//! 4. If an administrator can mend an error, the exit code is 75: the mail server then keeps the
//!    message and tries again. So a wrong configuration loses no message.
//!
//! Modules
//! - `account`: the recipient, and the user whose rights the delivery has
//! - `delivery`: takes the lock, runs the transaction, tries again after a conflict
//! - `mailbox`, `message`, `index`: a mailbox's format and path; a message's form; the index
//! - `lock`: keeps other mail programs out of a mailbox meanwhile
//! - `server`: checks that the mail server is still running
//! - `failure`: errors and exit codes

mod account;
mod delivery;
mod failure;
mod index;
mod lock;
mod mailbox;
mod message;
mod server;

use account::Recipient;
use atomdir::client::io_reason;
use clap::Parser;
use failure::Failure;
use mailbox::Mailbox;
use message::Message;
use server::Server;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// Deliver a message from standard input to a mailbox, in one transaction
#[derive(Debug, Parser)]
#[command(name = "atomdir-deliver", version)]
#[command(
    after_help = "Exit codes: 0 delivered, 64 usage, 67 no such user, 75 try again, 77 not permitted

Examples:
  mailbox_command = /usr/bin/atomdir-deliver -m %h/Mail/Inbox/
  atomdir-deliver -d ann -f bob@example.org -q 4F1B2C < message"
)]
struct Arguments {
    // Addresses come from other people and may begin with a dash.
    /// The recipient; by default the user who runs this
    #[arg(short = 'd', value_name = "USER", allow_hyphen_values = true)]
    user: Option<String>,
    /// The envelope's sender; by default the sender in the message's first line, if that begins
    /// with `From `
    #[arg(
        short = 'f',
        value_name = "SENDER",
        env = "SENDER",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    sender: Option<String>,
    /// The mailbox: a Maildir if the path ends with a slash, otherwise an mbox. %u is the user, %h
    /// their home directory
    #[arg(short = 'm', value_name = "PATH")]
    mailbox: Option<String>,
    /// The mail server's id of the message, by which it is recognized if it is sent again
    #[arg(
        short = 'q',
        value_name = "ID",
        env = "MESSAGE_ID",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    queue_id: Option<String>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let exit_code = if error.use_stderr() {
                failure::USAGE
            } else {
                0
            };
            // If this cannot be printed, the exit code still reports the error.
            let _ = error.print();
            return ExitCode::from(exit_code);
        }
    };
    match deliver(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Print one line, because mail servers copy it to their logs and to bounces.
            let text = format!("atomdir-deliver: {failure}");
            let line = text.replace(|c: char| c.is_control(), " ");
            // If this cannot be printed, the exit code still says whether to try again.
            let _ = writeln!(io::stderr(), "{line}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn deliver(arguments: &Arguments) -> Result<(), Failure> {
    let server = Server::find()?;
    let recipient = Recipient::find(arguments.user.as_deref(), arguments.mailbox.is_some())?;
    let mailbox = Mailbox::new(arguments.mailbox.as_deref(), &recipient)?;
    delivery::start_service_as_root(&mailbox, &recipient);
    recipient.drop_privileges()?;
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::again("cannot read the message", io_reason(&error)))?;
    let message = Message::new(
        bytes,
        arguments.sender.as_deref(),
        arguments.queue_id.as_deref(),
    )?;
    delivery::deliver(&mailbox, &recipient, &message, || server.check())
}
