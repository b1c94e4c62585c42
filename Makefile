# Switchyard. `make` builds, `make demo` shows, `make test` tests; `make help` lists the rest.
#
# One Makefile, no recursion. Objects live in build/obj/HASH, HASH of compiler and flags, so that release,
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

# ---- flags ------------------------------------------------------------------------------------
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 -Wno-format-truncation
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif
ifeq ($(SAN),)
OPT      := -O2 -g
VARIANT  :=
else
OPT      := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -DSY_DEBUG -DSY_SANITIZED
VARIANT  := /san-$(subst $(comma),-,$(SAN))
LDSAN    := -fsanitize=$(SAN)
endif
COMMIT   := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
B        := build$(VARIANT)
GEN      := build/gen

CPPFLAGS += -I. -I$(GEN) -D_GNU_SOURCE
CFLAGS_  := -std=gnu17 $(OPT) -fPIC -pthread -fvisibility=hidden $(WARNINGS) $(CFLAGS)
CXXFLAGS_ := -std=gnu++17 $(OPT) -fPIC -pthread -Wall -Wextra $(CXXFLAGS)
# Own kernels are plain loops that the compiler vectorises; target_clones picks the CPU class at load.
KERNEL_CFLAGS := -O3 -fopenmp -fno-math-errno -fno-trapping-math

HASH     := $(shell echo '$(CC) $(CFLAGS_) $(CPPFLAGS) $(KERNEL_CFLAGS)' | cksum | cut -d' ' -f1)
OBJ      := build/obj/$(HASH)

LIBS     := -levent -levent_pthreads -lmsgpackc -ljemalloc -ldnnl -luring -lprotobuf-c -ljansson -lxxhash -lnuma -lz \
            -fopenmp -lm -ldl

ifeq ($(V),0)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
else
Q :=
say = @:
endif

# ---- sources ----------------------------------------------------------------------------------
LIB_SRC   := $(sort $(wildcard runtime/base/*.c runtime/device/*.c runtime/wire/*.c runtime/sched/*.c runtime/*.c \
               allocator/*.c loader/*.c workers/*.c workers/host/*.c))
CLI_SRC   := $(sort $(wildcard runtime/cli/*.c))
TEST_SRC  := $(sort $(wildcard tests/test_*.c))
TEST_LIB_SRC := $(sort $(filter-out $(TEST_SRC),$(wildcard tests/*.c)))
# bench/NAME.c has a main; bench/NAME_*.c belongs to NAME.
BENCH_SRC := $(sort $(filter-out bench/%_rig.c bench/%_child.c,$(wildcard bench/*.c)))
BENCH_LIB_SRC := $(sort $(wildcard bench/*_rig.c bench/*_child.c))
EXAMPLE_SRC := $(sort $(wildcard examples/models/*.c))
DEMO_SRC  := $(sort $(wildcard examples/demo/*.c))

GEN_SRC   := $(GEN)/onnx.pb-c.c
LIB_OBJ   := $(LIB_SRC:%.c=$(OBJ)/%.o) $(OBJ)/gen/onnx.pb-c.o
CLI_OBJ   := $(CLI_SRC:%.c=$(OBJ)/%.o)
TEST_LIB_OBJ := $(TEST_LIB_SRC:%.c=$(OBJ)/%.o)
EXAMPLE_OBJ := $(EXAMPLE_SRC:%.c=$(OBJ)/%.o)
DEMO_OBJ  := $(DEMO_SRC:%.c=$(OBJ)/%.o)
TEST_BIN  := $(TEST_SRC:tests/%.c=$(B)/tests/%)
BENCH_LIB_OBJ := $(BENCH_LIB_SRC:%.c=$(OBJ)/%.o)
BENCH_BIN := $(BENCH_SRC:bench/%.c=$(B)/bench/%)

# ---- goals ------------------------------------------------------------------------------------
.PHONY: all help deps test check lint bench demo models clean install format tests benches fuzz gpu-check gpu-bench FORCE
.DEFAULT_GOAL := all
# A failed recipe leaves no half-written file behind that the next run would trust.
.DELETE_ON_ERROR:
.SECONDARY:

all: deps
	@$(MAKE) --no-print-directory binaries

.PHONY: binaries
binaries: $(B)/switchyard $(B)/libswitchyard.a $(B)/libswitchyard.so $(B)/make-models

deps:
	@sh tests/install_deps.sh

$(GEN)/onnx.pb-c.c $(GEN)/onnx.pb-c.h &: /usr/include/onnx/onnx.proto
	$(call say,PROTOC,$@)
	@mkdir -p $(GEN)
	$(Q)protoc-c --proto_path=/usr/include/onnx --c_out=$(GEN) onnx.proto

$(OBJ)/gen/onnx.pb-c.o: $(GEN)/onnx.pb-c.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out $(WARNINGS),$(CFLAGS_)) -c $< -o $@

$(OBJ)/workers/host/%.o: workers/host/%.c | $(GEN)/onnx.pb-c.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS_) $(KERNEL_CFLAGS) -MMD -MP -c $< -o $@

# The version string changes with each commit; only this file follows it.
$(OBJ)/runtime/cli/version.o: CPPFLAGS += -DSY_COMMIT='"$(COMMIT)"'
$(OBJ)/runtime/cli/version.o: build/commit
build/commit: FORCE
	@mkdir -p build; echo $(COMMIT) | cmp -s - $@ || echo $(COMMIT) > $@

$(OBJ)/%.o: %.c | $(GEN)/onnx.pb-c.h
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

$(B)/libswitchyard.so: $(LIB_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -shared -Wl,-soname,libswitchyard.so.0 -o $@ $^ $(LIBS) -pthread

$(B)/switchyard: $(CLI_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $(CLI_OBJ) $(B)/libswitchyard.a $(LIBS) -pthread

$(B)/make-models: $(EXAMPLE_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

$(B)/switchyard-demo: $(DEMO_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -pthread

# The example models as ONNX files, made once, and imported into packages once.
MODELS   := resnet152 inception_v3 bert_base
models: binaries
	$(Q)$(B)/make-models --out build/models $(MODELS) mnist_cnn
	$(Q)for m in $(MODELS); do \
	    [ build/models/$$m/1/model.sypkg -nt build/models/$$m/1/model.onnx ] || \
	    $(B)/switchyard import build/models/$$m/1/model.onnx --name $$m || exit 1; done

demo: deps
	@sh tests/install_deps.sh dataset-fashion-mnist
	@$(MAKE) --no-print-directory models $(B)/switchyard-demo
	$(Q)$(B)/switchyard-demo --binary $(B)/switchyard --models build/models --folder build/demo --device $(DEVICE)

$(B)/tests/%: $(OBJ)/tests/%.o $(TEST_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -o $@ $^ $(LIBS) -lcmocka -pthread

$(B)/bench/%: $(OBJ)/bench/%.o $(OBJ)/bench/gbench.o $(BENCH_LIB_OBJ) $(B)/libswitchyard.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDSAN) -o $@ $^ $(LIBS) -lbenchmark -pthread

tests: $(TEST_BIN)
benches: $(BENCH_BIN)

-include $(wildcard $(OBJ)/*/*.d $(OBJ)/*/*/*.d)

clean:
	rm -rf build
