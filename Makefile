# The commands of the house; `make test` is what CI runs.
SHELL := /bin/sh
PYTHON_ENV = $(shell sh tools/deps.sh path venv)
TOOLS = $(shell sh tools/deps.sh path tools)
FUZZTIME ?= 30s

.PHONY: help deps build wheel wheels test test-spark check format gen fuzz soak matrix peers bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

deps: ## install what the tests need (Debian packages as root, Go tools, a Python environment)
	@sh tools/deps.sh

build: ## the hora program in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o bin/hora ./cmd/hora

wheel: ## this machine's Python wheels in dist/: needs Go, a C compiler and Python, no root
	python3 tools/wheel/build.py --cc native

wheels: deps ## the Python wheels for x86_64 and aarch64, for systems as old as glibc 2.17
	$(PYTHON_ENV)/bin/python tools/wheel/build.py

test: deps ## everything that must hold before a commit
	@cd tools && go run ./suite

test-spark: deps ## all tests on Spark, on each pyspark that make deps installs
	@cd tools && go run ./suite -only wheel,sparks

check: deps ## the quick part: formatting, vet, staticcheck
	@cd tools && go run ./suite -only machine,format,vet,platforms

format: deps ## rewrite sources in the house's format
	$(TOOLS)/gofumpt -w .
	$(PYTHON_ENV)/bin/ruff check --quiet --fix python examples
	$(PYTHON_ENV)/bin/ruff format --quiet python examples

gen: ## regenerate the kernels' assembly
	cd internal/kernel/gen && go run .

fuzz: ## every decoder for FUZZTIME each
	@for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
			echo "== ./$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./$$p || exit 1; done; done

soak: deps ## the long counts: kills, cycles, seeds, the API against its description, releases of the frameworks (prints seeds; results go to bench/results/)
	$(PYTHON_ENV)/bin/python tools/wheel/build.py && $(PYTHON_ENV)/bin/python -m pip install -q --no-index --find-links dist --force-reinstall --no-deps hora hora-compat hora-server
	$(PYTHON_ENV)/bin/python tools/wheel/build.py --library-only
	HORA_SOAK=1 go test -v -count=1 -timeout 120m ./...
	for seed in 7 11 2026; do sh tools/schemathesis.sh 60 $$seed || exit 1; done
	HORA_SOAK=1 $(PYTHON_ENV)/bin/python -m pytest -q -s --durations=12 $(addprefix python/tests/,test_process.py test_adopted.py test_elastic.py test_elastic_soak.py test_interrupted_soak.py test_wheel.py torch/test_torch_ends.py torch/test_torch_ddp.py torch/test_torch_examples.py torch/test_torch_own.py horovod/test_horovod_elastic_schedules.py tensorflow)
	HORA_SOAK=1 $$(sh tools/deps.sh path spark-4)/bin/python -m pytest -q -s --durations=12 $(addprefix python/tests/spark/,test_faults.py test_estimator.py test_ensemble.py test_ensemble_cluster.py test_older_estimator.py test_published_estimators.py)
	$(PYTHON_ENV)/bin/python tools/matrix/run.py $(dir $(PYTHON_ENV))

matrix: wheels ## the wheel on other releases of torch, TensorFlow and JAX; writes their tables into docs/compatibility.md
	$(PYTHON_ENV)/bin/python tools/matrix/run.py $(dir $(PYTHON_ENV))

peers: ## install Intel MPI for the benchmark (Python wheels, 330 MB); the others come with make deps
	@sh tools/deps.sh impi

bench: build ## the benchmark against gloo, Open MPI and, where make peers has installed it, Intel MPI
	bin/hora bench collectives --impi "$$(sh tools/deps.sh path impi)"

clean: ## what make has built
	rm -rf bin dist
