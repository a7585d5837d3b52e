"""One step of the demo's network in torch on one thread, to stand beside BenchmarkStep in package demo.

    GOMAXPROCS=1 go test -run '^$' -bench Step -count 5 ./demo
    OMP_NUM_THREADS=1 python bench/demo_step.py
"""

import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
adam = torch.optim.Adam(net.parameters(), lr=5e-3)
images, labels = torch.rand(64, 64), torch.randint(0, 10, (64,))


def step():
    adam.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    adam.step()


for _ in range(200):
    step()
for _ in range(5):
    began = time.perf_counter()
    for _ in range(500):
        step()
    print(f"torch {torch.__version__}: {(time.perf_counter() - began) / 500 * 1e6:.1f} us a step")
