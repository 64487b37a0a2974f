#!/usr/bin/env bash
# Type checkers do not follow the mapping of root folders to `tensorexpr.*` in an editable install, so the package is
# installed plainly into a scratch folder and checked there. Usage: scripts/typecheck.sh BIN (the folder of the venv's programs)
set -euo pipefail
bin="$1"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"$bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$scratch" .
rm -rf build
cd "$scratch"
test -f tensorexpr/py.typed && test -f tensorexpr_runtime/py.typed
MYPYPATH="$scratch" "$OLDPWD/$bin/mypy" --config-file "$OLDPWD/pyproject.toml" -p tensorexpr -p tensorexpr_runtime
# What users see: right calls pass under --strict, each wrong one is an error (and the remark that expects it would else be one).
MYPYPATH="$scratch" "$OLDPWD/$bin/mypy" --config-file "$OLDPWD/pyproject.toml" --strict --follow-imports=silent "$OLDPWD/tests/typing/user_code.py"
# The same for editors with Pyright inside, where that is installed: the package and what is right in user code have no error there either.
if "$OLDPWD/$bin/python" -c 'import pyright' 2>/dev/null; then
  cp "$OLDPWD/pyproject.toml" .
  "$OLDPWD/$bin/python" -m pyright -p . --pythonpath "$OLDPWD/$bin/python"
  mkdir user
  sed '/^def wrong/,$d' "$OLDPWD/tests/typing/user_code.py" > user/right.py
  echo '{"include": ["right.py"], "extraPaths": [".."], "reportUnknownLambdaType": false, "reportUnknownArgumentType": false, "typeCheckingMode": "strict"}' > user/pyrightconfig.json
  "$OLDPWD/$bin/python" -m pyright -p user --pythonpath "$OLDPWD/$bin/python"
fi
