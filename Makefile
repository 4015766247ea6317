# SPDX-License-Identifier: MIT
# The front door; Meson and Ninja do the work.
BUILD ?= build

.PHONY: build
build: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) -Db_lto=true
