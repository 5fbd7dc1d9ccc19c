# Everything happens in .venv. A stamp is written only when an install has finished, so an interrupted one starts again.

PYTHON ?= python3
CPU ?=

BIN := .venv/bin
BENCH := .venv-bench/bin
ARGS ?=
comma := ,
PIP := $(BIN)/python -m pip install -q --no-compile # what is imported is compiled then; all the rest need not be
COMPILED := $(wildcard src/glassformer/layers/*.c src/glassformer/layers/*.h)
PINS := pyproject.toml constraints.txt $(COMPILED)
TORCH := $(shell sed -n 's/^torch==/&/p' constraints.txt)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
APT_GET := DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends fonts-noto-cjk

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := # where it is set, every process would compile PyTorch's thousand files again

.PHONY: help demo test bench clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo "make demo    set up, translate a sentence each way, then open the explorer"
	@echo "make test    set up, run everything that proves it works"
	@echo "make bench   set up with its peers, measure speed and memory beside them (ARGS=--quick: less of it)"
	@echo "make clean   remove .venv and what tools left behind; runs/ and models/ stay"
	@echo ""
	@echo "CPU=1              on Linux, take the CPU build of PyTorch (hundreds of MB instead of gigabytes)"
	@echo "PYTHON=python3.12  choose the Python to set up with (3.11 or newer)"

demo: .venv/.runtime
	@$(BIN)/glassformer demo
	@$(BIN)/glassformer explore

# One core installs the packages while the other has the browser and the page's tools; types are checked while tests begin. More
# workers than cores: a page is waited for.
test: .venv/.created
	@{ $(MAKE) -s .venv/.browser; $(MAKE) -s .venv/.web; } & $(MAKE) -s .venv/.dev; code=$$?; wait; exit $$code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > .venv/.types & types=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder; code=$$?; \
	wait $$types || code=1; cat .venv/.types; exit $$code

bench: .venv-bench/.installed
	$(BENCH)/python -m benchmarks $(ARGS)

# The peers have an environment of their own. JoeyNMT comes without what it asks for: old pins, and tools that it does not import.
.venv-bench/.installed: benchmarks/peers.txt $(PINS)
	@echo "Installing Glassformer and its peers into .venv-bench: some minutes the first time."
	@$(PYTHON) -m venv .venv-bench
	$(if $(filter 1,$(CPU)),@$(BENCH)/python -m pip install -q --no-deps --index-url $(TORCH_CPU_INDEX) $(TORCH))
	@$(BENCH)/python -m pip install -q -c constraints.txt -e . -r benchmarks/peers.txt
	@$(BENCH)/python -m pip install -q --no-deps joeynmt==2.3.0
	@touch $@

.venv/.created:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "'$(PYTHON)' was not found. Install Python 3.11 or newer, or name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv .venv
	@touch $@

# The CPU build goes in first and alone; the constraint is then already met, and the rest comes from the usual index.
define install
@echo "Installing $(1) into .venv: some minutes the first time, seconds after that."
$(if $(filter 1,$(CPU)),@$(PIP) --no-deps --index-url $(TORCH_CPU_INDEX) $(TORCH))
@$(PIP) -c constraints.txt -e '$(2)'
endef

.venv/.runtime: .venv/.created $(PINS)
	$(call install,Glassformer and PyTorch,.)
	@touch $@

.venv/.dev: .venv/.created $(PINS)
	$(call install,Glassformer$(comma) PyTorch and the test tools,.[dev])
	@touch .venv/.runtime $@

# The page is tested in a real browser. Where one may be installed it is; elsewhere those tests say why they are skipped.
.venv/.browser: | .venv/.created
	@if for name in chromium-headless-shell chromium chromium-browser google-chrome chrome; do command -v $$name && break; done; then \
	  touch $@; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing Chromium and Chinese fonts for the page's tests."; \
	  apt-get update -qq && { $(APT_GET) chromium-headless-shell 2>/dev/null || $(APT_GET) chromium; } >/dev/null && touch $@ || echo "Chromium could not be installed: the page's tests are skipped."; \
	else \
	  echo "There is no Chromium: the page's tests are skipped. On Debian: sudo apt install chromium fonts-noto-cjk"; \
	fi

.venv/.web: web/package-lock.json | .venv/.created
	@if command -v npm >/dev/null; then \
	  echo "Installing the page's tools into web/node_modules."; \
	  (cd web && npm install --no-save --silent --no-audit --no-fund) && touch $@ || echo "npm failed: whether the page is built of its sources is not tested."; \
	else \
	  echo "There is no npm: whether the page is built of its sources is not tested."; \
	fi

clean:
	rm -rf web/node_modules .venv .venv-bench build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
