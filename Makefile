# The entry point. Each target is one line that calls cargo or one script.
.DEFAULT_GOAL := help
.PHONY: help run check test soak lint fmt doc bench fuzz rtsan

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

run:   ## build in release and start the server with its embedded default
	cargo run --release -p aulos -- serve

check: ## format, lints and the unit tests of the crates that differ from HEAD
	@scripts/check

test:  ## set up what the tests need, then check and test everything
	@scripts/test-setup && scripts/test

soak:  ## the long forms of the tests: minutes to hours
	@scripts/test-setup && scripts/soak

lint:  ## clippy with warnings denied, and the rules of the project that clippy cannot check
	cargo clippy --workspace --all-targets -- -D warnings && scripts/edge-check

fmt:   ## format all code
	cargo fmt --all

doc:   ## build the documentation of every crate into target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## aulos and every peer side by side: one table, and target/bench.json
	@scripts/test-setup && scripts/bench

fuzz:  ## TARGET=name: fuzz one parser until it breaks or you stop it
	@scripts/fuzz $(TARGET)

rtsan: ## the real-time paths under RealtimeSanitizer, where the distribution has its library
	@scripts/rtsan
