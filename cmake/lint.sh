#!/usr/bin/env bash
# Checks the project's machine-checkable rules. Called by ./dev lint. --fix formats in place;
# --cheap skips clang-tidy; --since=REV gives clang-tidy only the files changed after the commit REV.
set -euo pipefail
cd "$(dirname "$0")/.."
fix=0 cheap=0 since=
for arg in "$@"; do
  case $arg in
    --fix) fix=1 ;;
    --cheap) cheap=1 ;;
    --since=*) since=${arg#--since=} ;;
    *) echo "lint: unknown argument $arg" >&2; exit 2 ;;
  esac
done
failed=0
complain() { failed=1; printf 'lint: %s\n' "$*" >&2; }

mapfile -t sources < <(git ls-files -- '*.cc' '*.h' '*.cu')
if [ $fix = 1 ]; then
  clang-format -i "${sources[@]}"
elif ! clang-format --dry-run --Werror "${sources[@]}" 2>/tmp/rewire-lint.$$; then
  head -20 /tmp/rewire-lint.$$ >&2
  complain "not formatted; run ./dev lint --fix"
fi
rm -f /tmp/rewire-lint.$$

for f in "${sources[@]}"; do
  lines=$(wc -l <"$f")
  [ "$lines" -le 600 ] || complain "$f has $lines lines; 600 is the most"
  case $(basename "$f" | sed 's/\..*//;s/_test$//') in
    *manager | *helper | *helpers | util | utils | *_util | *_utils | *handler | *impl | misc | common)
      complain "$f: its name says nothing" ;;
  esac
done
git grep -nE '\b(TODO|FIXME|XXX|HACK)\b' -- '*.cc' '*.h' '*.py' '*.sh' ':!cmake/lint.sh' >&2 &&
  complain "unfinished marks"
git grep -nP '^(?!\s*//).*(absl::Mutex|absl::string_view [a-z])' -- '*.h' >&2 &&
  complain "absl::Mutex and absl::string_view do not belong in our headers (CONTRIBUTING.md)"
python3 cmake/rooms.py check >&2 || complain "rooms (cmake/rooms.txt)"
python3 cmake/type_names.py >&2 || complain "type names (cmake/type_names.py)"
python3 cmake/prose.py >&2 || complain "prose (CONTRIBUTING.md)"
if [ $cheap = 0 ]; then
  (cd reconfig/python && mypy --config-file mypy.ini -p rewire && pylint --rcfile pylintrc rewire) >&2 || complain "Python"
  cmake --preset clang >/dev/null
  cmake --build build/clang -- -j"$(nproc)" >/dev/null
  if [ -n "$since" ]; then
    git rev-parse -q --verify "$since^{commit}" >/dev/null || {
      echo "lint: --since=$since: no such commit (a shallow clone?)" >&2
      exit 2
    }
    files=$(git diff --name-only --diff-filter=d "$since" -- '*.cc')
  else
    files=$(git ls-files -- '*.cc')
  fi
  xargs -r cmake/tidy.py <<<"$files" >&2 || complain "clang-tidy"
fi
exit $failed
