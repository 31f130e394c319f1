# The commands that users type. Each calls one script or CMake preset.
# `make PRESET=cuda ...` or PRESET=cpu overrides what the machine suggests.

PRESET ?= $(shell cmake/preset.sh)
# A folder of its own each time: a run is never overwritten.
RUN ?= runs/quickstart-$(shell date +%Y%m%d-%H%M%S)
RUN := $(RUN)
TESTS ?=
# CMake looks where cmake/setup.sh installs, in FLOTILLA_DEPS=DIR or else in .deps.
DEPS = $(if $(FLOTILLA_DEPS),-DFLOTILLA_DEPS="$$(realpath -ms "$$FLOTILLA_DEPS")",-UFLOTILLA_DEPS)
# The oldest CPU that programs run on, as -march has it: x86-64-v2. Without, this one's.
OLDEST = $(if $(FLOTILLA_MARCH),-DFLOTILLA_MARCH=$(FLOTILLA_MARCH))

.PHONY: quickstart build test test-long bench wheel site pictures format clean

# Installs, builds, trains CartPole-v1 with two learners, shows the result. Of the
# emulator and of the examples there is no need yet.
quickstart: export FLOTILLA_ATARI ?= OFF
quickstart: PROGRAMS = flotilla flotilla-coordinator flotilla-envserver flotilla-learner
quickstart: build
	build/bin/flotilla train cartpole_fast --nproc-per-node 2 --progress auto --run-dir $(RUN)
	@cat $(RUN)/summary.json

# The programs, in build/bin/.
PROGRAMS = programs
build:
	cmake/setup.sh runtime
	cmake --preset $(PRESET) -B build $(OLDEST) $(DEPS)
	cmake --build build --target $(PROGRAMS)

# Everything is built, and tested by all that is not labelled long; `make test
# TESTS=roster` runs only what matches. test-long runs every test: it takes hours.
test test-long:
	cmake/setup.sh test
	cmake/format.sh --check
	cmake --preset $(PRESET) -B build $(OLDEST) $(DEPS)
	cmake --build build
	ctest --test-dir build --output-on-failure --no-tests=error -j $$(nproc) \
	  $(if $(filter test,$@),-LE '^long$$') $(if $(TESTS),-R '$(TESTS)')

# Our speed beside our peers'; wants the machine for itself.
bench: build
	tests/bench/run.sh

# What pip installs where there is no compiler: build-wheel/wheels/.
wheel:
	FLOTILLA_ATARI=OFF cmake/setup.sh wheel
	cmake --preset wheel -DFLOTILLA_CUDA=$(if $(filter cuda,$(PRESET)),ON,OFF) $(DEPS)
	cmake --build --preset wheel
	cmake/wheel/pack.sh build-wheel
	$${FLOTILLA_DEPS:-.deps}/wheelvenv/bin/python cmake/wheel/pulled.py build-wheel/wheels/*.whl

# The guides, the configuration's reference and our results as pages: build/site/.
site:
	cmake/setup.sh site
	$${FLOTILLA_DEPS:-.deps}/sitevenv/bin/python cmake/site/build.py build/site

# The pictures of the guides, launcher/pictures/, of short runs that it trains.
pictures: build
	cmake/setup.sh test
	$${FLOTILLA_DEPS:-.deps}/testvenv/bin/python tests/e2e/pictures.py launcher/pictures

format:
	cmake/format.sh

clean:
	rm -rf build build-*
