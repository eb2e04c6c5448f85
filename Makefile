# The entry point. Each target is one line that calls cargo or one script.
.DEFAULT_GOAL := help
# What `make player` contains; ws:// is the feature `ws`, and TLS (`tls`) doubles the size.
FEATURES ?= alsa,alsa-hw,hooks,mdns,pulse
# Identical functions once, where rustc links with LLD, which can do that.
FOLD = $(shell rustc -vV | grep -q 'host: x86_64-unknown-linux-gnu' && echo ,--icf=all)
.PHONY: help run install install-capi install-lv2 player check test test-ray wheel publish-check release soak lint fmt book doc bench fuzz rtsan

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

run:   ## build and start the server with its built-in configuration
	cargo run --profile trial -p aulos -- serve

install: ## build in release mode and install, as root into /usr/local (PREFIX, DESTDIR)
	@scripts/install

install-capi: ## build and install the C libraries libaulos and libebur128 (PREFIX, DESTDIR, LIBRARIES)
	@scripts/install-capi

install-lv2: ## build the LV2 plug-ins and install their bundle, as root into /usr/local (PREFIX, DESTDIR)
	@scripts/install-lv2

player: ## build the player for small machines: target/player/aulos-player
	RUSTFLAGS="$$RUSTFLAGS -C link-arg=-Wl,-z,pack-relative-relocs,--no-eh-frame-hdr$(FOLD)" cargo build --profile player -p aulos-player --no-default-features --features "$(FEATURES)"

check: ## run format, lints, and unit tests of the crates that differ from HEAD
	@scripts/check

test:  ## install what the tests need, then run all checks and tests
	@scripts/test --setup

publish-check: ## run what registries check: the oldest Rust, every crate and the Python package from its source
	@scripts/publish-check

release: ## make the packages of a release: binary, .deb, container image, bill of materials
	@scripts/release

test-ray: ## run the tests of archives on a Ray cluster, which `make test` runs too
	@scripts/test-setup && scripts/py-install && scripts/py-test crates/py/tests/test_ray.py

wheel: ## build the wheels of the Python package for Linux, and test the one for this machine
	@scripts/wheel

soak:  ## run the long tests: minutes to hours
	@scripts/test-setup && scripts/soak

lint:  ## run clippy with warnings denied, and the checks of scripts/edge-check
	cargo clippy --workspace --all-targets -- -D warnings && scripts/edge-check

fmt:   ## format all code
	cargo fmt --all

book:  ## build the manual from docs/ into target/book, with warnings as errors
	@scripts/test-setup && scripts/book

doc:   ## build the documentation of every crate into target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: ## compare aulos with its peers: one table, and target/bench.json
	@scripts/test-setup && scripts/bench

fuzz:  ## TARGET=name: fuzz one parser until a failure or Ctrl-C
	@scripts/fuzz $(TARGET)

rtsan: ## run the real-time paths under RealtimeSanitizer, if the distribution has it
	@scripts/rtsan
