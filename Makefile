# The two commands of the README are `make demo` and `make test`; each installs what is missing, builds and runs.
# Everything else is CMake with the presets of CMakePresets.json: PRESET=debug make build.
PRESET ?= release
PREFIX ?= /usr/local

.PHONY: build demo test packages check-op format format-check tidy coverage install clean

build: packages
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

packages:
	tools/install-packages

# Trains the sample recommender whose tables do not fit the accelerator.
demo: packages
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target tandem
	tools/demo build/$(PRESET)/tandem

# Everything that must hold before a change lands, about 25 minutes on two cores.
test: packages
	tools/install-packages test
	tools/test

# make check-op OP=linear: what tests/conformance says of one op on every backend.
check-op: build
	tools/check-op build/$(PRESET) "$(OP)"

format:
	tools/format
format-check:
	tools/format --check
tidy: build
	tools/tidy build/$(PRESET)

coverage: packages
	cmake --preset coverage
	cmake --build --preset coverage
	ctest --preset coverage -LE check
	gcovr --root . --exclude tests --object-directory build/coverage --txt --html-details build/coverage/coverage.html

install: build
	cmake --install build/$(PRESET) --prefix "$(PREFIX)"

clean:
	rm -rf build
