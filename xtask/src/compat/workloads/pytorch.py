# Trains a small network on numbers that it makes itself, with a fixed seed, and sorts a large tensor.
import hashlib

import torch

torch.manual_seed(7)
torch.set_num_threads(2)
data = torch.randn(60_000, 128)
wanted = (data[:, :10].sum(1) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for first in range(0, len(data), 2_000):
        loss = torch.nn.functional.cross_entropy(model(data[first : first + 2_000]), wanted[first : first + 2_000])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    right = (model(data).argmax(1) == wanted).sum().item()
print("right", right, right > 55_000)
ordered, _ = torch.sort(torch.arange(6_000_000) * 2_654_435_761 % 6_000_011)
print("sorted", hashlib.sha256(str(ordered[::997].tolist()).encode()).hexdigest())
