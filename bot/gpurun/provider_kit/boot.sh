# gpurun boot: POSIX sh, stays PID 1 of the container, reads GPURUN_*. Its own names start with an
# underscore: assigning a name that the image exports would change it for the job.
set -u
_id=${GPURUN_ATTEMPT:-?} _sha=${GPURUN_SHA256:-} _url=${GPURUN_URL:-}
_kid='' _sig='' _dog='' _py='' _once=''
say() { echo "::gpurun-boot 1 $_id $*"; }
has() { command -v "$1" >/dev/null 2>&1; }

stop() { # code word...: end what is left, tell, leave
  _rc=$1; shift
  [ -z "$_dog" ] || kill -KILL "$_dog" 2>/dev/null
  [ $$ -ne 1 ] || kill -KILL -1 2>/dev/null
  say "$@"
  exit "$_rc"
}
trap '_sig=1; [ -z "$_kid" ] || kill -TERM "$_kid" 2>/dev/null' TERM INT HUP

# 1. The watchdog, before anything else: the deadline, or GPURUN_TTL seconds whatever the clock says.
(
  trap '' TERM INT HUP
  _end=${GPURUN_DEADLINE:-0} _ttl=${GPURUN_TTL:-86400}
  while [ "$_ttl" -gt 0 ]; do
    _n=10 _now=$(date +%s 2>/dev/null) || _now=0
    if [ "$_end" -gt 0 ] && [ "$_now" -gt 0 ]; then
      [ "$_now" -lt "$_end" ] || break
      [ $((_end - _now)) -ge 10 ] || _n=$((_end - _now))
    fi
    [ "$_n" -le "$_ttl" ] || _n=$_ttl
    sleep "$_n" >/dev/null 2>&1
    _ttl=$((_ttl - _n))
  done
  say deadline
  kill -TERM $$
  sleep "${GPURUN_GRACE:-10}" >/dev/null 2>&1
  [ $$ -ne 1 ] || kill -KILL -1
  kill -KILL $$
) &
_dog=$!

# 2. Once: some clouds start a container again when it ends. /dev/shm is fresh at each start, so it is no place.
for _d in "${GPURUN_ROOT:-/gpurun}/tmp" /var/tmp /tmp "${HOME:-/}" /; do
  [ -d "$_d" ] && [ -w "$_d" ] || continue
  mkdir "$_d/.gpurun-$_id" 2>/dev/null && _once=$_d/.gpurun-$_id && break
  [ ! -d "$_d/.gpurun-$_id" ] || stop 79 error ran-before
done
[ -n "$_once" ] || say note no-writable-folder

# 3. A Python. Which one is new enough shows when it runs.
_all="${GPURUN_PYTHON:-} python3 python /opt/conda/bin/python /usr/local/bin/python3"
for _p in $_all; do
  has "$_p" && _py=$_p && break
done
[ -n "$_py" ] || stop 78 error no-python3

# 4. The agent: put there, or fetched. Always by its hash.
_file=${GPURUN_AGENT:-}
[ -n "$_file" ] && [ -r "$_file" ] || [ -z "$_url" ] || _file=$_once/agent.pyz
right() {
  if has sha256sum; then set -- $(sha256sum "$_file" 2>/dev/null)
  else set -- $("$_py" -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$_file" 2>/dev/null); fi
  [ "${1:-}" = "$_sha" ]
}
fetch() {
  { has curl && curl -fsSL -m 60 -o "$_file" "$_url"; } ||
    "$_py" -c 'import sys, urllib.request as u
open(sys.argv[2], "wb").write(u.urlopen(sys.argv[1], timeout=60).read())' "$_url" "$_file" 2>/dev/null ||
    { has wget && wget -q -O "$_file" "$_url"; } # -T makes a static busybox 1.35 crash
}
_n=0
until [ -r "$_file" ] && right; do
  [ -z "$_sig" ] || stop 143 exit 143
  if [ -z "$_url" ] || [ -z "$_once" ] || [ $_n -ge 5 ]; then
    [ -s "$_file" ] && stop 77 error agent-hash
    stop 77 error agent-fetch
  fi
  [ $_n -eq 0 ] || sleep $((_n * ${GPURUN_PAUSE:-2}))
  _n=$((_n + 1))
  fetch
done

# 5. The agent runs below this shell, so that somebody is left to tell of its death.
_rc=78
for _p in $_all; do
  has "$_p" || continue
  [ -z "$_sig" ] || stop 143 exit 143
  "$_p" -I -S -c 'import sys
if sys.version_info < (3, 8): sys.exit(78)
z = sys.argv[1]
sys.path[:0] = [z + "/" + sys.implementation.cache_tag, z]
from gpurun_agent.main import main
main()' "$_file" &
  _kid=$!
  [ -z "$_sig" ] || kill -TERM $_kid
  while :; do wait $_kid; _rc=$?; kill -0 $_kid 2>/dev/null || break; done
  _kid=''
  # 2: Python 2 knows no -I. The agent itself ends with neither.
  [ $_rc -eq 78 ] || [ $_rc -eq 2 ] || stop $_rc exit $_rc
done
stop 78 error old-python
