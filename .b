error: unexpected argument '/tmp/w2t.b' found

Usage: cargo build [OPTIONS]

For more information, try '--help'.
