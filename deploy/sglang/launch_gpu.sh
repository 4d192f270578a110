#!/bin/sh
# Starts SGLang on one or more NVIDIA GPUs the way Antiphon wants it, in the foreground.
#
#   MODEL_PATH=/models/Qwen3-8B deploy/sglang/launch_gpu.sh [any flag of sglang.launch_server; one given here wins]
#
#   MODEL_PATH       model folder, or a name on a model hub    (needed)
#   MODEL_NAME       name it is served under                   (default: the last part of MODEL_PATH)
#   WEIGHT_VERSION   change it whenever the weights change     (default: MODEL_NAME)
#   TP_SIZE          GPUs that share one copy of the model     (default: 1)
#   HOST, PORT       where it listens                          (default: 127.0.0.1, 30000)
#   PYTHON           Python of SGLang's environment            (default: python3)
set -eu
model_path=${MODEL_PATH:?launch_gpu.sh: set MODEL_PATH to the model folder}
model_name=${MODEL_NAME:-$(basename -- "$model_path")}
python=${PYTHON:-python3}

command -v nvidia-smi >/dev/null || {
  echo "launch_gpu.sh: no NVIDIA driver here (nvidia-smi is missing); deploy/sglang/launch.sh is for the CPU" >&2
  exit 1
}

# --enable-cache-report: `usage.prompt_tokens_details.cached_tokens`, by which savings are counted.
# --weight-version: Antiphon makes older answers unreachable when it changes.
# --schedule-policy lpm: what shares the longest prefix with the KV cache is prefilled first.
exec "$python" -m sglang.launch_server \
  --model-path "$model_path" --served-model-name "$model_name" \
  --host "${HOST:-127.0.0.1}" --port "${PORT:-30000}" \
  --tp-size "${TP_SIZE:-1}" --mem-fraction-static 0.85 --schedule-policy lpm \
  --enable-cache-report --enable-metrics --weight-version "${WEIGHT_VERSION:-$model_name}" \
  "$@"
