"""An ordinary PyTorch script; nothing in it knows Switchyard.

    switchyard run --memory 1Gi -- python examples/torch/train.py
"""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(4096, 64)
y = (x[:, :8].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)

for epoch in range(10):
    for inputs, labels in data:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
