# Recipes for daily work; `just ci` runs what continuous integration runs.

default: fmt clippy test

# Format all code
fmt:
    cargo fmt --all

# Lint with warnings denied
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Run all tests
test:
    cargo test --workspace --locked

# Build the command and the object that it preloads
build:
    cargo build --release --locked

# Run a program on flash: just run --ram 128M -- PROGRAM ARGS
run *ARGS:
    cargo run --release --locked -- run {{ARGS}}

# Show what this machine allows
doctor:
    cargo run --release --locked -- doctor

# Build the documentation
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Check licences, advisories and sources of the dependencies
deny:
    cargo deny check

# Install into PREFIX
install PREFIX="/usr/local": build
    install -D -t {{PREFIX}}/bin target/release/flashvm && install -D -t {{PREFIX}}/lib/flashvm target/release/flashvm-workload

# Compare with kernel swap on the same disk, as root
swap:
    eval/versus-swap.py

# All that a clean checkout must pass
ci:
    .ci/run
