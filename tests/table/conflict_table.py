"""Which operations go together, as the other library decides.

Rows are the operations being committed, columns what was committed since they were made, in the
order of the rows and then :data:`THEIRS_ONLY`. ``.`` goes together, ``R`` may be tried again,
``X`` may not. The operations themselves are in ``native.py`` and ``contenders.py``; a number
names the fragment that is changed, a letter the column.
"""

from __future__ import annotations

_CELLS = """
append         ....X......R.R.X...................XXX
delete 0       .R.RX...R.RR...XR.RR........RR.....XXX
delete 1       ..R.X....RRR...X.R..R.........R....XXX
remove 0       .R.RX...R.RR...XR.RR........RR.....XXX
overwrite      ....R..............................XXX
index a        ....XRR.R......X...................XXX
index a again  ....XRR..R.....X...................XXX
index b        ....X..RRR.....X............R.R....XXX
rewrite 0      .R.RXR.RR.RR...XR.RR........RR.....XXX
rewrite 1      ..R.X.RR.RRR...X.R..R.........R....XXX
merge          RRRRX...RRRRXXXXRRRRR...RRRRRRR....XXX
merge tight    RRRRX...RRRRXXXXRRRRR...RRRRRRR....XXX
project        ....X.....RRRRRX...................XXX
project tight  R...X.....RRRRRXRRRRR.......RRR....XXX
project ac     ....X.....RRRRRX...................XXX
restore        ........................XXXX.......XXX
move 0         .R.RX...R.RR.R.XR.RR........RR.....XXX
move 1         ..R.X....RRR.R.X.R..R.........R....XXX
columns 0 b    .R.RX...R.RR.RRXR.RR........RR.....XXX
columns 0 c    .R.RX...R.RRRR.XR.RR........RR.....XXX
columns 1 b    ..R.X....RRR.RRX.R..R.........R....XXX
config x       .....................X.............XXX
config y       ......................X............XXX
table x        .......................X...........XXX
schema x       ....X.....RR...X........XX.........XXX
schema y       ....X.....RR...X........XX.........XXX
field a        ....X.....RR...X..........X........XXX
field b        ....X.....RR...X...........X.......XXX
replace 0 b    ...XX..RR.RR.RXXR.R.........R......XXX
replace 0 c    ...XX...R.RRXR.XR..R.........R.....XXX
replace 1 b    ....X..R.RRR.RXX.R..R.........R....XXX
reserve        ....X..........X...................XXX
base 7         ................................XX.XXX
base name      ................................XX.XXX
base other     ..................................XXXX
"""

THEIRS_ONLY = ("mem wal", "overlay", "unknown")

_MEANING = {".": "ok", "R": "retry", "X": "never"}
_ROWS = [line.rsplit(maxsplit=1) for line in _CELLS.strip().splitlines()]

NAMES = tuple(name.strip() for name, _ in _ROWS)
ALL_THEIRS = (*NAMES, *THEIRS_ONLY)
EXPECTED = {
    (ours.strip(), theirs): _MEANING[cell]
    for ours, cells in _ROWS
    for theirs, cell in zip(ALL_THEIRS, cells, strict=True)
}

STRICTER = {("index b", "project ac"): "retry"}
"""What glaive refuses, and the other library does not: it leaves an index without its column."""
