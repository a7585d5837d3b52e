"""A network on a folder of images: every rank decodes its part on threads of its own process.

    hora run -np 2 python examples/61-images/train.py FOLDER

What lies in each folder below FOLDER is a class; FOLDER may also be a tar file of WebDataset's with the endings png and
cls. JPEG and PNG images are decoded by torchvision where it is there, else by Pillow, up to three batches ahead of the
training. Rank 0 prints at the end who waited for whom.
"""

import sys

import torch
from torch import nn

import hora
import hora.dataset
import hora.torch

source = sys.argv[1]
image, label = ("png", "cls") if source.endswith(".tar") else ("image", "label")

hora.init()
loader = hora.dataset.open(
    source,
    columns={"image": image, "label": label},
    decode={"image": ("rgb", (16, 16))},
    global_batch=32,
    seed=1,
    last="drop",
)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
model(torch.zeros(1, 3, 16, 16))  # now it knows its sizes
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hora.torch.DistributedOptimizer(optimizer, model.named_parameters())
hora.torch.broadcast_parameters(model.state_dict(), root_rank=0)

for epoch in range(12):
    loader.set_epoch(epoch)
    right = seen = 0
    for batch in loader.torch():
        x = batch["image"].permute(0, 3, 1, 2).float() / 127.5 - 1
        optimizer.zero_grad()
        answer = model(x)
        nn.functional.cross_entropy(answer, batch["label"]).backward()
        optimizer.step()
        right += int((answer.argmax(1) == batch["label"]).sum())
        seen += len(x)
    counts = hora.allreduce(torch.tensor([right, seen], dtype=torch.float64), op=hora.SUM)
    if hora.rank() == 0:
        print(f"epoch {epoch + 1}: {100 * counts[0] / counts[1]:.0f} % of {counts[1]:.0f} images", flush=True)
if hora.rank() == 0:
    waits = loader.why()
    print(
        f"read {waits['fetch']:.2f} s, copied {waits['gather']:.2f} s; the training waited {waits['caller_waited']:.2f} s"
    )
