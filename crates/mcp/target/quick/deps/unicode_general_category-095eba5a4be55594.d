/work/main/crates/mcp/target/quick/deps/unicode_general_category-095eba5a4be55594.d: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/category.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/tables.rs /work/main/crates/mcp/target/quick/build/unicode-general-category-2dfe9bf841d5d53c/out/category.rs

/work/main/crates/mcp/target/quick/deps/libunicode_general_category-095eba5a4be55594.rmeta: /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/lib.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/category.rs /root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/tables.rs /work/main/crates/mcp/target/quick/build/unicode-general-category-2dfe9bf841d5d53c/out/category.rs

/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/lib.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/category.rs:
/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/unicode-general-category-1.1.0/src/tables.rs:
/work/main/crates/mcp/target/quick/build/unicode-general-category-2dfe9bf841d5d53c/out/category.rs:

# env-dep:OUT_DIR=/work/main/crates/mcp/target/quick/build/unicode-general-category-2dfe9bf841d5d53c/out
