/// Why some bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {position} of the record: {problem}")]
pub struct DecodeError {
    pub position: usize,
    pub problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("the record ends too early")]
    Truncated,
    #[error("there is something behind the record's end")]
    Trailing,
    #[error("a number is too large or not in its shortest form")]
    Number,
    #[error("{0} is not a known tag or set of flags")]
    Tag(u8),
    #[error("this cannot be an entry's name")]
    Name,
    #[error("an index leads out of its list, or to a later directory")]
    Index,
    #[error("it cancels commit {0}, which is a later one")]
    Sequence(u64),
    #[error("a field has a value that must be empty in this record")]
    NotEmpty,
    #[error("a list of paths has one twice, one that is not needed, or another order")]
    Paths,
    #[error("an extent reaches beyond the largest offset")]
    Extent,
}
