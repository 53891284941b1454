# Puts the rules of one network of jobs into the packet filter of the Docker Engine's machine. Idempotent.
# `fence.py` runs it in the network of the engine, with iptables of its machine: sh -c THIS fence BRIDGE RULES RULES6
set -eu
bridge=$1 chain=GPURUN-$1 rules=$2 rules6=$3

there() {
  while read -r interface _; do [ "${interface%%:*}" != "$1" ] || return 0; done </proc/net/dev
  return 1
}

if ! there "$bridge"; then
  echo "the bridge $bridge is not in the network where the packet filter is" >&2
  exit 3
fi

# what was left by networks that are gone
sweep() {
  "$1" -w 10 -S "$2" | while read -r verb _ flag at jump to _; do
    case "$verb $flag $jump $to" in
      "-A -i -j GPURUN-"*) there "$at" || "$1" -w 10 -D "$2" -i "$at" -j "$to" || : ;;
    esac
  done
}

sweep_chains() {
  "$1" -w 10 -S | while read -r verb old _; do
    case "$verb $old" in
      "-N GPURUN-"*) there "${old#GPURUN-}" || { "$1" -w 10 -F "$old" && "$1" -w 10 -X "$old"; } || : ;;
    esac
  done
}

# our jump stands before every rule of somebody else
on_top() {
  "$1" -w 10 -S "$2" | while read -r verb _ flag at jump to _; do
    case "$verb $flag $jump $to" in
      "-A -i -j $chain") if [ "$at" = "$bridge" ]; then echo yes; break; fi ;;
      "-A -i -j GPURUN-"*) ;;
      "-A "*) break ;;
    esac
  done
}

jump() {
  [ "$(on_top "$1" "$2")" = yes ] || "$1" -w 10 -I "$2" 1 -i "$bridge" -j "$chain"
}

fence() {
  printf '*filter\n:%s - [0:0]\n%s\nCOMMIT\n' "$chain" "$2" | "$1-restore" -w 10 --noflush
  if "$1" -w 10 -n -L DOCKER-USER >/dev/null 2>&1; then forward=DOCKER-USER; else forward=FORWARD; fi
  for hook in INPUT "$forward"; do
    sweep "$1" "$hook"
    jump "$1" "$hook"
  done
  sweep_chains "$1"
}

fence iptables "$rules"
[ ! -e /proc/net/if_inet6 ] || fence ip6tables "$rules6"
