#!/bin/sh
# SPDX-License-Identifier: MIT
# The protocols hold in the models, and the models find each mistake: with SPIN.
exec scripts/model.sh
