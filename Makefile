# preft: build, install, test. `make help` lists the targets.
# Objects go under build/VARIANT; changed flags force a rebuild.

SHELL       := /bin/sh
.SUFFIXES:
.DEFAULT_GOAL := all

VERSION     := 0.1.0
PREFIX      ?= /usr/local
CC          ?= cc
SAN         ?=
V           ?= 0
Q           := $(if $(filter 1,$(V)),,@)

VARIANT     := $(if $(SAN),san-$(subst $(eval) ,-,$(subst $(comma),-,$(SAN))),release)
BUILD       := build/$(VARIANT)

# --- libraries ---------------------------------------------------------------------------------
# name:pkg-config module:Debian package
LIBRARIES   := ncursesw:libncurses-dev sqlite3:libsqlite3-dev libsodium:libsodium-dev \
               libutf8proc:libutf8proc-dev libpcre2-8:libpcre2-dev jansson:libjansson-dev
TEST_LIBRARIES := cmocka:libcmocka-dev
PKG_CONFIG  ?= pkg-config
modules      = $(foreach l,$(1),$(firstword $(subst :, ,$(l))))

NEEDS_LIBS  := $(filter-out help clean deps chat demo check quick fetch-model,$(or $(MAKECMDGOALS),all))
ifneq ($(NEEDS_LIBS),)
MISSING     := $(foreach l,$(LIBRARIES),$(if $(shell $(PKG_CONFIG) --exists $(firstword $(subst :, ,$(l))) && echo y),,$(lastword $(subst :, ,$(l)))))
ifneq ($(strip $(MISSING)),)
$(error Missing packages: $(strip $(MISSING)). Install them with `make deps` (as root or with sudo), or: apt-get install pkg-config $(strip $(MISSING)))
endif
LIB_CFLAGS  := $(shell $(PKG_CONFIG) --cflags $(call modules,$(LIBRARIES)))
LIB_LDLIBS  := $(shell $(PKG_CONFIG) --libs $(call modules,$(LIBRARIES)))
endif

# --- flags -------------------------------------------------------------------------------------
WARN        := -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
               -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef
OPT         ?= -O2 -g
CPPFLAGS    += -I. -Isrc -D_GNU_SOURCE -DPREFT_VERSION='"$(VERSION)"' -DPREFT_PREFIX='"$(PREFIX)"'
CFLAGS      += -std=c11 $(OPT) $(WARN) -fno-math-errno -ffp-contract=off -pthread \
               -fstack-protector-strong $(LIB_CFLAGS)
LDFLAGS     += -pthread -Wl,-z,relro,-z,now
LDLIBS      += $(LIB_LDLIBS) -lm
ifneq ($(SAN),)
CFLAGS      += -fsanitize=$(SAN) -fno-omit-frame-pointer
LDFLAGS     += -fsanitize=$(SAN)
ifeq ($(SAN),undefined)
CFLAGS      += -fno-sanitize-recover=all
endif
endif

# --- sources -----------------------------------------------------------------------------------
# One room per folder; kernels/cpu has one object per instruction set with its own flags.
LIB_SOURCES := $(sort $(wildcard src/base/*.c src/engine/*.c src/train/*.c src/serve/*.c \
                 kernels/*.c kernels/ref/*.c kernels/cpu/*.c models/*.c profiles/*.c ui/*.c \
                 src/commands/*.c))
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o)
MAIN_OBJECT := $(BUILD)/src/main.o
LIB         := $(BUILD)/libpreft.a

$(BUILD)/kernels/cpu/avx2%.o:   ISA_FLAGS := -mavx2 -mfma -mf16c -O3
$(BUILD)/kernels/cpu/avx512%.o: ISA_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c -O3

TEST_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
TESTS        := $(TEST_SOURCES:tests/unit/%.c=$(BUILD)/tests/%)
TEST_SUPPORT := $(sort $(wildcard tests/support/*.c))

.PHONY: all
all: preft

preft: $(MAIN_OBJECT) $(LIB)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(MAIN_OBJECT) $(LIB) $(LDLIBS)

$(LIB): $(LIB_OBJECTS)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJECTS)

# Rebuild everything when the flags change.
FLAGS_NOW   := $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS_NOW))' > $@
.PHONY: FORCE

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(ISA_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%: tests/unit/%.c $(LIB) $(TEST_SUPPORT) $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  TEST  $<"
	$(Q)$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(TEST_SUPPORT) $(LIB) $(LDLIBS) -lcmocka

-include $(LIB_OBJECTS:.o=.d) $(MAIN_OBJECT:.o=.d) $(addsuffix .d,$(TESTS))

.PHONY: tests
tests: preft $(TESTS)

.PHONY: clean
clean:
	rm -rf build preft
