#!/bin/sh
# SPDX-License-Identifier: MIT
# The man pages have no fault that mandoc knows.
. "$(dirname "$0")/tap.sh"

for page in man/*.[1-9]; do
    check "mandoc finds nothing in $page" mandoc -T lint -W warning "$page"
done
finish
