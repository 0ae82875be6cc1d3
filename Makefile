# The front door. Every target sets up what it needs; a second run finds it done.
.DEFAULT_GOAL := help
SHELL := /bin/bash
UV ?= $(shell command -v uv 2>/dev/null || echo $(HOME)/.local/share/quartermaster/uv/bin/uv)
RUN := .venv/bin
SOURCES := libs services tests bench contracts

.PHONY: help setup demo up test check format lint types imports contracts drift unit bench soak hooks

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(UV):
	python3 -m venv $(HOME)/.local/share/quartermaster/uv
	$(HOME)/.local/share/quartermaster/uv/bin/pip install --quiet uv

.venv/.stamp: $(UV) uv.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
	$(UV) sync --frozen --quiet
	@touch $@

setup: .venv/.stamp ## install everything into .venv

demo: setup ## play the main story on the embedded product, print the record and the bill
	$(RUN)/qm demo

up: setup ## serve the embedded product at http://127.0.0.1:8080 with a sample fleet
	$(RUN)/qm up

test: setup ## all tests, real servers included (installed and cached on first use)
	$(RUN)/pytest

check: setup lint types imports drift unit ## format, lint, types, import rules, contract drift, unit and contract tests

format: setup ## rewrite the sources in the house format
	$(RUN)/ruff format $(SOURCES)
	$(RUN)/ruff check --fix $(SOURCES)

lint: setup
	$(UV) lock --check --quiet
	$(RUN)/ruff format --check --quiet $(SOURCES)
	$(RUN)/ruff check --quiet $(SOURCES)

types: setup
	$(RUN)/mypy

imports: setup
	$(RUN)/lint-imports

contracts: setup ## regenerate contracts/ from the code
	$(RUN)/python -m contracts.generate

drift: setup
	$(RUN)/python -m contracts.generate --check

unit: setup
	$(RUN)/pytest -q tests/unit tests/contract -m "not integration"

bench: setup ## the benchmarks: figures and ratios, JSON in var/bench.json
	$(RUN)/python -m bench

soak: setup ## ten thousand states against brute force, long crash and load runs
	$(RUN)/python -m tests.unit.scheduler.states
	$(RUN)/python -m tests.crash.soak

hooks: setup ## install the pre-commit hooks
	$(RUN)/pre-commit install
