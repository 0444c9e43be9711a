"""Compile the trained network's whole sequence, so that another process finds it in the cache.

python -m papers.nngraph_60_char_rnn.sequence TARGET TIMES BATCH     null, as JSON
"""

from __future__ import annotations

import json
import sys

import polyfuse as pf
from papers.nngraph_60_char_rnn.model import Network
from papers.places import on_one_core, place

if __name__ == "__main__":
    target, times, batch = sys.argv[1:]
    pf.compile(Network.trained().sequence(int(times), int(batch)), **on_one_core(place(target)).options)
    print(json.dumps(None))
