#!/usr/bin/env bash
# Mutation testing of tcp, sctp, iwarp and mem with cargo-mutants: breaks one function at a time and runs the tests of its crate.
# .cargo/mutants.toml says what is broken, and what is left out.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/mutants.sh --change BASE [--minutes N]
       scripts/mutants.sh all [CRATE]... [--shard K/N]

  --change BASE  only lines that differ from that commit, for N minutes at most (10)
  all            every function of the crates named, or of tcp, sctp, iwarp and mem: hours
  --shard K/N    only the part K, from 0 on, of N equal ones: each Nth mutant, so that a part is a sample of the whole

Works on a copy of the tree, at the lowest priority. Prints the mutants that no test noticed and the score, and leaves the
logs under the build folder in mutants/. What it compiles stays in mutants-build/ for the next run. The minutes include the
build of the unchanged tree: if they end before a mutant was tried, the run counts as skipped.

A mutant that survives is a missing test, or changes nothing that a test could notice. The first wants a test, the second a
line in exclude_re of .cargo/mutants.toml with its reason.

Exit codes: 0 every mutant that was tried was noticed, or there was no time for one; 1 some were not, or cargo-mutants
failed; 2 bad arguments; 3 cargo-mutants is not installed (cargo install --locked cargo-mutants).

examples:
  scripts/mutants.sh --change origin/main --minutes 5
  scripts/mutants.sh all ironwarp-mem
  scripts/mutants.sh all --shard 0/20
TXT
}

base=''
minutes=10
crates=()
options=()
all=0
while [ $# -gt 0 ]; do
    case $1 in
        --change) base=${2:?"--change needs a commit"}; shift ;;
        --minutes) minutes=${2:?"--minutes needs a number"}; shift ;;
        --shard) options+=(--shard "${2:?"--shard needs K/N"}"); shift ;;
        all) all=1 ;;
        ironwarp-*) crates+=("$1") ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
[[ $minutes =~ ^[1-9][0-9]{0,3}$ ]] || { echo "--minutes takes 1 to 9999, not $minutes" >&2; exit 2; }
[ $((all + (${#base} > 0))) -eq 1 ] || { usage >&2; exit 2; }
cargo mutants --version >/dev/null 2>&1 ||
    { echo "cargo-mutants is not installed: cargo install --locked cargo-mutants" >&2; exit 3; }

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
rm -rf "$folder"
mkdir -p "$folder"
for crate in "${crates[@]}"; do options+=(--package "$crate"); done
limit=()
if [ -n "$base" ]; then
    git diff "$base" -- stack/tcp/src stack/sctp/src stack/iwarp/src stack/mem/src >"$folder/change.diff" ||
        { echo "$base is not in this repository" >&2; exit 2; }
    if [ ! -s "$folder/change.diff" ]; then
        echo "nothing of tcp, sctp, iwarp and mem differs from $base"
        exit 0
    fi
    options+=(--in-diff "$folder/change.diff")
    limit=(timeout -k 30 "$((minutes * 60))")
fi

status=0
# The copy builds in a folder that stays, so that dependencies are compiled once and not in each run.
export CARGO_TARGET_DIR=$folder-build RUST_BACKTRACE=0
nice -n 19 "${limit[@]}" cargo mutants --no-shuffle --sharding round-robin --colors never --output "$folder" "${options[@]}" || status=$?
# 2: some were missed; 3: some ran into their time; 124: the time of the change is over. What has ended counts in all of them.
case $status in
    0 | 2 | 3) ;;
    124) echo "stopped after $minutes minutes" ;;
    *) echo "cargo mutants ended with $status" >&2; exit 1 ;;
esac

lines() {
    [ ! -e "$folder/mutants.out/$1.txt" ] && echo 0 || grep -c . "$folder/mutants.out/$1.txt"
}
caught=$(lines caught)
hung=$(lines timeout)
missed=$(lines missed)
tried=$((caught + hung + missed))
[ "$missed" -eq 0 ] || sed 's/^/not noticed: /' "$folder/mutants.out/missed.txt"
echo "$((caught + hung)) of $tried mutants were noticed, $hung of them by a test that did not end; $(lines unviable) did not compile"
if [ "$tried" -eq 0 ] && [ "$status" -eq 124 ]; then
    echo "SKIPPED: mutants: $minutes minutes ended before a mutant was tried"
    echo 'test result: ok. 0 passed; 0 failed;'
    exit 0
fi
[ "$missed" -eq 0 ]
