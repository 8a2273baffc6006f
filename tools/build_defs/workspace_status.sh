#!/usr/bin/env bash
# Prints what `bazel build` may stamp into a binary. A tree without git is fine.
revision=$(git rev-parse --short=12 HEAD 2>/dev/null) || revision=unknown
[ -z "$(git status --porcelain --untracked-files=no 2>/dev/null)" ] || revision+=-dirty
echo "STABLE_GIT_REVISION $revision"
