# Sourced by the scripts beside it: finds a Python, makes a virtual environment and installs the project into it.

say() {
  if [ -t 2 ]; then printf '\033[1m==>\033[0m %s\n' "$*" >&2; else printf '==> %s\n' "$*" >&2; fi
}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# The first Python of the PATH that is new enough; PYTHON overrides. A shim that cannot run is passed over.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
    if "$candidate" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed, and none was found on the PATH (set PYTHON to name one)."
}

# install DIRECTORY REQUIREMENT…: an up-to-date virtual environment with these pip requirements; does nothing when it has them already.
install() {
  local directory="$1" wanted
  shift
  wanted="$(printf '%s\n' "$@"; cat pyproject.toml)"
  if [ -x "$directory/bin/python" ] && [ "$(cat "$directory/installed" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  if [ ! -x "$directory/bin/python" ]; then
    local python
    python="$(find_python)"
    say "making $directory with $("$python" --version)"
    "$python" -m venv "$directory" || fail "The module venv of $python does not work here; on Debian: apt-get install python3-venv"
  fi
  say "installing into $directory: $*"
  "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || return 1
  printf '%s' "$wanted" >"$directory/installed"
}
