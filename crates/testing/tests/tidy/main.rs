//! Checks that reviewers forget: sizes, leftover marks, calls in the wrong layer, dead files,
//! documents that name missing files or tests, modules without a place in the maps, licences.

#[cfg(test)]
mod documents;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod licences;
#[cfg(test)]
mod maps;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod text;
