# Each target sets itself up: .venv is made on first use and refreshed when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STORE ?= polysweep-store
SPEC := sweeps/specs/quickstart.yaml

.PHONY: quickstart theory test units-and-system test-all test-cluster coverage check bench gpu-check architecture pictures schema release-store clean
.DELETE_ON_ERROR:

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("polysweep needs Python >= 3.11, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# W&B's sweep engine, with which the tests compare draws and hyperband, has an environment of its own: it asks
# for numpy < 2, of which later Pythons have no wheel, though it works with numpy 2.
.venv/wandb-sweeps/installed: | .venv/installed
	$(PYTHON) -m venv .venv/wandb-sweeps
	.venv/wandb-sweeps/bin/python -m pip install --quiet --disable-pip-version-check \
		numpy scipy scikit-learn pyyaml jsonschema jsonref 'pydantic>=2.6,<3'
	.venv/wandb-sweeps/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'sweeps>=0.3,<0.4'
	touch $@

# The S3 server of the tests needs versions of its own.
.venv/installed-dev: .venv/installed | .venv/wandb-sweeps/installed
	$(PYTHON) -m venv .venv/moto
	.venv/moto/bin/python -m pip install --quiet --disable-pip-version-check 'moto[server,s3]>=5.1,<6'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

quickstart: .venv/installed  ## sweep on the bundled digits, then table, plots and report
	$(BIN)/polysweep launch $(SPEC) --store $(STORE) --wandb offline
	$(BIN)/polysweep plot quickstart --store $(STORE) --out quickstart-plots
	$(BIN)/polysweep report quickstart --store $(STORE) --out quickstart-report.html
	$(BIN)/polysweep table quickstart --store $(STORE)

THEORY := theory-deterministic theory-stochastic adaptive-deterministic adaptive-stochastic

theory: .venv/installed  ## the paper's four synthetic figures, with bounds and tables, into theory/
	@for name in $(THEORY); do $(BIN)/polysweep launch sweeps/specs/$$name.yaml --store $(STORE) --wandb offline || exit; done
	@mkdir -p theory
	@for name in $(THEORY); do $(BIN)/polysweep theory $$name --store $(STORE) --out theory/$$name > theory/$$name.md || exit; cat theory/$$name.md; done

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/codespell
	$(BIN)/python tools/words.py

PYTEST := -m pytest -n 3 --dist worksteal  # more than two cores need: many a test waits for a process

test: .venv/installed-dev
	@$(MAKE) --no-print-directory -j 2 check units-and-system

units-and-system: .venv/installed-dev
	$(BIN)/python $(PYTEST)

test-all: check
	$(BIN)/python $(PYTEST) -m 'long or not long'

test-cluster: .venv/installed-dev  ## clusters, images, compose, Slurm; as root; GROUPS='slurm compose' runs these alone
	$(BIN)/python tools/cluster_tests.py $(GROUPS)

coverage: .venv/installed-dev  ## lines and branches of all processes that the tests start, those on clusters too, by package
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run $(PYTEST)
	$(BIN)/python -m coverage run -m pytest -m long tests/system/test_cluster.py tests/sweeps/cluster
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o coverage.json
	$(BIN)/python -m tests.support.coverage_by_package coverage.json

bench: .venv/installed-dev
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/epoch.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/analysis.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/calibration.py

gpu-check: .venv/installed-dev  ## whether all is well on this machine's GPU, and how fast: a report to paste
	$(BIN)/python benchmarks/gpu_check.py

architecture: .venv/installed-dev  ## the picture of the rooms, from the imports
	$(BIN)/python tools/architecture.py

pictures: architecture quickstart  ## also the README's plot, from the quickstart
	$(BIN)/polysweep plot quickstart --store $(STORE) --out quickstart-plots --kinds png --width column
	cp quickstart-plots/robustness.png docs/quickstart.png

schema: .venv/installed  ## of a spec file, for editors
	$(BIN)/python -c 'import json; from polysweep.sweeps.spec.spec import SweepSpec; print(json.dumps(SweepSpec.json_schema(), indent=1))' > sweeps/spec.schema.json

release-store: .venv/installed-dev  ## keeps a Store as the release COMMIT writes it, for the tests of the releases after it
	$(BIN)/python -m tests.system.releases.make $(COMMIT)

clean:  ## removes what make made here, but never a Store: results are not rebuilt by a compiler
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis quickstart-plots quickstart-report.html polysweep-cache theory .coverage* coverage.json
