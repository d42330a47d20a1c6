/work/main/crates/mcp/target/quick/deps/pastey-2dac1a8d7c071d04.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/attr.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/error.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/segment.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/../README.md

/work/main/crates/mcp/target/quick/deps/libpastey-2dac1a8d7c071d04.so: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/attr.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/error.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/segment.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/../README.md

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/attr.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/error.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/segment.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/pastey-0.2.3/src/../README.md:
