"""One training step of LeNet-5 on images of 28 x 28, SGD with momentum; "x4": gradients of four batches added up for each update.

peers: torch. --batch: images of a batch, 32."""
from _peer import measure, options, report, torch_of

cases = ["lenet.batch32", "lenet.batch32x4"]
asked = options({"torch": cases})
torch = torch_of(asked)
nn = torch.nn
batch = asked.batch or 32
micro = 4 if asked.case.endswith("x4") else 1
torch.manual_seed(1)
net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                    nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loss_of = nn.CrossEntropyLoss()
images, labels = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))


def step():
    optimizer.zero_grad(set_to_none=True)
    for _ in range(micro):
        (loss_of(net(images), labels) / micro).backward()
    optimizer.step()


report(asked, measure(step, runs=asked.runs or (50 if micro > 1 else 100)), samples=batch * micro, batch=batch)
