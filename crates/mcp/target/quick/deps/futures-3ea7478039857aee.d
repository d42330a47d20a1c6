/work/main/crates/mcp/target/quick/deps/futures-3ea7478039857aee.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-0.3.34/src/lib.rs

/work/main/crates/mcp/target/quick/deps/libfutures-3ea7478039857aee.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-0.3.34/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-0.3.34/src/lib.rs:
