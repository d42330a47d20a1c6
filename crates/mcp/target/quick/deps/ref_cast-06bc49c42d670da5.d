/work/main/crates/mcp/target/quick/deps/ref_cast-06bc49c42d670da5.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/custom.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/layout.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/trivial.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/private.rs /work/main/crates/mcp/target/quick/build/ref-cast-9d6558acfffc5630/out/private.rs

/work/main/crates/mcp/target/quick/deps/libref_cast-06bc49c42d670da5.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/custom.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/layout.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/trivial.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/private.rs /work/main/crates/mcp/target/quick/build/ref-cast-9d6558acfffc5630/out/private.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/custom.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/layout.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/trivial.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-1.0.27/src/private.rs:
/work/main/crates/mcp/target/quick/build/ref-cast-9d6558acfffc5630/out/private.rs:

# env-dep:OUT_DIR=/work/main/crates/mcp/target/quick/build/ref-cast-9d6558acfffc5630/out
