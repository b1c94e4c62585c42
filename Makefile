# Switchyard. `make` builds, `make demo` shows, `make test` tests; `make help` lists the rest.
#
# One Makefile, its parts (*.mk) beside what they build. Objects live in build/obj/HASH, HASH of compiler and flags, so that release,
# sanitizer and debug builds stand side by side.

# ---- switches ---------------------------------------------------------------------------------
CC      ?= gcc
CXX     ?= g++
SAN     ?=
CUDA    ?= auto
V       ?= 0
PREFIX  ?= /usr/local
DEVICE  ?= host
WERROR  ?= 1

comma    := ,

# oneDNN: the system's, or the one under DNNL=PATH (PATH/include, PATH/lib); DNNL=pypi fetches the 3.x that PyPI has for GNU OpenMP.
DNNL     ?=
DNNL_PYPI := build/onednn-pypi
ifeq ($(DNNL),pypi)
DNNL_DIR := $(abspath $(DNNL_PYPI))
DNNL_MADE := $(DNNL_PYPI)/made
else ifneq ($(DNNL),)
DNNL_DIR := $(abspath $(DNNL))
ifeq ($(wildcard $(DNNL_DIR)/include/oneapi/dnnl/dnnl.h),)
$(error DNNL=$(DNNL): no include/oneapi/dnnl/dnnl.h there)
endif
endif

# The CUDA plugin needs CUDA's headers and its static runtime, nothing of the driver: it builds without a GPU. What was decided is
# said once, not in the makes that this one starts.
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))),/usr/local/cuda)
CUDART   := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a \
              $(CUDA_HOME)/targets/$(shell uname -m)-linux/lib/libcudart_static.a))
CUDA_VERSION := $(shell sed -n 's/^.define CUDART_VERSION *\([0-9]*\).*/\1/p' $(CUDA_HOME)/include/cuda_runtime_api.h 2>/dev/null)
CUDA_FOUND := $(and $(CUDART),$(shell [ "$(CUDA_VERSION)" -ge 13000 ] 2>/dev/null && echo 1))
ifeq ($(filter auto 0 1,$(CUDA)),)
$(error CUDA=$(CUDA): one of auto, 0, 1)
else ifeq ($(CUDA),0)
WITH_CUDA :=
else ifneq ($(CUDA_FOUND),)
WITH_CUDA := 1
else ifeq ($(CUDA),1)
$(error CUDA=1: no cuda_runtime_api.h of CUDA 13.0 or later and libcudart_static.a under $(CUDA_HOME); name the toolkit in CUDA_HOME=, or use CUDA=0)
endif
ifeq ($(MAKELEVEL),0)
$(info switchyard: CUDA=$(CUDA): $(if $(WITH_CUDA),with the CUDA plugin ($(CUDA_HOME)),without the CUDA plugin$(if $(filter auto,$(CUDA)),: no CUDA 13 toolkit under $(CUDA_HOME))))
endif

# ---- flags ------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 -Wno-format-truncation
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif
ifeq ($(SAN),)
OPT      := -O2 -g
VARIANT  :=
else
OPT      := -O1 -g1 -fno-omit-frame-pointer -fsanitize=$(SAN) -DSY_DEBUG -DSY_SANITIZED
VARIANT  := /san-$(subst $(comma),-,$(SAN))
LDSAN    := -fsanitize=$(SAN)
endif
# Set by `make fuzz`: clang's libFuzzer (tests/fuzz/README.md). The engine's kernels stay gcc's, which wrote the OpenMP calls that the program has.
ifeq ($(FUZZ),1)
CC       := clang
CXX      := clang++
OPT      += -fsanitize=fuzzer-no-link
VARIANT  := /fuzz
WARNINGS :=
endif
COMMIT   := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ifneq ($(DNNL_DIR),)
VARIANT  := $(VARIANT)/dnnl-$(notdir $(DNNL_DIR))
DNNL_CPPFLAGS := -isystem $(DNNL_DIR)/include
DNNL_LDFLAGS := -L$(DNNL_DIR)/lib -Wl,-rpath,$(DNNL_DIR)/lib
endif
B        := build$(VARIANT)
GEN      := build/gen

CPPFLAGS += -I. -I$(GEN) $(DNNL_CPPFLAGS) -D_GNU_SOURCE
# What each shared library shows, its version script says; the tests' library shows all.
CFLAGS_  := -std=gnu17 $(OPT) -fPIC -pthread -fno-semantic-interposition $(WARNINGS) $(CFLAGS)
CXXFLAGS_ := -std=gnu++17 $(OPT) -fPIC -pthread -Wall -Wextra $(CXXFLAGS)
# Own kernels are plain loops that the compiler vectorises; target_clones picks the CPU class at load.
KERNEL_CFLAGS := -O3 -fopenmp -fno-math-errno -fno-trapping-math

HASH     := $(shell echo '$(CC) $(CFLAGS_) $(CPPFLAGS) $(KERNEL_CFLAGS)' | cksum | cut -d' ' -f1)
OBJ      := build/obj/$(HASH)

LIBS     := $(DNNL_LDFLAGS) -levent -levent_pthreads -lhttp_parser -lnghttp2 -lmsgpackc -ljemalloc -ldnnl -luring -lprotobuf-c -ljansson -lxxhash -lnuma -lz -ljpeg -lpng -lpcre2-8 -lseccomp -lssl -lcrypto \
            -lstdc++ -fopenmp -lm -ldl -Wl,--wrap=GOMP_parallel

ifeq ($(V),0)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
else
Q :=
say = @:
endif

# ---- sources ----------------------------------------------------------------------------------
LIB_SRC   := $(sort $(shell find allocator loader runtime workers -name '*.c' ! -path 'runtime/cli/*' ! -path 'runtime/device/cuda/*' ! -path 'workers/cuda/*' ! -path 'workers/mpi/*'))
CLI_SRC   := $(sort $(wildcard runtime/cli/*.c runtime/cli/*/*.c))
include runtime/front/front.mk
GEN_HDR   := $(GEN)/onnx.pb-c.h $(patsubst %.c,%.h,$(filter %.pb-c.c,$(GRPC_GEN)))
LIB_OBJ   := $(LIB_SRC:%.c=$(OBJ)/%.o) $(OBJ)/runtime/front/request/number_text.o $(patsubst $(GEN)/%.c,$(OBJ)/gen/%.o,$(GEN)/onnx.pb-c.c $(GRPC_GEN))
CLIENT_OBJ := $(patsubst %.c,$(OBJ)/%.o,$(sort $(wildcard runtime/client/*.c runtime/base/*.c runtime/net/*.c)))
CLI_OBJ   := $(CLI_SRC:%.c=$(OBJ)/%.o) $(OBJ)/runtime/cli/config/conf_toml.o

# ---- goals ------------------------------------------------------------------------------------
include workers/cuda/cuda.mk workers/mpi/mpi.mk tests/tests.mk bench/bench.mk examples/examples.mk runtime/python/wheel.mk runtime/install/install.mk

.PHONY: all binaries help deps format install clean FORCE
.DEFAULT_GOAL := all
# A failed recipe leaves no half-written file behind that the next run would trust.
.DELETE_ON_ERROR:
# Objects that only a chain of rules names are kept. (Not by .SECONDARY: it leaves out new sources that are older than what they go into.)
.PRECIOUS: $(OBJ)/%.o $(OBJ)/tests/main/test_%.o $(OBJ)/on_cpu/32/%.o $(OBJ)/on_cpu/256/%.o $(GEN)/%.pb-c.h

all: deps ## Build: the program, its libraries, the model generator (installs what is missing)
	@$(MAKE) --no-print-directory binaries

binaries: $(B)/switchyard $(B)/libswitchyard.a $(B)/libswitchyard.so $(B)/make-models $(CUDA_BIN) $(MPI_BIN)

deps: $(DNNL_MADE)
	@sh tests/install_deps.sh

# Wheels of a C library: pip puts their headers and libraries into the environment's include and lib.
$(DNNL_PYPI)/made:
	@sh tests/install_deps.sh python3 python3-venv
	$(call say,VENV,$(DNNL_PYPI))
	$(Q)python3 -m venv $(DNNL_PYPI)
	$(Q)$(DNNL_PYPI)/bin/pip install --quiet --disable-pip-version-check onednn-cpu-gomp onednn-devel-cpu-gomp
	@touch $@

$(GEN)/onnx.pb-c.c $(GEN)/onnx.pb-c.h &: /usr/include/onnx/onnx.proto
	$(call say,PROTOC,$@)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=/usr/include/onnx --c_out=$(GEN) onnx.proto

$(OBJ)/gen/%.o: $(GEN)/%.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out $(WARNINGS),$(CFLAGS_)) -c $< -o $@

$(OBJ)/workers/host/%.o: workers/host/%.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) $(KERNEL_CFLAGS) -MMD -MP -c $< -o $@

# Overlaps are float32 products and sums, each rounded, as on a GPU.
$(OBJ)/workers/host/reference/kernel_detect.o: KERNEL_CFLAGS += -ffp-contract=off

# Loops over elements, whose only threads are OpenMP's: the thread sanitizer does not see into these, and would take half of its time here.
ifneq ($(findstring thread,$(SAN)),)
$(addprefix $(OBJ)/workers/host/,operators/%.o products/%.o reference/%.o rows/%.o train/%.o): CFLAGS_ := $(filter-out -fsanitize=%,$(CFLAGS_))
endif
ifeq ($(FUZZ),1)
$(OBJ)/workers/host/%.o: CC := gcc
$(OBJ)/workers/host/%.o: CFLAGS_ := $(subst -fsanitize=fuzzer-no-link,-fsanitize-coverage=trace-pc,$(CFLAGS_))
endif

# The version string changes with each commit; only this file follows it.
$(OBJ)/runtime/cli/version.o: CPPFLAGS += -DSY_COMMIT='"$(COMMIT)"'
$(OBJ)/runtime/cli/version.o: build/commit
build/commit: FORCE
	@mkdir -p build; echo $(COMMIT) | cmp -s - $@ || echo $(COMMIT) > $@

$(OBJ)/%.o: %.c | $(GEN_HDR)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) -MMD -MP -c $< -o $@

$(OBJ)/%.o: %.cc
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS_) -MMD -MP -c $< -o $@

# In one step, so that two makes at once never see half an archive.
$(B)/libswitchyard.a: $(LIB_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@.$$$$ && ar rcs $@.$$$$ $^ && mv $@.$$$$ $@

# For programs that talk to a server: runtime/client/switchyard.h and what it stands on. Not the engines: with oneDNN and jemalloc a program
# that does not link these itself would have two allocators.
$(B)/libswitchyard.so: $(CLIENT_OBJ) runtime/client/switchyard.map Makefile
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,libswitchyard.so.0 -Wl,--version-script,runtime/client/switchyard.map $(if $(LDSAN),,-Wl$(comma)--no-undefined) -o $@ $(CLIENT_OBJ) -lmsgpackc -ljansson -lssl -lcrypto -lm -pthread
	@ln -sf libswitchyard.so $@.0

$(B)/switchyard: $(CLI_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $(CLI_OBJ) $(B)/libswitchyard.a $(LIBS) -pthread

format: ## Test: clang-format on all sources
	@sh tests/install_deps.sh clang-format
	$(Q)clang-format -i $$(git ls-files '*.c' '*.h' '*.cc')

# Goals say what they do behind "##", and in which group.
help:
	@awk -F ' ## ' '/^[a-z-]+:.* ## / { goal = substr($$1, 1, index($$1, ":") - 1); group = substr($$2, 1, index($$2, ": ") - 1); \
	    if (!(group in said)) { order[++n] = group; said[group] = "" } \
	    said[group] = said[group] sprintf("  make %-15s %s\n", goal == "all" ? "" : goal, substr($$2, length(group) + 3)) } \
	    END { for (i = 1; i <= n; i++) print order[i] "\n" said[order[i]] }' $(MAKEFILE_LIST)
	@echo "Switches"
	@echo "  CUDA=auto|0|1  CUDA_HOME=  CUDA_ARCHS=\"80 90\"  SAN=address,undefined|thread  V=1  WERROR=0  CC=  CFLAGS="
	@echo "  DNNL=PATH of another oneDNN than the system's; DNNL=pypi fetches 3.x"

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

clean: ## Build: removes build/
	rm -rf build
