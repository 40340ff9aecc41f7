#!/usr/bin/env bash
# scripts/mutants.sh with a cargo-mutants that only writes down results: its exit codes and what it prints.
set -uo pipefail
cd "$(dirname "$0")/../.."

machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
mkdir "$machine/bin"
checks=0
wrong=0

# The program, as cargo calls it: with --output FOLDER. The results are those of the variables.
cat >"$machine/bin/cargo-mutants" <<'TXT'
#!/usr/bin/env bash
[[ " $* " == *" --version "* ]] && exit 0
while [ "$1" != --output ]; do shift; done
mkdir -p "$2/mutants.out"
for kind in caught missed timeout unviable; do
    variable=$kind
    for ((n = 0; n < ${!variable:-0}; n++)); do echo "stack/tcp/src/lib.rs:$n: replace it" >>"$2/mutants.out/$kind.txt"; done
done
exit "${ends:-0}"
TXT
chmod +x "$machine/bin/cargo-mutants"

# expect STATUS WORDS [VARIABLE=VALUE]... -- ARGUMENT...
expect() {
    local want=$1 words=$2 settings=() said status=0
    shift 2
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    said=$(env PATH="$machine/bin:$PATH" CARGO_TARGET_DIR="$machine/target" "${settings[@]}" scripts/mutants.sh "$@" 2>&1) || status=$?
    checks=$((checks + 1))
    if [ "$status" -ne "$want" ] || [[ $said != *"$words"* ]]; then
        echo "FAILED: mutants.sh $*: status $status, said '$said'; expected $want and '$words'"
        wrong=$((wrong + 1))
    fi
}

expect 0 '7 of 7 mutants were noticed, 2 of them by a test that did not end; 1 did not compile' caught=5 timeout=2 unviable=1 ends=3 -- all
expect 1 'not noticed: stack/tcp/src/lib.rs:0: replace it' caught=5 missed=1 ends=2 -- all ironwarp-tcp --shard 0/20
expect 1 '5 of 6 mutants were noticed' caught=5 missed=1 ends=2 -- all
expect 1 'ended with 4' ends=4 -- all
# The minutes of a change end: before a mutant was tried, and after some were.
older=$(git rev-parse HEAD)
change() { PATH="$machine/git:$PATH" expect "$@" -- --change "$older" --minutes 7; }
mkdir "$machine/git"
printf '#!/usr/bin/env bash\n[ "$1" != diff ] && exec %s "$@"\necho "+a line"\n' "$(command -v git)" >"$machine/git/git"
chmod +x "$machine/git/git"
change 0 'SKIPPED: mutants: 7 minutes ended before a mutant was tried' ends=124
change 0 '2 of 2 mutants were noticed' caught=2 ends=124
change 1 '2 of 3 mutants were noticed' caught=2 missed=1 ends=124
# The tree as it is, committed or not.
same=$(git stash create)
expect 0 'nothing of tcp, sctp, iwarp and mem differs' -- --change "${same:-HEAD}"
expect 2 'nosuchcommit is not in this repository' -- --change nosuchcommit
expect 2 'usage' --
expect 2 'usage' -- all --change HEAD
expect 2 '--minutes takes' -- --change HEAD --minutes 0
expect 2 'unknown option: --fast' -- all --fast
# Without the program.
status=0
said=$(PATH=/usr/bin:/bin scripts/mutants.sh all 2>&1) || status=$?
checks=$((checks + 1))
[ "$status" -eq 3 ] && [[ $said == *'not installed'* ]] || { echo "FAILED: without cargo-mutants: $status, $said"; wrong=$((wrong + 1)); }

echo "test result: $([ "$wrong" -eq 0 ] && echo ok || echo FAILED). $((checks - wrong)) passed; $wrong failed;"
[ "$wrong" -eq 0 ]
