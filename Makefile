# make table3: fresh machine to finished Table 3 on the embedded corpus.
# make test:   fresh machine to passed lint, types and tests, in the minutes that one waits for.
# make slow:   the tests that take longer: whole sweeps, several processes, kills, benchmarks.
# make faults: kills a run at 50 random moments (KILLS=50), stops it, damages it and fills its disk.
# make parity: the tests that compare with PyTorch, which it installs.
# make bench:  training beside PyTorch, which it installs with CTranslate2.
# make notebook: executes the notebook.
# make browser: the tests of report.html, in Chromium, and of its table in LaTeX.
# make slurm:  the tests of sweeps on a private Slurm of two nodes.
# make engines: what SkyPilot and xpk themselves say of what we give them, each in its own environment.
# make accelerators: compiles training steps and beam search for TPUs; it needs no TPU.
PYTHON ?= python3
WORKDIR ?= runs/toy
KILLS ?= 50
BIN := .venv/bin

.PHONY: table3 test lint types tests slow parity bench notebook faults browser slurm engines accelerators \
	lock clean

table3: .venv/.installed
	$(BIN)/python -m experiments.table3 --config=configs/toy.py --workdir=$(WORKDIR) --noise_floor=5

# Side by side: one of them alone leaves cores idle.
test: .venv/.installed
	$(MAKE) -j3 lint types tests

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed
	$(BIN)/basedpyright

tests: .venv/.installed
	$(BIN)/python -m pytest -m "not slow"

slow: .venv/.installed
	$(BIN)/python -m pytest -m slow

parity: .venv/.parity
	PARITY=1 $(BIN)/python -m pytest tests/parity_*_test.py

bench: .venv/.bench
	$(BIN)/python -m experiments.benchmark --workdir=runs/bench

notebook: .venv/.notebook
	cd notebooks && ../$(BIN)/jupyter-execute --output=executed table3.ipynb

faults: .venv/.installed
	KILLS=$(KILLS) $(BIN)/python -m pytest -n 0 -m slow tests/faults_test.py

# These skip, saying why, where Debian's packages are missing and cannot be installed.
browser: .venv/.installed .venv-axe/.installed
	if tests/debian.sh chromium chromium-driver; then $(BIN)/python -m pytest -n 0 tests/browser; fi
	if tests/debian.sh texlive-latex-base texlive-latex-recommended; then $(BIN)/python -m pytest -n 0 tests/latex_test.py; fi

# axe-core, the one script: what brings it to PyPI wants a browser of its own besides.
.venv-axe/.installed: .venv/.installed
	$(BIN)/python -m pip install --quiet --no-deps --target=$(@D) axe-playwright-python==0.1.8
	touch $@

slurm: .venv/.installed
	if tests/debian.sh slurmctld slurmd slurm-client munge; then $(BIN)/python -m pytest -n 0 tests/slurm; fi

engines: .venv/.installed .venv-skypilot/.installed .venv-xpk/.installed
	$(BIN)/python -m pytest -n 0 tests/engines

# launch/ needs nothing but the engine itself.
.venv-%/.installed:
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet $*$(VERSION_$*)
	touch $@
VERSION_skypilot := ==0.14.1
VERSION_xpk := ==1.16.0

accelerators: .venv-tpu/.installed
	JAX_PLATFORMS=cpu .venv-tpu/bin/python -m pytest -n 0 tests/accelerators/tpu_test.py

# All that is locked, and the compiler that belongs to the lock's JAX.
.venv-tpu/.installed: requirements-build.lock requirements.lock
	$(locked)
	$(@D)/bin/python -m pip install --quiet 'jax[tpu]==$(JAX)'
	touch $@
JAX = $(shell sed -n 's/^jax==\([0-9.]*\).*/\1/p' requirements.lock)

# Not from a lock with hashes: PyTorch's file of one version differs from index to index.
.venv/.parity .venv/.bench .venv/.notebook: .venv/.%: .venv/.installed
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[$*]'
	touch $@

define locked
$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; name one with: make PYTHON=python3.12")'
$(PYTHON) -m venv $(@D)
$(@D)/bin/python -m pip install --quiet --require-hashes -r requirements-build.lock
$(@D)/bin/python -m pip install --quiet --require-hashes --no-build-isolation -r requirements.lock
endef

.venv/.installed: requirements-build.lock requirements.lock setup.py
	$(locked)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Resolves the locks again, for Python 3.11 to 3.13 (needs uv).
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
lock:
	printf 'pip\nsetuptools>=80\n' | $(LOCK) - -o requirements-build.lock
	$(LOCK) --fork-strategy fewest --extra test setup.py -o requirements.lock

clean:
	rm -rf .venv .venv-* build *.egg-info
