#!/bin/sh
# Starts SGLang's gateway in front of several SGLang servers, in the foreground: it sends what shares a prefix to the server
# that has it in its KV cache. `pip install smg`; not its predecessor sglang-router (0.3.2), which drops `cache_salt`, so that
# one caller could time another's prompts.
#
#   WORKERS="http://gpu-1:30000 http://gpu-2:30000" deploy/sglang/launch_router.sh [any flag of the gateway; one given wins]
#
#   HOST, PORT   where it listens    (default: 127.0.0.1, 30100)
#   SMG          the program         (default: smg)
#
# All workers must serve the same weights: the gateway lets one of them answer for all what they are. Its control plane (POST
# /workers, /flush_cache, …) is open to whoever reaches its port: let nobody but Antiphon reach it, and only /v1 Antiphon.
set -eu
: "${WORKERS:?launch_router.sh: set WORKERS to the URLs of the SGLang servers}"

# shellcheck disable=SC2086  # the URLs are several words
exec "${SMG:-smg}" launch \
  --worker-urls $WORKERS --policy cache_aware \
  --host "${HOST:-127.0.0.1}" --port "${PORT:-30100}" \
  --prometheus-host "${HOST:-127.0.0.1}" --prometheus-port "${PROMETHEUS_PORT:-29000}" \
  --request-timeout-secs 1800 --log-level warn \
  "$@"
