"""A small GPT that learns to write, letter by letter, with DistributedDataParallel on hora.

    hora run -np 2 python examples/23-chargpt/train.py
    torchrun --nproc-per-node 2 examples/23-chargpt/train.py --steps 400

Two blocks of attention read a nursery rhyme in windows of 32 letters; every rank reads windows of its own, DDP
averages the gradients, and `hora.torch.accelerate` lets them be averaged where they lie. Rank 0 prints the loss as it
falls and, at the end, a few words of the model's own.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import hora.torch

TEXT = """this is the house that jack built. this is the malt that lay in the house that jack built. this is the rat
that ate the malt that lay in the house that jack built. this is the cat that killed the rat that ate the malt that
lay in the house that jack built. this is the dog that worried the cat that killed the rat that ate the malt that lay
in the house that jack built. """.replace("\n", " ")
LETTERS = sorted(set(TEXT))
WINDOW, WIDTH, HEADS, BLOCKS = 32, 64, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.look, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, HEADS, -1).transpose(1, 2) for p in self.look(self.before(x)).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.think(self.between(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.end, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))

    def forward(self, ids):
        return self.head(self.end(self.blocks(self.letter(ids) + self.place(torch.arange(ids.shape[1])))))


@torch.no_grad()
def write(model, start, letters):
    ids = [LETTERS.index(c) for c in start]
    for _ in range(letters):
        ids.append(int(model(torch.tensor([ids[-WINDOW:]]))[0, -1].argmax()))
    return "".join(LETTERS[i] for i in ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args().steps
    dist.init_process_group("hora")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(GPT(), gradient_as_bucket_view=True)
    hora.torch.accelerate(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    text = torch.tensor([LETTERS.index(c) for c in TEXT])
    g = torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        at = torch.randint(0, len(text) - WINDOW - 1, (16, 1), generator=g) + torch.arange(WINDOW)
        loss = cross_entropy(model(text[at]).flatten(0, 1), text[at + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 50 == 0:
            dist.all_reduce(mean := loss.detach().clone(), dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {mean:.3f}", flush=True)
    if rank == 0:
        print("it writes:", write(model.module, "this is the ", 60))
    dist.destroy_process_group()


main()
