# Runs on the head as a managed run command, after the lines that set and unpack:
#   EXPERIMENT, its name, PAYLOAD, where its code is, MIN_NODES, TIMEOUT_S, NEEDS_GPU, and $incoming
#   with what else `volley-head submit` takes: experiment.yaml, stack.yaml, files.tar.
# Azure keeps the last 4 KB of the output, which `pulumi up` shows: the reason comes last.
deadline=$((SECONDS + TIMEOUT_S))

fail() {
  echo "volley: $1" >&2
  exit 1
}

# Azure continues a script whose `pulumi up` was killed; the next one must not run beside it.
end_earlier_start() {
  local lock=/run/volley-start.lock
  exec 9>> "$lock"
  if ! flock --nonblock 9; then
    local earlier
    earlier=$(cat "$lock")
    echo "an earlier start is still running: ending it"
    # First its children, which lose their parent when it ends.
    pkill --parent "$earlier" || true
    kill "$earlier" || true
    flock 9
  fi
  echo $$ > "$lock"
}

# The end of a unit's journal, short enough for the run command's output.
journal() {
  journalctl --unit "$1" --no-pager --output cat --lines 25 | cut -c1-160 | tail -c 2500 >&2
}

wait_for_cloud_init() {
  local left=$((deadline - SECONDS))
  timeout "$left" cloud-init status --wait > /dev/null || true
  local status
  # Its exit code is 1 after an error, and 2 after a warning.
  status=$({ cloud-init status || true; } | sed -n 's/^status: //p')
  [[ $status == "done" ]] && return
  grep -hE 'ERROR|WARNING|Unable|^E:' /var/log/cloud-init.log /var/log/cloud-init-output.log |
    cut -c1-200 | tail -n 15 >&2 || true
  fail "cloud-init on the head ended with '$status' (/var/log/cloud-init-output.log)"
}

# What has failed, for example because a mirror was away, is tried again; what runs stays.
retry_failed_units() {
  local unit
  for unit in apt-packages.service python-environment.service; do
    ! systemctl --quiet is-failed "$unit" || systemctl reset-failed "$unit"
  done
  systemctl start --no-block python-environment.service
}

wait_for_unit() {
  until systemctl --quiet is-active "$1"; do
    if systemctl --quiet is-failed "$1" || ((SECONDS > deadline)); then
      journal "$1"
      fail "$1 did not start (journalctl -u $1)"
    fi
    sleep 2
  done
}

# Before minutes are spent: an older image has an older driver than torch needs.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
check_gpu() {
  ((NEEDS_GPU)) || return 0
  local reason
  reason=$(runuser --user ray -- /opt/volley/venv/bin/python - << 'PYTHON'
import re
from pathlib import Path

import torch

OLDEST = {"12": 525, "13": 580}
cuda = torch.version.cuda or "none"
if not torch.cuda.is_available():
    version = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d{3}\.[\d.]+", version.read_text()) if version.exists() else None
    driver = f"NVIDIA's driver is {found[0]}" if found else "NVIDIA's driver is not loaded"
    needed = OLDEST.get(cuda.partition(".")[0], "a newer one")
    print(f"{driver}; torch {torch.__version__} is built for CUDA {cuda} and needs {needed} or newer")
PYTHON
  )
  [[ -z $reason ]] || fail "the head's GPU cannot be used: $reason. Of microsoft-dsvm:ubuntu-hpc:2204, \
versions from February 2026 on have that driver: pulumi config set image microsoft-dsvm:ubuntu-hpc:2204:latest"
}

nodes() {
  runuser --user ray -- env HOME=/var/lib/volley RAY_AUTH_MODE=token \
    RAY_AUTH_TOKEN_PATH=/etc/volley/ray-token /opt/volley/venv/bin/python - << 'PYTHON' || echo 0
import ray

ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
print(sum(node["Alive"] for node in ray.nodes()))
PYTHON
}

wait_for_nodes() {
  local found=0 before=-1
  while ((SECONDS < deadline)); do
    found=$(nodes 2> /dev/null | tail -n 1)
    ((found == before)) || { echo "$found nodes in the cluster"; before=$found; }
    ((found >= MIN_NODES)) && return
    sleep 3
  done
  ((found > 0)) || journal ray-head
  missing_workers >&2
  fail "$found of $MIN_NODES nodes joined Ray within $TIMEOUT_S s; docs/azure.md says how to read a worker's journal"
}

# What Ray's autoscaler says of workers that it has asked for and Azure has not made.
missing_workers() {
  python3 - << 'PYTHON'
import json
from pathlib import Path

file = Path("/var/lib/volley/cluster-workers.json")
known = json.loads(file.read_text()) if file.exists() else {}
if known.get("missing"):
    print(f"{known['missing']} of {known['wanted']} workers are missing: {known['why'] or 'on their way'}")
if known.get("problem"):
    print(f"workers: {known['problem']}")
PYTHON
}

volley_head() {
  /usr/local/lib/volley/volley-head "$@" 9>&- # It may outlive this script, and must not hold its lock.
}

# A key of a JSON object on stdin.
field() {
  python3 -c 'import json, sys
found = json.load(sys.stdin).get(sys.argv[1]) or ""
print(", ".join(found) if isinstance(found, list) else found)' "$1"
}

# The end of what the experiment has said, short enough for the run command's output.
output() {
  volley_head logs "$EXPERIMENT" --lines 25 | cut -c1-160 | tail -c 2500 >&2
}

# The same experiment and payload that train already continue as they are.
submit() {
  local answer code='import bz2, sys
sys.stdout.buffer.write(bz2.decompress(sys.stdin.buffer.read()))'
  # Run commands have brought its parts.
  cat "$PAYLOAD".* | python3 -c "$code" > "$incoming/payload.tar" || true
  [[ $(sha256sum < "$incoming/payload.tar") == "${PAYLOAD##*/}"* ]] ||
    fail "the payload on the head is incomplete: $(ls "${PAYLOAD%/*}")"
  answer=$(tar --create --directory "$incoming" . | volley_head submit "$EXPERIMENT" --replace) || {
    echo "payload: $(field error <<< "$answer")" >&2
    fail "the training did not start (journalctl -u experiments)"
  }
}

wait_for_training() {
  local answer state reason
  answer=$(volley_head wait "$EXPERIMENT" --timeout $((deadline - SECONDS)))
  state=$(field state <<< "$answer")
  reason=$(field reason <<< "$answer")
  output
  case $state in
    TRAINING | FINISHED)
      echo "$EXPERIMENT: $state"
      missing_workers
      ;;
    FAILED | STOPPED | STARTING)
      [[ $state == STARTING && -z $reason ]] && fail "no learner update within $TIMEOUT_S s"
      echo "$EXPERIMENT: $reason" >&2
      fail "the training did not start (journalctl -u experiments)"
      ;;
    QUEUED)
      [[ -n $(field before <<< "$answer") ]] || fail "no learner update within $TIMEOUT_S s: $reason"
      echo "$EXPERIMENT is queued, position $(field position <<< "$answer"), \
behind $(field before <<< "$answer"); it starts when there is room"
      ;;
  esac
}

# The training would continue without its results being saved, and without an error.
check_results() {
  [[ -e /etc/volley/mlflow-elsewhere ]] || wait_for_unit mlflow.service
  systemctl start sync-results.service || {
    journal sync-results
    fail "the results cannot be saved (journalctl -u sync-results)"
  }
}

end_earlier_start
wait_for_cloud_init
retry_failed_units
wait_for_unit apt-packages.service
wait_for_unit python-environment.service
check_gpu
wait_for_unit ray-head.service
wait_for_nodes
wait_for_unit experiments.service
submit
wait_for_training
check_results
