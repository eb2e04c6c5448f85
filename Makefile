# The entry point. Each target is one line that calls cargo or one script.
.DEFAULT_GOAL := help
.PHONY: help run install check test soak lint fmt doc bench fuzz rtsan

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

run:   ## build in release mode and start the server with its built-in configuration
	cargo run --release -p aulos -- serve

install: ## build in release mode and install, as root into /usr/local (PREFIX, DESTDIR)
	@scripts/install

check: ## run format, lints and unit tests of the crates that differ from HEAD
	@scripts/check

test:  ## install what the tests need, then run all checks and tests
	@scripts/test-setup && scripts/test

soak:  ## run the long tests: minutes to hours
	@scripts/test-setup && scripts/soak

lint:  ## run clippy with warnings denied, and the checks of scripts/edge-check
	cargo clippy --workspace --all-targets -- -D warnings && scripts/edge-check

fmt:   ## format all code
	cargo fmt --all

doc:   ## build the documentation of every crate into target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## compare aulos with its peers: one table, and target/bench.json
	@scripts/test-setup && scripts/bench

fuzz:  ## TARGET=name: fuzz one parser until a failure or Ctrl-C
	@scripts/fuzz $(TARGET)

rtsan: ## run the real-time paths under RealtimeSanitizer, if the distribution has it
	@scripts/rtsan
