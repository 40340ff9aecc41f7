"""Ten thousand pings in each role, of mixed sizes, while one frame of a hundred is lost in each direction."""

from cells.rping import call, serve
from matrix import cell

# Pings of each size: 10 000 in all.
MIX = ((100, 4000), (1444, 3000), (4096, 2000), (16384, 800), (65535, 200))


def endure(lab, run):
    lab.degrade("limit 10000 loss 1%")
    for size, count in MIX:
        run(lab, count, size, 600)


@cell("endurance/we-listen/10000-pings-with-loss")
def listen(lab):
    endure(lab, serve)


@cell("endurance/we-connect/10000-pings-with-loss")
def connect(lab):
    endure(lab, call)
