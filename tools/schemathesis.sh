#!/bin/sh
# Holds a server to the description that it gives of itself: starts one with a folder of its own and lets schemathesis call
# whatever /api/v1/openapi.json names. As root the server runs as nobody, since some of what is sent are jobs and commands.
#
#   sh tools/schemathesis.sh [EXAMPLES [SEED]]
#
# schemathesis comes from PATH, or from pip into a folder of its own. Left out are the call that ends the server, and the stream that
# ends with a job.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if ! command -v schemathesis >/dev/null 2>&1; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install -q 'schemathesis==4.32.5'
    PATH=$dir/venv/bin:$PATH
fi
mkdir "$dir/bin" "$dir/home"
(cd "$root" && CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/hora ./cmd/horad)
chmod 755 "$dir"
as=""
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=nobody --clear-groups"
    chown nobody "$dir/home"
fi
cd "$dir/home"
$as env -i HOME="$dir/home" PATH=/usr/bin:/bin "$dir/bin/hora" up --dir "$dir/home/server" --port 0 --slots 1 >"$dir/up" 2>"$dir/log" &
until url=$(sed -n 's/^hora: serving //p' "$dir/up") && [ -n "$url" ]; do
    kill -0 $! 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
    sleep 0.1
done
token=$(cat "$dir/home/server/token")
code=0
schemathesis --config-file "$root/tools/schemathesis.toml" run "$url/api/v1/openapi.json" -H "Authorization: Bearer $token" \
    --exclude-operation-id down --exclude-operation-id follow --request-timeout 20 --no-color \
    --max-examples "${1:-60}" --seed "${2:-7}" || code=$?
HORA_SERVER=$url HORA_TOKEN=$token HOME=$dir/home "$dir/bin/hora" down --now || code=1
wait
grep -i 'panic\|level=ERROR' "$dir/log" && code=1
exit $code
