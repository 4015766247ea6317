#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a static library of one object that shows what the shared one shows: linked from all of
# INPUT's objects, with hidden symbols made local, so that a function of ours and one of the same name
# in somebody's program do not meet. Usage: archive.sh OUTPUT INPUT AR OBJCOPY COMPILER [OPTION]...
set -eu
output=$1 input=$2 ar=$3 objcopy=$4
shift 4
object=${output%.a}.o
"$@" -r -nostdlib -o "$object" -Wl,--whole-archive "$input" -Wl,--no-whole-archive
"$objcopy" --localize-hidden "$object"
rm -f "$output"
"$ar" rcs "$output" "$object"
rm -f "$object"
