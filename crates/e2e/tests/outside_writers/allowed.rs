//! In which cells native views may differ from exact ones, and why.

use super::Cell;
use super::step::{Before, Step};

/// Cells in which a native view may have a conflict although an exact view has none: overlayfs
/// copies a file that is opened for writing. Once an outside writer has changed the original, it
/// cannot be told whether a program wrote to the copy. An ordinary user's overlay also copies
/// the contents of files that are moved, linked or given other attributes.
pub fn may_be_coarser(cell: &Cell, is_root: bool) -> bool {
    let copies = match cell.does {
        Step::Open => true,
        // What is moved here is a copy of an old file, and the link has changed the file under it.
        Step::RenameOtherHere => !is_root && cell.meanwhile == Step::LinkElsewhere,
        Step::MoveAway
        | Step::MoveAwayAndBack
        | Step::LinkElsewhere
        | Step::Exchange
        | Step::ModeAndBack
        | Step::MoveOut => !is_root,
        _ => false,
    };
    copies && cell.meanwhile != Step::Nothing
}

/// An ordinary user's overlay refuses these, as docs/views.md says.
pub fn is_refused_by_overlayfs(error: &str) -> bool {
    const PERM: &str = "Some(1)";
    const XDEV: &str = "Some(18)";
    const INVAL: &str = "Some(22)";
    const NODATA: &str = "Some(61)";
    const OVERFLOW: &str = "Some(75)";
    [PERM, XDEV, INVAL, NODATA, OVERFLOW].contains(&error)
}

/// Cells in which an ordinary user's native view ends otherwise than an exact one although nobody
/// has a conflict, as docs/views.md says.
///
/// - A changed, moved or linked old file gets a new inode. A link that an outside writer has made
///   to it meanwhile stays on the old one.
/// - A moved old directory is made anew, with the extended attributes that the view has shown.
pub fn may_end_apart(cell: &Cell) -> bool {
    let moves = [Step::MoveAway, Step::MoveAwayAndBack, Step::Exchange];
    match cell.meanwhile {
        Step::LinkElsewhere => {
            let copies = [
                Step::LinkElsewhere,
                Step::Mode,
                Step::ModeAndBack,
                Step::Touch,
            ];
            moves.contains(&cell.does) || copies.contains(&cell.does)
        }
        Step::SetXattr => {
            matches!(cell.before, Before::Empty | Before::Full) && moves.contains(&cell.does)
        }
        _ => false,
    }
}

/// Cells in which an ordinary user's native view has no conflict although an exact view has one: a
/// moved old directory is made anew, and the outside writers have made an equal one.
pub fn makes_what_it_moves(cell: &Cell) -> bool {
    let makes = [Step::MakeDirectory, Step::RenameDirectoryHere];
    cell.before == Before::Absent
        && cell.does == Step::RenameDirectoryHere
        && makes.contains(&cell.meanwhile)
}

/// Cells in which the outside writers made a directory before the transaction looked at it and
/// removed it, as `rm -r` does, or renamed a directory over it, which also replaces an empty one
/// in a plain directory.
pub fn removes_what_it_saw(cell: &Cell) -> bool {
    match cell.does {
        Step::Remove
        | Step::RemoveAndMakeDirectory
        | Step::RemoveAndCreate
        | Step::RemoveAndLink => matches!(
            cell.meanwhile,
            Step::MakeDirectoryIn | Step::MakeSameDirectoryIn
        ),
        Step::RenameDirectoryHere => matches!(
            cell.meanwhile,
            Step::MakeDirectory | Step::RenameDirectoryHere
        ),
        _ => false,
    }
}

/// Cells in which a native view goes on showing what the outside writers have changed.
///
/// - It sets the attributes back to those it showed. That is no change, so there is no conflict.
/// - It copies the old contents to one of two names. The other name has those of the outside writer.
///   If the name that it knows is gone, it depends on the kernel's caches whether the contents can
///   still be read, in both kinds of view.
pub fn acts_on_what_was_shown(cell: &Cell) -> bool {
    match cell.does {
        Step::ModeAndBack => matches!(cell.meanwhile, Step::Mode | Step::Owner),
        Step::ReplaceByCopy => cell.before == Before::TwoNames,
        _ => false,
    }
}
