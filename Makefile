# Bireme. `make` prints this list; `make demo` and `make test` do all the set-up they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
COMPILE := $(VENV)/uv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
  --no-annotate --universal --python-version 3.11
CODE := operator extender policies benchmarks testbed tests tools
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# One environment grows: the demo's packages first, those of everything else when a target asks. For the
# demo, bytecode is written when a module is first imported, as most never are.
unexport PYTHONDONTWRITEBYTECODE
define INSTALL
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Bireme needs Python 3.11 or newer; set PYTHON=...")'
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(PIP) --require-hashes -r $<
$(PIP) --no-deps --no-build-isolation --editable . --editable ./policies
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install controlplane demo demo-cluster test test-fast check audit format crds monitoring reference docs images bench bench-peers evidence verify differential release-rehearsal cluster-up cluster-down kind-up kind-down constraints clean

help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/installed ## a virtual environment with every dependency, by hash

$(VENV)/installed: constraints.txt pyproject.toml policies/pyproject.toml
	$(INSTALL)
	-$(RUN) compileall -qq -j 0 $(VENV)/lib    # some files of packages are templates, no Python
	touch $@ $(VENV)/demo

$(VENV)/demo: constraints-demo.txt pyproject.toml policies/pyproject.toml
	$(INSTALL)
	touch $@

controlplane: $(VENV)/demo ## build the Kubernetes binaries, once; later runs are instant
	@$(RUN) testbed.controlplane build

demo: $(VENV)/demo ## 24 jobs on an embedded cluster with fake GPU nodes (KEEP=1, SEED=n)
	@$(RUN) tools.demo run

demo-cluster: controlplane ## the same on a real control plane (KEEP=1, SEED=n)
	@$(RUN) tools.demo run --real

test: check docs controlplane ## everything: checks, then every test tier
	@$(RUN) testbed.controlplane build --helm --judge --karpenter --kubeflow
	@$(RUN) testbed.controlplane build --node --where-possible
	@$(RUN) tools.images --where-possible
	@$(RUN) testbed.browser --where-possible
	$(BIN)/python -m pytest --numprocesses 4 --maxschedchunk 1

test-fast: install ## what only computes: unit, contract and parity tests, by two processes
	$(BIN)/python -m pytest --numprocesses 2 tests/unit tests/contract tests/parity

check: install ## format, lint, types, import contracts, generated files, measures of the code
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/ruff check --quiet $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --config pyproject.toml > $(VENV)/contracts.txt || { cat $(VENV)/contracts.txt; exit 1; }
	$(BIN)/python -m bireme.kube.crd --check
	$(RUN) tools.docs.monitoring --check
	$(RUN) tools.docs.reference --check
	@$(RUN) tools.house --check

audit: install ## known flaws of what is pinned; fails where a package cannot be looked up
	$(RUN) tools.audit constraints.txt

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --quiet --fix $(CODE)
	$(BIN)/ruff format --quiet $(CODE)

crds: install ## write the CRDs from the models
	$(BIN)/python -m bireme.kube.crd --write

monitoring: install ## write the tables of docs/metrics.md from the code
	$(RUN) tools.docs.monitoring --write

reference: install ## write docs/reference, the chart's README and tests/golden/messages.txt from the code
	$(RUN) tools.docs.reference --write

docs: install ## the documentation as a site in site/; a broken link fails
	$(RUN) tools.docs.website

images: install controlplane ## container images without Docker, as OCI archives (root on Debian)
	@$(RUN) tools.images

bench: install controlplane ## measure, and write the tables in docs/results (about 30 minutes)
	@$(RUN) benchmarks.timings

bench-peers: install controlplane ## Bireme beside other gang schedulers (half an hour; resumes)
	@$(RUN) testbed.controlplane build --peers
	@$(RUN) benchmarks.peers

evidence: install ## simulate, and write the tables in docs/results/simulations (resumes)
	@$(RUN) benchmarks.simulations
	@$(RUN) benchmarks.run_times

verify: install controlplane ## what is long: thousands of seeds, simulator against cluster (hours; resumes)
	@$(RUN) tools.verify

differential: install controlplane ## the simulator against the real control plane, 50 seeds (half an hour)
	@$(RUN) benchmarks.differential

release-rehearsal: install controlplane ## a release on this machine, to a running installation (root on Debian)
	@$(RUN) tools.release rehearse

cluster-up: controlplane ## a cluster with Bireme running on it, until cluster-down
	@$(RUN) tools.demo up

cluster-down: $(VENV)/demo ## stop what cluster-up or KEEP=1 left running
	@$(RUN) tools.demo down

kind-up: $(VENV)/demo ## a kind cluster with Bireme and fake GPU nodes; needs Docker or podman, kind, helm, kubectl
	@$(RUN) tools.kind up

kind-down: $(VENV)/demo ## remove all of that
	@$(RUN) tools.kind down

constraints: install ## renew constraints.txt from both pyproject.toml, and all other lists after it
	$(PYTHON) -m venv $(VENV)/uv && $(VENV)/uv/bin/pip install --quiet uv
	$(COMPILE) --no-emit-package bireme --extra dev --extra train pyproject.toml policies/pyproject.toml -o constraints.new
	{ head -n 1 constraints.txt; cat constraints.new; } > constraints.txt.new
	mv constraints.txt.new constraints.txt && rm constraints.new
	$(COMPILE) -c constraints.txt --extra demo pyproject.toml -o constraints-demo.txt
	$(COMPILE) -c constraints.txt --extra operator --extra extender --extra serve pyproject.toml -o image/bireme.txt
	$(COMPILE) -c constraints.txt --extra operator --extra extender --extra forecast pyproject.toml -o image/forecast.txt
	$(COMPILE) -c constraints.txt image/build.in -o image/build.txt

clean: ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .run site
