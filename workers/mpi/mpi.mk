# Ranks over MPI: libswitchyard-mpi.so, opened by a process that mpirun started (workers/train/ranks.c). Built where MPI's headers are (Debian: libopenmpi-dev).
MPI      ?= auto
MPI_FOUND := $(shell pkg-config --exists ompi-c 2>/dev/null && echo 1)
ifeq ($(filter auto 0 1,$(MPI)),)
$(error MPI=$(MPI): one of auto, 0, 1)
else ifeq ($(MPI)$(MPI_FOUND),1)
$(error MPI=1: pkg-config knows no ompi-c; install libopenmpi-dev, or use MPI=0)
endif
ifneq ($(filter-out 0,$(MPI)),)
ifneq ($(MPI_FOUND),)
MPI_BIN := $(B)/libswitchyard-mpi.so
endif
endif

$(OBJ)/workers/mpi/%.o: CPPFLAGS += $(patsubst -I%,-isystem %,$(shell pkg-config --cflags ompi-c 2>/dev/null))
$(B)/libswitchyard-mpi.so: $(OBJ)/workers/mpi/ranks_mpi.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDSAN) -shared -o $@ $< $(shell pkg-config --libs ompi-c)
