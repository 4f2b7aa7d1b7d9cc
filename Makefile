# SPDX-License-Identifier: MIT
# ashlar's front door: CMake behind the usual words. `make help` lists them.
BUILD  ?= build
PREFIX ?= /usr/local
SETUP  ?= tools/setup.sh
MODEL  ?= $(BUILD)/resnet50.onnx

.PHONY: build run test test-release test-address test-thread test-machines test-arm test-models test-chains fuzz gpu-check install clean format lint help

# CMake configures again by itself when it must; only the first time is ours.
build:
	@$(SETUP) build
	@test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja -DASHLAR_TESTS=OFF
	@cmake --build $(BUILD)

$(BUILD)/resnet50.onnx: build
	@$(BUILD)/example_resnet50 $@

run: build $(MODEL)
	@$(BUILD)/ashlar run $(MODEL)

test:
	@$(SETUP) test lint
	@tools/test.sh release address thread lint

test-release test-address test-thread test-machines test-arm test-models: test-%:
	@$(SETUP) test
	@tools/test.sh $*

# Random chains of operators with variable sizes beside onnxruntime, CHAINS of them from FIRST on; what differs stays in
# build/chains.
CHAINS ?= 5000
FIRST  ?= 0
test-chains: build
	@bench/setup.sh >/dev/null
	@build/bench/bin/python bench/chains.py --ashlar $(BUILD)/ashlar --out $(BUILD)/chains --first $(FIRST) --count $(CHAINS)

# Random graphs for SECONDS; what fails is written, made small, to build-fuzz/found.
SECONDS_OF_FUZZ ?= 7200
fuzz:
	@$(SETUP) test
	@tools/fuzz.sh $(SECONDS_OF_FUZZ)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@test -n "$$DESTDIR" || test "$$(id -u)" -ne 0 || ! command -v ldconfig >/dev/null || ldconfig

# The program alone is enough on a machine with a GPU: no toolchain, no LLVM, no CUDA toolkit.
gpu-check: build
	@cmake --build $(BUILD) --target gpu_check
	@$(BUILD)/gpu_check --csv $(BUILD)/gpu_check.csv --json $(BUILD)/gpu_check.json $(GPU_CHECK)

lint:
	@$(SETUP) lint
	@tools/test.sh lint

format:
	@$(SETUP) lint
	@tools/lint.sh format

clean:
	rm -rf $(BUILD) build-release build-address build-thread build-arm build-fuzz

help:
	@echo 'make            builds the library, the program and the examples into $(BUILD)/'
	@echo 'make run        the same, then ResNet-50: written as ONNX, prepared, executed, measured'
	@echo '                (MODEL=model.onnx: another model)'
	@echo 'make test       all tests: as shipped, under the sanitizers, and lint'
	@echo 'make test-release, test-address, test-thread, lint: one part of that'
	@echo 'make test-machines  the tests once more, as other processors (AVX2, plain x86-64, other caches)'
	@echo 'make test-arm       those of code, kernels and plans, for aarch64 by qemu: most of an hour'
	@echo 'make test-models    ResNet-50 and a decoder, whole, on the stand-in for the CUDA driver: minutes'
	@echo 'make test-chains    random chains of operators with variable sizes beside onnxruntime, CHAINS=$(CHAINS) from FIRST=$(FIRST) on'
	@echo 'make fuzz       random graphs through everything, SECONDS_OF_FUZZ=$(SECONDS_OF_FUZZ)'
	@echo 'make gpu-check  builds $(BUILD)/gpu_check, one file that needs a GPU'"'"'s driver and nothing else, and runs'
	@echo '                it here: is everything right on the GPU, and how fast (GPU_CHECK=--quick: options)'
	@echo 'make format     formats the sources'
	@echo 'make install    PREFIX=$(PREFIX); DESTDIR is respected'
	@echo 'make clean      removes what was built'
	@echo
	@echo 'What is missing is installed by tools/setup.sh; SETUP=: goes on without looking.'
