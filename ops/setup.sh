#!/usr/bin/env bash
# Everything that tests, demo and bench need. Idempotent; a second call takes a second.
#
# As root on Debian or Ubuntu: installs what is missing with apt and starts a Docker Engine when none answers.
# Elsewhere: makes .venv and says in one sentence what is missing. With CI=true a missing service is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
exec 9>.cache/setup.lock
flock 9

missing=()
root=false; [ "$(id -u)" -eq 0 ] && root=true
apt=false; command -v apt-get >/dev/null && apt=true

say() { printf 'setup: %s\n' "$*"; }
# Daemons are in sbin, which is not on everybody's PATH.
has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }

# --- 1. a Python that can make the environment ---------------------------------------------------------------------

python=''
find_python() { # sets `python` to the first Python >= 3.11, that of an existing .venv before all others
  local candidate
  if [ -n "$python" ]; then return 0; fi
  for candidate in .venv/bin/python python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3; do
    if [ $candidate = .venv/bin/python ] && ! [ -x .venv/bin/pip ]; then continue; fi
    if has "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$(command -v "$candidate")
      return 0
    fi
  done
  return 1
}
can_make_venv() { [ -x .venv/bin/pip ] || "$python" -c 'import venv, ensurepip' 2>/dev/null; }

# --- 2. system packages --------------------------------------------------------------------------------------------

engine_answers() {
  find_python || return 1
  "$python" - <<'PY' 2>/dev/null
import os, socket, sys
host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
if not host.startswith("unix://"):
    sys.exit(0)  # somebody chose another engine; the tests will say whether it answers
with socket.socket(socket.AF_UNIX) as probe:
    probe.settimeout(5)
    probe.connect(host.removeprefix("unix://"))
    probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
    sys.exit(b"200" not in probe.recv(64))
PY
}

has_postgres() { has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

wanted_packages() { # one a line
  has git || echo git
  if ! find_python; then printf 'python3\npython3-venv\n'; elif ! can_make_venv; then echo python3-venv; fi
  if ! engine_answers; then
    if ! has dockerd; then
      echo docker.io
      if apt-cache show docker-cli >/dev/null 2>&1; then echo docker-cli; fi # newer releases split it off
    fi
    has iptables || echo iptables
  fi
  has docker-registry || has registry || echo docker-registry
  has mmdebstrap || echo mmdebstrap
  has busybox || echo busybox-static
  has htpasswd || echo apache2-utils
  has_postgres || echo postgresql
  if ! [ -e /etc/ssl/certs/ca-certificates.crt ]; then echo ca-certificates; fi
}

install_packages() {
  local packages
  mapfile -t packages < <(wanted_packages)
  [ ${#packages[@]} -eq 0 ] && return 0
  if ! $apt || ! $root; then
    say "missing here: ${packages[*]}. As root on Debian or Ubuntu 'make setup' installs them; elsewhere use your package manager."
    return 0
  fi
  say "installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  keep_services_stopped
  apt-get update -qq || say "apt-get update failed; going on with the package lists that are there"
  mapfile -t packages < <(wanted_packages) # the lists may know more names now
  if ! apt-get install -y -qq --no-install-recommends "${packages[@]}" >.cache/apt.log 2>&1; then
    tail -n 20 .cache/apt.log >&2
    say "apt-get install failed (above, and .cache/apt.log)"
  fi
  allow_services
  # installed for their programs only; nothing of ours needs these at the next start of the machine
  if [ -d /run/systemd/system ]; then systemctl disable -q docker-registry 2>/dev/null || true; fi
}

policy=/usr/sbin/policy-rc.d
made_policy=false
keep_services_stopped() { # a packaged registry on all interfaces and a second database are not wanted
  [ -e $policy ] && return 0
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod 755 $policy
  made_policy=true
  trap allow_services EXIT
}
allow_services() {
  if $made_policy; then rm -f $policy; fi
  made_policy=false
}

# --- 3. .venv ------------------------------------------------------------------------------------------------------

# The lock is whole (ops/check_lock.py), so nothing is resolved; pip before 23.1 cannot resolve extras with hashes.
pip_install() { # python options…
  local target=$1
  shift
  .venv/bin/python -m pip --python "$target" install -qq --disable-pip-version-check --no-compile --no-deps --require-hashes "$@"
}

install_locked() { # python lock: by the uv of our own lock, several times as quick as pip; by pip where uv cannot
  local settings=()
  awk '/^[a-z]/ {on = /^uv==/} on' requirements.lock >.cache/uv-alone.lock
  if [ -x .venv/bin/uv ] || pip_install .venv/bin/python -r .cache/uv-alone.lock; then
    mapfile -t settings < <(.venv/bin/python -m pip config list 2>/dev/null | .venv/bin/python -m ops.uv_settings)
    env "${settings[@]}" .venv/bin/uv pip install -q --no-config --python "$1" --no-deps --require-hashes -r "$2" \
      2>.cache/uv.log && return 0
  fi
  pip_install "$1" -r "$2"
}

make_environment() {
  local wanted
  wanted=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
  [ -x .venv/bin/python ] && [ "$(cat .venv/gpurun-stamp 2>/dev/null)" = "$wanted" ] && return 0
  if ! find_python || ! can_make_venv; then
    say "no Python >= 3.11 with the venv module is here; install one (Debian, Ubuntu: python3-venv) and call again."
    exit 1
  fi
  say "making .venv from requirements.lock"
  if ! [ -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then "$python" -m venv --clear .venv; fi
  install_locked .venv/bin/python requirements.lock
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
  echo "$wanted" >.venv/gpurun-stamp
}

make_olah() { # a hub that is not ours, for its tests; it wants other versions than we do
  local wanted
  wanted=$(sha256sum <tests/services/olah.lock)
  [ -x .cache/olah/bin/olah-cli ] && [ "$(cat .cache/olah/gpurun-stamp 2>/dev/null)" = "$wanted" ] && return 0
  say "making .cache/olah from tests/services/olah.lock"
  .venv/bin/python -m venv --clear --without-pip .cache/olah &&
    install_locked .cache/olah/bin/python tests/services/olah.lock &&
    echo "$wanted" >.cache/olah/gpurun-stamp && return 0
  missing+=("olah")
  say "olah could not be installed, so its tests are skipped."
}

# --- 4. services -----------------------------------------------------------------------------------------------

start_engine() {
  engine_answers && return 0
  if ! has dockerd || ! $root; then
    missing+=("Docker Engine")
    say "no Docker Engine answers, so its tests are skipped; 'make setup' as root on Debian or Ubuntu installs and starts one, else see docs.docker.com/engine/install."
    return 0
  fi
  if [ -d /run/systemd/system ] && systemctl start docker 2>/dev/null && wait_for_engine; then return 0; fi
  say "starting a Docker Engine (log: .cache/dockerd.log, process id: .cache/dockerd.pid)"
  PATH="$PATH:/usr/sbin:/sbin" setsid dockerd >>.cache/dockerd.log 2>&1 </dev/null 9>&- &
  echo $! >.cache/dockerd.pid
  wait_for_engine && return 0
  missing+=("Docker Engine")
  say "the Docker Engine did not start:"
  grep -v 'level=info' .cache/dockerd.log | tail -n 5 >&2 || true
}
wait_for_engine() {
  for _ in $(seq 1 100); do
    engine_answers && return 0
    sleep 0.3
  done
  return 1
}

look_for_postgres() {
  has_postgres && return 0
  missing+=("PostgreSQL")
  say "PostgreSQL's server programs are missing, so its tests are skipped; Debian and Ubuntu have them in the package postgresql."
}

make_base_images() {
  [ "$(cat .cache/images/python-* 2>/dev/null)" ] && return 0
  engine_answers || return 0
  say "making the base image of tests and demo (half a minute, once)"
  .venv/bin/python -m ops.local_services >/dev/null || missing+=("the base image")
}

install_packages
make_environment
make_olah
start_engine
look_for_postgres
make_base_images
if [ ${#missing[@]} -gt 0 ] && [ "${CI:-}" = true ]; then
  say "CI=true and still missing: ${missing[*]}"
  exit 1
fi
