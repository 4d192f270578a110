#!/bin/sh
# Starts SGLang on the CPU with the model that `make backend` laid out, in the foreground.
#
#   deploy/sglang/launch.sh [any flag of sglang.launch_server; a flag given here wins over the one below]
#
#   BACKEND_ENV    the backend's environment  (default: .backend beside this repository's README)
#   MODEL_PATH     model folder               (default: $BACKEND_ENV/models/SmolLM2-135M-Instruct)
#   MODEL_NAME     name it is served under    (default: the folder's name)
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
backend_env=${BACKEND_ENV:-$root/.backend}
model_path=${MODEL_PATH:-$backend_env/models/SmolLM2-135M-Instruct}
model_name=${MODEL_NAME:-$(basename -- "$model_path")}

command -v lscpu >/dev/null || {
  echo "launch.sh: SGLang needs the program lscpu (Debian: apt install util-linux)" >&2
  exit 1
}
if ! [ -x "$backend_env/bin/python" ] || ! [ -f "$model_path/config.json" ]; then
  echo "launch.sh: $backend_env or $model_path is not there; run make backend" >&2
  exit 1
fi

# On few cores OpenMP threads that spin while they wait starve the ones that work: decoding falls to 1 token/s.
export OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
# Nothing is downloaded at run time.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1

# --max-total-tokens: without it the KV pool takes most of the machine's memory (15 GB of 24 were seen).
# --enable-cache-report: `usage.prompt_tokens_details.cached_tokens`, by which savings are counted.
exec "$backend_env/bin/python" -m sglang.launch_server \
  --model-path "$model_path" --served-model-name "$model_name" \
  --host 127.0.0.1 --port 30000 \
  --device cpu --dtype bfloat16 --attention-backend torch_native --sampling-backend pytorch \
  --max-total-tokens 32768 --max-running-requests 16 \
  --enable-cache-report --enable-metrics --weight-version w1 \
  --sleep-on-idle --skip-server-warmup \
  "$@"
