# The Python package.
.PHONY: wheel

# Its version is the C library's.
PYTHON_SRC := $(wildcard runtime/python/switchyard/*) runtime/python/pyproject.toml runtime/python/README.md runtime/client/switchyard.h
WHEEL    := build/wheel/switchyard-$(shell sed -n 's/^.define SWITCHYARD_VERSION *"\(.*\)"/\1/p' runtime/client/switchyard.h)-py3-none-any.whl
wheel: venv ## Build: the Python package: build/wheel/switchyard-VERSION-py3-none-any.whl
	@$(MAKE) --no-print-directory $(WHEEL)
$(WHEEL): $(PYTHON_SRC)
	$(call say,WHEEL,$@)
	$(Q)build/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(@D) runtime/python
