use super::flags::notify;

/// A message to the kernel that does not answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// Forget attributes, and contents from `offset` on (`length` 0: to the
    /// end; a negative `offset`: attributes only).
    InvalidateInode { node: u64, offset: i64, length: i64 },
    /// Forget what a name leads to.
    InvalidateEntry { parent: u64, name: &'a [u8] },
    /// The name was removed. Programs that watch the directory get an event.
    Delete {
        parent: u64,
        child: u64,
        name: &'a [u8],
    },
}

impl Notification<'_> {
    /// The whole message, header included.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let code = match *self {
            Notification::InvalidateInode {
                node,
                offset,
                length,
            } => {
                body.extend_from_slice(&node.to_ne_bytes());
                body.extend_from_slice(&offset.to_ne_bytes());
                body.extend_from_slice(&length.to_ne_bytes());
                notify::INVALIDATE_INODE
            }
            Notification::InvalidateEntry { parent, name } => {
                body.extend_from_slice(&parent.to_ne_bytes());
                push_name(&mut body, name);
                notify::INVALIDATE_ENTRY
            }
            Notification::Delete {
                parent,
                child,
                name,
            } => {
                body.extend_from_slice(&parent.to_ne_bytes());
                body.extend_from_slice(&child.to_ne_bytes());
                push_name(&mut body, name);
                notify::DELETE
            }
        };
        // A unique of 0 marks a notification; the error field holds its code.
        let mut message = super::reply_header(0, code, body.len()).to_vec();
        message.append(&mut body);
        message
    }
}

fn push_name(body: &mut Vec<u8>, name: &[u8]) {
    body.extend_from_slice(&(name.len() as u32).to_ne_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(name);
    body.push(0);
}
