"""Two sets of documents as one: by weight, packed into rows of equal length, and with other weights half-way.

    hora run -np 2 python examples/65-mixture/train.py DATA

DATA has two folders of Parquet files, web and code, with a column tokens of lists of different lengths. In every 1,000
documents exactly as many are of each as the weights say, on however many ranks. Documents become rows of 64 tokens
without gaps; `tokens.document` says where one ends and the next begins, which attention and positions need to know.
What is learnt here is how often each token comes, which is enough to see that all ranks have learnt the same.
"""

import os
import sys

import numpy as np

import hora
import hora.dataset

data, length = sys.argv[1], 64

hora.init()
pack = hora.dataset.pack("tokens", length)


def packed(batch):
    """Rows of tokens, and how many documents are of code."""
    return {**pack(batch), "documents": len(batch["member"]), "code": int((batch["member"] == 1).sum())}


loader = hora.dataset.mix(
    {"web": (os.path.join(data, "web"), 0.7), "code": (os.path.join(data, "code"), 0.3)},
    columns=["tokens"], ragged=["tokens"], origin="member", rows=4000, global_batch=200, seed=3, transform=packed,
)  # fmt: skip
counts, half = np.zeros(256), {}
for batch in loader:
    present = batch["tokens.document"] > 0  # the rest of the last row is padding
    seen = np.bincount(batch["tokens"][present], minlength=256).astype(np.float64)
    counts += hora.allreduce(seen, op=hora.SUM)
    mine = np.array([batch["documents"], batch["code"]], np.float64)
    half[loader.position] = hora.allreduce(mine, op=hora.SUM)
    if loader.position == 2000:
        saved = loader.state_dict()  # a few numbers: what another number of ranks would go on from
        loader.set_weights({"web": 1, "code": 1})

first = sum(n for at, n in half.items() if at <= 2000)
second = sum(n for at, n in half.items() if at > 2000)
if hora.rank() == 0:
    print(f"code is {first[1]:.0f} of the first {first[0]:.0f} documents, {second[1]:.0f} of the next {second[0]:.0f}")
    print(f"{counts.sum():.0f} tokens, the most frequent is {counts.argmax()}; saved were {len(str(saved))} characters")
