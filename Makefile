# SPDX-License-Identifier: MIT
# The front door; Meson and Ninja do the work. CC, CFLAGS, BUILD, PREFIX and DESTDIR are honoured.
BUILD ?= build
PREFIX ?= /usr/local
# LTO by clang needs a linker of its own, so it is for gcc alone.
LTO := $(if $(shell $(CC) --version 2>/dev/null | grep -i clang),false,true)

.PHONY: build demo test bench kernel-test kernel-test-full format docs deb install clean

build:
	@scripts/install-deps.sh build
	@scripts/configure.sh $(BUILD) -Db_lto=$(LTO) -Db_ndebug=true
	@ninja -C $(BUILD)

demo:
	@scripts/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	@BUILD=$(BUILD) scripts/demo.sh $(BUILD)

bench: build
	$(BUILD)/mapfold bench

# ONLY="asan tidy" runs these steps alone; scripts/test --list names them.
test:
	@scripts/install-deps.sh test
	@scripts/test $(ONLY)

# The kernel in QEMU; a part of `make test`. The full run touches 8 GiB: it takes 9 GB of memory.
kernel-test:
	@scripts/install-deps.sh kernel
	@kernel/test.py

kernel-test-full:
	@scripts/install-deps.sh kernel
	@kernel/test.py --full

format:
	clang-format-14 -i $$(scripts/sources.sh '*.c' '*.h')

# The reference of the public functions, from the headers, in build-docs/.
docs:
	@scripts/api.py build-docs/api.html
	@echo "build-docs/api.html"

# Debian packages, in build-deb/.
deb:
	@scripts/install-deps.sh deb
	@scripts/deb.sh build-deb

install: build
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

clean:
	rm -rf $(BUILD) build-test build-kernel build-deb build-docs
