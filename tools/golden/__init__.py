# SPDX-License-Identifier: MIT
"""The cases that tools/eval_golden.py writes: a module for each file, whose parts take the file and add cases to it."""
