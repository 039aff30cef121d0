# What .ci/run, .ci/tests and .ci/soak share. It is sourced in the root of the repository.
root=$PWD

# No test is skipped here for want of Node, PostgreSQL, Redis or the recordings of real providers: it fails.
export TURNPIKE_TEST_NO_SKIP=1
export TURNPIKE_TEST_POSTGRES_URL=${TURNPIKE_TEST_POSTGRES_URL:-postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable}
export TURNPIKE_TEST_REDIS_URL=${TURNPIKE_TEST_REDIS_URL:-redis://127.0.0.1:6379}
export TURNPIKE_RECORDINGS=${TURNPIKE_RECORDINGS:-$PWD/../shared/recordings}

# The seed chooses the samples of what is too much for every run.
export TURNPIKE_SEED=${TURNPIKE_SEED:-$(git rev-parse --short=12 HEAD)}
printf 'seed: TURNPIKE_SEED=%s\n' "$TURNPIKE_SEED"

# Without cgo and without paths in the packages, all steps, releases and clones share what the compiler has made. Only
# the race detector needs cgo.
export CGO_ENABLED=0
export GOFLAGS="-trimpath -buildvcs=false"

# The race detector does not watch SQLite, which is C translated to Go, the compiler of WebAssembly, and what computes in
# one goroutine: the parsers of YAML and of Go, and the digests of keys (200,000 rounds each). These took most of the
# time. None of them may use sync.Map or other generic types of package sync: the linker could take their unwatched copy
# for all packages, and the race detector would report false races.
race=(-race)
for unwatched in modernc.org/{sqlite/lib,libc,libquickjs,memory} github.com/tetratelabs/wazero/internal/engine/wazevo/{backend/...,frontend,ssa} github.com/goccy/go-yaml/... go/... crypto/pbkdf2 crypto/internal/fips140/{pbkdf2,hmac,sha256}; do
  race+=("-gcflags=$unwatched=-race=false")
done

# unraced are the packages that compute in one goroutine, and those of PDF files and of kills, whose work is that of child
# processes.
unraced='/(docs|internal/(archtest|config|crash|jsonscan|loop|money|pdf|policy|rates|schema|sim|spelling|window))$'

# clients installs the packages of the official clients and servers, and bubblewrap the sandbox of that name.
clients() (cd conformance && npm ci --no-audit --no-fund)
bubblewrap() { command -v bwrap || { apt-get update -q && apt-get install -qy bubblewrap; }; }

if [ -z "${scratch:-}" ]; then
  scratch=$(mktemp -d)
  trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
fi
export scratch

# cpu prints the CPU seconds of all programs that have ended. Bash's times has them in its second line.
cpu() {
  local file=$scratch/times.$BASHPID
  times > "$file" # in this shell: a subshell has its own
  tail -1 "$file" | tr 'ms' '  ' | awk '{ printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }'
}

# step NAME ends the step before and begins another. costs has a line of each that ended: name, CPU s, wall s.
now='' began=0 used=0
step() {
  local all
  cpu > "$scratch/cpu"
  all=$(cat "$scratch/cpu")
  if [ -n "$now" ]; then printf '%s\t%d\t%d\n' "$now" $((all - used)) $((SECONDS - began)) >> "$scratch/costs"; fi
  now=$1 began=$SECONDS used=$all
  printf '\n== %s  (%ds)\n' "$1" "$SECONDS"
}

# beside NAME COMMAND... begins a step that runs beside what follows: what waits leaves the processors to others. together
# prints what each of them says, one after the other, and fails if one has failed.
besides=()
beside() {
  local out=$scratch/beside.$BASHPID.${#besides[@]} name=$1
  shift
  (
    began=$SECONDS
    "$@"
    cpu > "$out.cpu"
    printf '%s\t%d\t%d\n' "$name" "$(cat "$out.cpu")" $((SECONDS - began)) > "$out.costs"
  ) > "$out" 2>&1 &
  besides+=("$!	$out	$name")
  printf 'beside it: %s\n' "$name"
}
together() {
  local one pid out name failed=''
  for one in "${besides[@]}"; do
    IFS=$'\t' read -r pid out name <<< "$one"
    printf '\n-- %s  (%ds)\n' "$name" "$SECONDS"
    tail -n +1 -f --pid "$pid" "$out"
    wait "$pid" || failed+=" $name;"
    if [ -n "$now" ] && [ -e "$out.costs" ]; then
      cat "$out.costs" >> "$scratch/costs"
      used=$((used + $(cut -f2 "$out.costs")))
    fi
  done
  besides=()
  if [ -n "$failed" ]; then
    printf 'failed:%s\n' "$failed"
    return 1
  fi
}

# costs prints the steps with what each one took, and names those that need a fifth and ten seconds of CPU more than in
# .ci/costs.tsv. What compiles depends on the compiler's cache and is not compared.
costs() {
  printf '%8s %8s  %s\n' 'CPU s' 'wall s' step
  awk -F '\t' -v wall="$SECONDS" '{ printf "%8d %8d  %s\n", $2, $3, $1; c += $2 } END { printf "%8d %8d  %s\n", c, wall, "all" }' "$scratch/costs"
  awk -F '\t' '
    NR == FNR { before[$1] = $2; commit = $4; next }
    $1 ~ /^compile/ || !($1 in before) { next }
    $2 > before[$1] * 1.2 && $2 > before[$1] + 10 {
      printf "%s took %d s of CPU, %d at %s: see .ci/costs.tsv\n", $1, $2, before[$1], commit
    }' .ci/costs.tsv "$scratch/costs"
  if [ -n "${TURNPIKE_COSTS:-}" ]; then sed "s/\$/\t$(git rev-parse --short=12 HEAD)/" "$scratch/costs" > "$TURNPIKE_COSTS"; fi
}

# A test that fails among a thousand others on a busy machine is run twice more, alone: this tells a defect from a rare
# one. A rare one is a defect too, and is listed at the end; it does not keep everybody else's work from landing. More
# than three failures, a data race, a panic and a failure of a whole package count at once.
rare=$scratch/rare
run_tests() { # run_tests FLAGS... -- PACKAGES...: go test
  local flags=()
  while [ "$1" != -- ]; do flags+=("$1") && shift; done
  shift
  local report=$scratch/rerun.$BASHPID
  [ -x "$scratch/gotestsum" ] || go build -C "$root/tools" -o "$scratch/gotestsum" gotest.tools/gotestsum
  "$scratch/gotestsum" --format standard-quiet --packages "$*" --rerun-fails=2 --rerun-fails-max-failures=3 \
    --rerun-fails-abort-on-data-race --rerun-fails-report "$report" -- -vet=off "${flags[@]}" # the step lint has vet
  if [ -e "$report" ]; then cat "$report" >> "$rare"; rm "$report"; fi
}

# programs builds each variant of the program once, for all tests that start it.
programs() {
  go build -o "$scratch/turnpike" ./cmd/turnpike
  go build -tags crashtest -o "$scratch/turnpike-crash" ./cmd/turnpike
  export TURNPIKE_TEST_PROGRAM=$scratch/turnpike TURNPIKE_CRASH_BINARY=$scratch/turnpike-crash
}
