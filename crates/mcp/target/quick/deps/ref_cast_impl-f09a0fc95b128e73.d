/work/main/crates/mcp/target/quick/deps/ref_cast_impl-f09a0fc95b128e73.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-impl-1.0.27/src/lib.rs

/work/main/crates/mcp/target/quick/deps/libref_cast_impl-f09a0fc95b128e73.so: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-impl-1.0.27/src/lib.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/ref-cast-impl-1.0.27/src/lib.rs:

# env-dep:CARGO_PKG_VERSION_PATCH=27
