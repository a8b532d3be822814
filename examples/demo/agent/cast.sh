# The agent's descendants: `bash cast.sh ROLE`. It uses only bash built-ins, so that no helper
# process appears. fd 3 is the witness: every process holds it, and runs until its other end is
# closed.
role=$1

# Replace this process by another role, under that role's name. `-c` clears the environment.
become() { exec -a "$1" bash "$BASH_SOURCE" "$1"; }
become_ghost() { exec -c -a ghost bash "$BASH_SOURCE" ghost; }

# Writes name, PID and start time to the witness, and runs until the witness closes.
stay() {
  local stat
  read -r stat <"/proc/$$/stat"
  set -- ${stat##*) }
  printf '%s\t%s\t%s\n' "$role" "$$" "${20}" >&3
  read -r -u 3
}

case $role in
  tool-shell)
    (become dev-server) &
    stay
    ;;
  browser)
    (become 'browser gpu') &
    (become 'browser tab 1') &
    (become 'browser tab 2') &
    stay
    ;;
  log-watcher)
    trap '' TERM
    stay
    ;;
  # These three start another process and exit first, so that it loses its parent.
  npx) (become mcp-server) & ;;
  daemonize) (become tunnel-daemon) & ;;
  daemonize-as-ghost) (become_ghost) & ;;
  *) stay ;;
esac
