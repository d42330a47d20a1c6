//! The end-to-end tests live in `tests/`; helper programs that the tests run
//! inside views live in `src/bin/`.
