# preft: build, install, test. `make help` lists the targets.
# Objects go under build/VARIANT; changed flags force a rebuild.

SHELL       := /bin/sh
.SUFFIXES:
.DEFAULT_GOAL := all
MAKEFLAGS   += --no-print-directory --no-builtin-rules
ifeq ($(MAKELEVEL),0)
MAKEFLAGS   += -j$(shell nproc 2>/dev/null || echo 2)
endif

VERSION     := 0.1.0
PREFIX      ?= /usr/local
DESTDIR     ?=
CC          ?= cc
CXX         ?= c++
OPT         ?= -O2 -g
SAN         ?=
REF         ?= tests/data
ISA         ?= ref,avx2,avx512
SECONDS     ?= 60
SEED        ?= 42
V           ?= 0
Q           := $(if $(filter 1,$(V)),,@)

comma       := ,
VARIANT     := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),release)
BUILD       := build/$(VARIANT)
PROGRAM     := $(if $(SAN),$(BUILD)/preft,preft)

# --- packages ----------------------------------------------------------------------------------
# what is looked for:name:Debian package. `make deps` prints, and as root installs, what is missing.
PACKAGES    := program:cc:build-essential program:pkg-config:pkg-config \
               library:ncursesw:libncurses-dev library:sqlite3:libsqlite3-dev \
               library:libsodium:libsodium-dev library:libutf8proc:libutf8proc-dev \
               library:libpcre2-8:libpcre2-dev library:jansson:libjansson-dev library:md4c:libmd4c-dev \
               program:pip3:python3-pip
TEST_PACKAGES := library:cmocka:libcmocka-dev program:tmux:tmux program:screen:screen program:valgrind:valgrind \
               program:mandoc:mandoc program:clang:clang header:simde/simde-common.h:libsimde-dev \
               terminal:xterm-16color:ncurses-term
PKG_CONFIG  ?= pkg-config
LIBRARIES   := $(foreach p,$(PACKAGES),$(if $(filter library:%,$(p)),$(word 2,$(subst :, ,$(p)))))

# These targets look for the packages themselves or need none.
WITHOUT_LIBRARIES := help clean deps deps-tests chat demo check lint
ifneq ($(filter-out $(WITHOUT_LIBRARIES),$(or $(MAKECMDGOALS),all)),)
ifneq ($(shell $(PKG_CONFIG) --exists $(LIBRARIES) && echo found),found)
$(error Libraries are missing. `make deps` names them and, as root or with sudo, installs them)
endif
LIB_CFLAGS  := $(shell $(PKG_CONFIG) --cflags $(LIBRARIES))
LIB_LDLIBS  := $(shell $(PKG_CONFIG) --libs $(LIBRARIES))
endif

# --- flags -------------------------------------------------------------------------------------
WARN        := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
               -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef
CPPFLAGS    += -I. -Isrc -D_GNU_SOURCE -DPREFT_VERSION='"$(VERSION)"'
CFLAGS      += -std=c11 $(OPT) $(WARN) -fno-math-errno -ffp-contract=off -pthread \
               -fstack-protector-strong $(LIB_CFLAGS)
LDFLAGS     += -pthread -Wl,-z,relro,-z,now
LDLIBS      += $(LIB_LDLIBS) -lm
ifneq ($(SAN),)
CFLAGS      += -fsanitize=$(SAN) -fno-omit-frame-pointer
LDFLAGS     += -fsanitize=$(SAN)
endif
ifneq ($(findstring undefined,$(SAN)),)
CFLAGS      += -fno-sanitize-recover=all
endif

# --- sources -----------------------------------------------------------------------------------
# One room per folder; kernels/cpu has one object per instruction set with its own flags.
LIB_SOURCES := $(sort $(wildcard src/base/*.c src/engine/*.c src/train/*.c src/train/*/*.c \
                 src/serve/*.c kernels/*.c kernels/ref/*.c kernels/cpu/*.c models/*.c profiles/*.c \
                 ui/*.c src/commands/*.c src/commands/bench/*.c))
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o)
MAIN_OBJECT := $(BUILD)/src/main.o
LIB         := $(BUILD)/libpreft.a

AVX2_OBJECTS   := $(BUILD)/kernels/cpu/avx2.o $(BUILD)/kernels/cpu/avx2_train.o \
                  $(BUILD)/kernels/cpu/avx2_peak.o
AVX512_OBJECTS := $(BUILD)/kernels/cpu/avx512.o $(BUILD)/kernels/cpu/avx512_train.o \
                  $(BUILD)/kernels/cpu/avx512_peak.o
AMX_OBJECTS    := $(BUILD)/kernels/cpu/amx.o $(BUILD)/kernels/cpu/amx_peak.o
# Unrolled templates: sanitizers take minutes over them above -O1.
ISA_OPT        := $(if $(SAN),-O1,-O3)
$(AVX2_OBJECTS):   ISA_FLAGS := -mavx2 -mfma -mf16c $(ISA_OPT)
AVX512_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c
$(AVX512_OBJECTS): ISA_FLAGS := $(AVX512_FLAGS) $(ISA_OPT)
$(AMX_OBJECTS):    ISA_FLAGS := $(AVX512_FLAGS) -mamx-tile -mamx-int8 $(ISA_OPT)

TEST_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
TESTS        := $(TEST_SOURCES:tests/unit/%.c=$(BUILD)/tests/%)
TEST_SUPPORT := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/support/*.c)))
REFERENCE    := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/reference/*.c))) \
                $(BUILD)/tests/support/runner.o
MUTATIONS    := $(patsubst %,$(BUILD)/tests/fuzz/%.o,formats heap mutate parts store)
FUZZERS      := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

# --- build -------------------------------------------------------------------------------------
.PHONY: all
all: $(PROGRAM) ## build ./preft

$(PROGRAM): $(MAIN_OBJECT) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(MAIN_OBJECT) $(LIB) $(LDLIBS)

$(LIB): $(LIB_OBJECTS)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJECTS)

# Written anew, and with it everything built again, only when the flags differ.
FLAGS_NOW   := $(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
.PHONY: FORCE

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(TEST_FLAGS) $(CFLAGS) $(ISA_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%.o: TEST_FLAGS := -Itests
$(BUILD)/tests/test_%: $(BUILD)/tests/unit/test_%.o $(TEST_SUPPORT) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIB) $(LDLIBS) -lcmocka
$(BUILD)/tests/test_mutations: $(MUTATIONS)

$(BUILD)/tests/bench_interface: $(BUILD)/tests/bench/bench_interface.o $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/tests/check_reference: $(REFERENCE) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(REFERENCE) $(LIB) $(LDLIBS)

$(BUILD)/fuzz/%: tests/fuzz/%.c $(LIB)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $< $(LIB) $(LDLIBS)

# --- AVX-512 and AMX on machines that have only AVX2, for tests ----------------------------------
# SIMDe (libsimde-dev) writes each AVX-512 instruction in terms of AVX2, tiles are plain C: programs
# under $(BUILD)/emulated-isa can run both sets everywhere, slowly.
EMULATED_ISA := $(patsubst $(BUILD)/%,$(BUILD)/emulated-isa/%, \
                 $(AVX512_OBJECTS) $(AMX_OBJECTS) $(BUILD)/kernels/backend.o)

$(BUILD)/emulated-isa/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (emulated)"
	$(Q)$(CC) $(CPPFLAGS) -DKN_EMULATE_AVX512 $(CFLAGS) -mavx2 -mfma -mf16c -O1 -g0 -Wno-psabi -MMD -MP -c -o $@ $<

$(BUILD)/emulated-isa/test_%: $(BUILD)/tests/unit/test_%.o $(TEST_SUPPORT) $(EMULATED_ISA) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

$(BUILD)/emulated-isa/check_reference: $(REFERENCE) $(EMULATED_ISA) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# --- CUDA --------------------------------------------------------------------------------------
# A library of its own that the program opens for `--device cuda` (kernels/cuda_library.c). Built
# for the devices below, as far as the toolkit knows them, and as PTX for newer ones.
NVCC         ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_DEVICES ?= 80 89 90 100
CUDA_LIBRARY := $(BUILD)/libpreft-cuda.so
CUDA_OBJECTS := $(patsubst kernels/cuda/%.cu,$(BUILD)/cuda/%.o,$(sort $(wildcard kernels/cuda/*.cu)))
CUDA_KNOWN    = $(foreach d,$(CUDA_DEVICES),$(if $(filter compute_$(d),$(shell $(NVCC) --list-gpu-arch)),$(d)))
CUDA_CODE     = $(foreach d,$(CUDA_KNOWN),-gencode arch=compute_$(d),code=sm_$(d)) \
                -gencode arch=compute_$(lastword $(CUDA_KNOWN)),code=compute_$(lastword $(CUDA_KNOWN))
NVCCFLAGS    += -std=c++17 -O3 -I. -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra

$(BUILD)/cuda/types.o: kernels/types.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/cuda/%.o: kernels/cuda/%.cu $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) $(NVCCFLAGS) $(CUDA_CODE) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(BUILD)/cuda/types.o
	@echo "  LINK  $@"
	$(Q)$(NVCC) -shared -cudart static -o $@ $^ -lcublas -Xlinker -rpath,$(patsubst %/bin/nvcc,%/lib64,$(realpath $(NVCC)))

.PHONY: cuda cuda-facts
ifneq ($(and $(NVCC),$(if $(SAN),,yes)),)
all: cuda
cuda: $(CUDA_LIBRARY) ## the library for NVIDIA devices, part of all where nvcc is found
else
cuda:
	@echo "CUDA: $(if $(NVCC),not built with sanitizers,not found), building for the CPU"
endif

cuda-facts: ## registers, shared memory and spills of every kernel
	@tests/cuda_facts.sh '$(NVCC)' $(firstword $(filter 90,$(CUDA_KNOWN)) $(CUDA_KNOWN)) kernels/cuda/*.cu

# --- CUDA on the processor, for tests (tests/cuda_emulation/README.md) --------------------------
CXXFLAGS    += -std=c++17 $(OPT) -Wall -Wextra -Wshadow -ffp-contract=off -pthread \
               $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
CUDA_EMULATION := $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out %/test_emulation.cpp, \
                 $(sort $(wildcard tests/cuda_emulation/*.cpp))))

$(BUILD)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) -I. $(CXXFLAGS) -MMD -MP -c -o $@ $<

# The library with the same emulation inside; tests name it in PREFT_CUDA_LIBRARY.
CUDA_EMULATED := $(BUILD)/libpreft-cuda-emulated.so
EMULATED     := $(patsubst kernels/cuda/%.cu,$(BUILD)/emulated/%.o,$(sort $(wildcard kernels/cuda/*.cu))) \
                $(patsubst $(BUILD)/%,$(BUILD)/emulated/%,$(CUDA_EMULATION))

# A device reads and writes at multiples of the size only.
ALIGNMENT   := -fsanitize=alignment -fsanitize-undefined-trap-on-error -Wno-maybe-uninitialized

$(BUILD)/emulated/%.o: kernels/cuda/%.cu $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) -x c++ -I. -Itests/cuda_emulation $(CXXFLAGS) -Wno-unknown-pragmas $(ALIGNMENT) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/emulated/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) -I. $(CXXFLAGS) -fPIC -MMD -MP -c -o $@ $<

$(CUDA_EMULATED): $(EMULATED) $(BUILD)/cuda/types.o
	@echo "  LINK  $@"
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -shared -o $@ $^ -ldl

$(BUILD)/tests/cuda_emulation/test_emulation.o: CXXFLAGS += $(ALIGNMENT)
$(BUILD)/tests/test_emulation: $(BUILD)/tests/cuda_emulation/test_emulation.o $(CUDA_EMULATION)
	@echo "  LINK  $@"
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -rdynamic -o $@ $^ -lcmocka -ldl

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# --- use ---------------------------------------------------------------------------------------
.PHONY: chat demo deps deps-tests install uninstall help clean
chat: ## find and install packages, build, fetch the model, open the chat
	@$(MAKE) deps && $(MAKE) preft && ./preft model pull >/dev/null
	@if [ -t 0 ] && [ -t 1 ]; then ./preft chat; else $(MAKE) demo; fi

demo: ## play a chat of two people and print its screens
	@$(MAKE) deps && $(MAKE) preft && ./preft model pull --quiet >/dev/null
	@tests/demo.sh ./preft

deps: ## name missing packages; as root or with sudo install them
	@tests/deps.sh $(PACKAGES)

deps-tests:
	@tests/deps.sh $(PACKAGES) $(TEST_PACKAGES)

install: $(PROGRAM) ## put program, man pages and completions under PREFIX
	install -Dm755 $(PROGRAM) '$(DESTDIR)$(PREFIX)/bin/preft'
	[ ! -f $(CUDA_LIBRARY) ] || install -Dm755 $(CUDA_LIBRARY) '$(DESTDIR)$(PREFIX)/lib/preft/libpreft-cuda.so'
	for page in man/*.[1-8]; do \
	    install -Dm644 "$$page" '$(DESTDIR)$(PREFIX)'/share/man/man"$${page##*.}"/"$${page##*/}" || exit 1; done
	install -d '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' \
	    '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	./$(PROGRAM) completion bash > '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/preft'
	./$(PROGRAM) completion zsh > '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_preft'
	./$(PROGRAM) completion fish > '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/preft.fish'

uninstall: ## remove what install put there
	rm -f '$(DESTDIR)$(PREFIX)/lib/preft/libpreft-cuda.so' '$(DESTDIR)$(PREFIX)/bin/preft' '$(DESTDIR)$(PREFIX)'/share/man/man[1-8]/preft.[1-8] \
	    '$(DESTDIR)$(PREFIX)'/share/man/man[1-8]/preft[-.]*.[1-8] \
	    '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/preft' \
	    '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_preft' \
	    '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/preft.fish'

clean: ## remove what was built
	rm -rf build preft

help: ## this list
	@echo "make [TARGET] [CC=clang] [SAN=address|undefined|address,undefined|thread] [PREFIX=DIR] [V=1]"
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	    awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# --- tests -------------------------------------------------------------------------------------
RUN_TESTS   := BUILD=$(BUILD) PREFT=$(PROGRAM) CC='$(CC)' tests/run.sh

.PHONY: tests check check-cuda check-reference check-tiers quick mutate fuzz fuzz-run valgrind-vault lint \
        bench bench-personas bench-interface man
tests: $(PROGRAM) $(TESTS) $(BUILD)/tests/check_reference $(BUILD)/tests/test_emulation \
       $(if $(SAN),,$(CUDA_EMULATED))

check: ## all tests: quick ones, then with the real model (fetched when absent)
	@$(MAKE) deps-tests && $(MAKE) check-tiers SAN=$(SAN)

check-tiers: tests
	@./$(PROGRAM) model pull >/dev/null
	@$(RUN_TESTS) quick model

quick: tests ## the tests that need no model
	@$(RUN_TESTS) quick

check-cuda: tests ## the CUDA backend on the emulation (part of check)
	@$(RUN_TESTS) quick test_cuda test_emulation

check-reference: $(BUILD)/tests/check_reference ## golden data in REF (tests/data), real model in PREFT_TEST_MODEL
	@$< --isa '$(ISA)' --real '$(PREFT_TEST_MODEL)' $(REF)

fuzz: mutate ## damaged files at all readers for SECONDS (60), then each tests/fuzz/fuzz_*.c (clang)
	@$(MAKE) CC=clang SAN=fuzzer-no-link,address fuzz-run

mutate: ## damaged files of every format at its reader for SECONDS (60), under sanitizers; SEED=N
	@$(MAKE) SAN=address,undefined build/san-address-undefined/tests/test_mutations
	@PREFT_TEST_SECONDS=$(SECONDS) PREFT_TEST_SEED=$(SEED) build/san-address-undefined/tests/test_mutations

fuzz-run: $(FUZZERS)
	@tests/fuzz.sh $(SECONDS) $(FUZZERS)

valgrind-vault: $(filter $(BUILD)/tests/test_vault%,$(TESTS)) ## the vault's tests under valgrind
	@for t in $(filter $(BUILD)/tests/test_vault%,$(TESTS)); do \
	    valgrind -q --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite $$t || exit 1; done

bench-personas: preft ## train on the persona sets in PERSONAS (ROWS: some) and score; hours, resumable
	@tests/bench/personas.sh '$(PERSONAS)' $(ROWS)

PEER_OPTIONS = --preft ./preft $(if $(MODEL),--model '$(MODEL)') $(if $(PEER),--peer '$(PEER)')

bench-peer: preft ## beside llama.cpp, built from the package index (PEER=DIR: ready tools); goals met or missed
	@./$(PROGRAM) model pull >/dev/null
	@python3 -B tests/bench/peer.py $(PEER_OPTIONS)

bench-readme: preft ## all figures of README's section on speed, measured and written anew
	@./$(PROGRAM) model pull >/dev/null
	@python3 -B tests/bench/readme.py $(PEER_OPTIONS)

bench: preft ## all benches on the default model; about fifteen minutes
	@./$(PROGRAM) model pull >/dev/null
	@for kind in kernels prefill decode adapters train; do \
	    echo "== $$kind"; ./$(PROGRAM) bench $$kind || exit 1; done

bench-train-peer: preft ## training beside transformers + peft (TORCH_ENV=DIR: a ready environment, else several GB)
	@./$(PROGRAM) model pull >/dev/null
	@python3 -B tests/bench/train.py $(PEER_OPTIONS)

bench-interface: $(BUILD)/tests/bench_interface ## key to screen, bytes and time for a token, eight people at once
	@$< $(if $(PREFT_TEST_MODEL),--model '$(PREFT_TEST_MODEL)')

man: preft ## write the generated man pages anew
	@./preft manual --write man

screens: preft ## pictures of the screens (man/screens/*.svg), with the default model
	@tests/pictures/make.sh ./preft man/screens

# Random keys, pastes, sizes and mouse events at the whole interface, under the address sanitizer.
EVENTS      ?= 100000
.PHONY: screens random-events
random-events: ## EVENTS (100000) random events at the interface; about ten minutes
	@$(MAKE) SAN=address build/san-address/tests/test_events
	@PREFT_TEST_EVENTS=$(EVENTS) PREFT_TEST_SEED=$(SEED) build/san-address/tests/test_events

lint: ## man pages, format of the sources, shell scripts
	@tests/lint.sh
