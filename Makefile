# The two commands of the README, and what they are made of. `make help` lists them.
#
# Everything runs on a fresh Debian 12 as root or with sudo: `make setup` installs the packages and a Rust toolchain is expected (rustup).

SHELL := /bin/bash
CACHE := $(if $(WHEELHOUSE_CACHE),$(WHEELHOUSE_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/wheelhouse)
# Outside the checkout, so that a fresh clone reuses what an older one built.
export CARGO_TARGET_DIR ?= $(CACHE)/target
BIN := $(CARGO_TARGET_DIR)/release

# The archive's directory is worked out once per make, after `setup` has brought the compiler.
ROCKSDB = export ROCKSDB_LIB_DIR="$$(tools/rocksdb-archive)" ROCKSDB_STATIC=1;

.PHONY: help setup build up test lint bench soak clean

help:
	@echo "make up     build, start a whole service here, sign up a demo tenant, create cluster 'demo', write demo.kubeconfig"
	@echo "make test   every test"
	@echo "make build  the binaries, in $(BIN)"
	@echo "make bench  figures, one JSON line each"
	@echo "make soak   the long runs of the tests that break things: an hour and a half"
	@echo "make lint   formatting and clippy"

setup:
	@tools/setup

build: setup
	$(ROCKSDB) cargo build --release --locked

up: build
	@tools/up

test: setup
	$(ROCKSDB) tools/test

lint: setup
	$(ROCKSDB) cargo clippy --release --locked --all-targets -- -D warnings

bench: build
	$(ROCKSDB) tools/bench

soak: setup
	$(ROCKSDB) tools/soak

clean:
	rm -rf "$(CARGO_TARGET_DIR)"
