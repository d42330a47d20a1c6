/work/main/crates/mcp/target/quick/deps/atomdir_mcp-09741c71b6544f2d.d: /work/main/clippy.toml src/main.rs src/command.rs src/parameters.rs src/read.rs src/server.rs src/tools.rs Cargo.toml

/work/main/crates/mcp/target/quick/deps/libatomdir_mcp-09741c71b6544f2d.rmeta: /work/main/clippy.toml src/main.rs src/command.rs src/parameters.rs src/read.rs src/server.rs src/tools.rs Cargo.toml

/work/main/clippy.toml:
src/main.rs:
src/command.rs:
src/parameters.rs:
src/read.rs:
src/server.rs:
src/tools.rs:
Cargo.toml:

# env-dep:CARGO_PKG_VERSION=0.1.0
# env-dep:CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# env-dep:CLIPPY_CONF_DIR
