/work/main/crates/mcp/target/quick/deps/futures_io-0e4e842841cebd7d.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs

/work/main/crates/mcp/target/quick/deps/libfutures_io-0e4e842841cebd7d.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/futures-io-0.3.34/src/lib.rs:
