//! What reviewers forget: sizes, leftover marks, calls in the wrong layer,
//! dead files, documents that name what is not there, licences.

mod documents;
mod layers;
mod licences;
mod sources;
mod text;
