use atomdir_engine::{Credentials, UndoChoice};
use atomdir_protocol::Undo;

/// What a request asks of the engine. `user`: on whose behalf, if their permissions are to be checked.
pub fn undo_choice(undo: Undo, user: Option<Credentials>) -> UndoChoice {
    let Undo {
        commits,
        paths,
        equal,
        skip,
        mine,
        theirs,
    } = undo;
    UndoChoice {
        commits,
        paths,
        equal,
        skip,
        mine,
        theirs,
        user,
    }
}
