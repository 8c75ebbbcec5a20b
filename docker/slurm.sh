#!/bin/bash
# A sweep inside one Slurm allocation: Ray on every node of it, the launch on the first.
#
#   sbatch --nodes=4 --cpus-per-task=32 --gpus-per-node=4 --time=12:00:00 docker/slurm.sh SPEC --store /shared/store
#
# The arguments are those of `polysweep launch`. When the job is requeued, which it asks for itself two minutes before
# its time limit, the same launch continues what is left. See docs/cluster.md.
#SBATCH --job-name=polysweep
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail
umask 077
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export POLYSWEEP_RUN=${POLYSWEEP_RUN-} # stands before each command, such as: apptainer exec --nv polysweep.sif
export SHARED=${SLURM_SUBMIT_DIR:?start this script with sbatch}/.polysweep-$SLURM_JOB_ID # ends with the launch
export RAY_AUTH_TOKEN_PATH=$SHARED/token
[[ -z ${SLURM_CPUS_PER_TASK-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # srun does not take it over itself

free_port() { $POLYSWEEP_RUN python -c 'import socket; print(socket.create_server(("", 0)).getsockname()[1])'; }

# Ray on one node, with the CPUs and GPUs that Slurm has given to the job there, at the address that Slurm has for the
# node, and on ports that are free: other jobs may run on the same node. It is killed when the launch has ended. Slurm's
# SIGTERM is for the launch, which has 15 seconds for it.
node() {
    local address folder ray role
    address=$(scontrol -o show node "$SLURMD_NODENAME" | sed 's/.* NodeAddr=\([^ ]*\).*/\1/')
    address=$(getent ahostsv4 "$address" | awk '$1 !~ /^127[.]/ {print $1; exit}')
    folder=$(mktemp -d /tmp/ps-XXXXXX)
    trap 'rm -rf "$folder"' EXIT
    trap 'for _ in {1..15}; do [[ -d $SHARED ]] || break; sleep 1; done; kill -KILL -- "-$ray"; exit' TERM
    for _ in 1 2 3; do # on a busy machine Ray's own 30 seconds for its start run out
        if ((SLURM_NODEID == 0)); then
            role=(--head --port=0 --ray-client-server-port="$(free_port)" --include-dashboard=false)
        else
            until [[ -f $SHARED/address ]]; do sleep 1; done
            role=(--address="$(cat "$SHARED/address")")
        fi
        setsid $POLYSWEEP_RUN ray start --block "${role[@]}" --node-ip-address="$address" --temp-dir="$folder" \
            --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --object-store-memory=500000000 \
            --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port="$(free_port)" >"$folder/out" 2>&1 &
        ray=$!
        while ((SLURM_NODEID == 0)) && kill -0 "$ray" 2>/dev/null && [[ ! -f $SHARED/address ]]; do
            sleep 0.5
            [[ -s $folder/ray_current_cluster ]] || continue
            echo "$folder" >"$SHARED/folder"
            cp "$folder/ray_current_cluster" "$SHARED/address.new"
            mv "$SHARED/address.new" "$SHARED/address"
        done
        wait "$ray" || true
        kill -KILL -- "-$ray" 2>/dev/null || true
        echo "Ray on $SLURMD_NODENAME has ended: $(tail -n 1 "$folder/out")" >&2
        ((SLURM_NODEID)) || [[ ! -f $SHARED/address ]] || break
    done
}
export -f node free_port

launch='' stopping='' again=''
stop() {
    [[ -z $stopping && -n $launch ]] && kill -TERM "$launch" # once: a second signal would end it at once
    stopping=1
}
trap stop TERM
trap 'again=1; stop' USR1
end() {
    rm -rf "$SHARED"
    kill -TERM "$nodes" 2>/dev/null || true
    wait "$nodes" || true
}
rm -rf "$SHARED"
mkdir "$SHARED"
$POLYSWEEP_RUN python -c 'import secrets; print(secrets.token_hex(32))' >"$RAY_AUTH_TOKEN_PATH"
# In a session of its own, as the launch: Slurm's SIGTERM is for this script, which stops one after the other.
setsid srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -c node &
nodes=$!
trap end EXIT
until [[ -f $SHARED/address ]]; do
    kill -0 "$nodes" 2>/dev/null || { echo "Ray has not started on the first node, see above" >&2; exit 1; }
    sleep 0.5
done
RAY_ADDRESS=$(cat "$SHARED/address")
RAY_TMPDIR=$(cat "$SHARED/folder")
export RAY_ADDRESS RAY_TMPDIR
# In the background: a trap is run while bash waits, but not during a command in front.
$POLYSWEEP_RUN python - "$SLURM_JOB_NUM_NODES" <<'PYTHON' &
import sys, time, ray
ray.init("auto", log_to_driver=False, logging_level="ERROR")
deadline = time.monotonic() + 300
while (count := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[1]) and time.monotonic() < deadline:
    time.sleep(0.5)
total = ray.cluster_resources()
print(f"{count} of {sys.argv[1]} nodes: {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs", flush=True)
PYTHON
wait $! || true
if [[ -n $stopping ]]; then
    [[ -z $again ]] || scontrol requeue "$SLURM_JOB_ID"
    exit 143
fi
setsid $POLYSWEEP_RUN polysweep launch "$@" --address auto &
launch=$!
while kill -0 "$launch" 2>/dev/null; do wait "$launch" || true; done
code=0
wait "$launch" || code=$?
[[ -z $again ]] || ((code != 143)) || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
