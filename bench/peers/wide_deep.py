"""One training step of Wide & Deep with large tables: FTRL on the wide table, lazy Adam on the deep one, Adam on the layers.

peers: mindspore (graph mode, CPU, EmbeddingLookup sparse), torch (sparse Embedding; Adagrad stands in for FTRL, which torch
has not).
default: 2,000,000 rows, batch 2048; 39 fields, dim 16, layers 1024-512-256-128-1"""
import numpy as np

from _peer import InTurn, measure, need, options, report, torch_of, zipf

asked = options({"mindspore": ["wide_deep"], "torch": ["wide_deep"]})
ROWS, BATCH = asked.rows or 2_000_000, asked.batch or 2048
FIELDS, DIM, SIZES = 39, 16, [1024, 512, 256, 128, 1]
rng = np.random.default_rng(3)
data = [(zipf(rng, ROWS, BATCH * FIELDS).reshape(BATCH, FIELDS).astype(np.int32),
         rng.random((BATCH, FIELDS)).astype(np.float32), rng.integers(0, 2, (BATCH, 1)).astype(np.float32)) for _ in range(8)]


def mindspore_step():
    ms = need("mindspore")
    from mindspore import context, nn, ops, Tensor
    context.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    if asked.threads:
        context.set_context(runtime_num_threads=asked.threads)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.wide = nn.EmbeddingLookup(ROWS, 1, target="CPU", sparse=True)
            self.deep = nn.EmbeddingLookup(ROWS, DIM, target="CPU", sparse=True)
            layers, n = [], FIELDS * DIM
            for i, m in enumerate(SIZES):
                layers.append(nn.Dense(n, m, activation="relu" if i < len(SIZES) - 1 else None))
                n = m
            self.mlp = nn.SequentialCell(layers)
            self.loss = nn.BCEWithLogitsLoss()

        def construct(self, ids, vals, y):
            v = vals.expand_dims(2)
            w = (self.wide(ids) * v).sum(axis=1)
            d = (self.deep(ids) * v).reshape((BATCH, FIELDS * DIM))
            return self.loss(self.mlp(d) + w, y)

    net = Net()
    wide = [p for p in net.trainable_params() if "wide" in p.name]
    deep = [p for p in net.trainable_params() if "deep" in p.name]
    rest = [p for p in net.trainable_params() if "mlp" in p.name]
    ftrl = nn.FTRL(wide, learning_rate=5e-2, l1=1e-8, l2=1e-8)
    ftrl.target = "CPU"
    lazy = nn.LazyAdam(deep, learning_rate=1e-3)
    lazy.target = "CPU"
    adam = nn.Adam(rest, learning_rate=1e-3)

    class Step(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net, self.f, self.l, self.a = net, ftrl, lazy, adam
            self.grad = ops.GradOperation(get_by_list=True)
            self.all = ms.ParameterTuple(wide + deep + rest)

        def construct(self, ids, vals, y):
            loss = self.net(ids, vals, y)
            g = self.grad(self.net, self.all)(ids, vals, y)
            loss = ops.depend(loss, self.f(g[:1]))
            loss = ops.depend(loss, self.l(g[1:2]))
            return ops.depend(loss, self.a(g[2:]))

    step, take = Step(), InTurn([tuple(Tensor(a) for a in d) for d in data])
    return lambda: step(*take()).asnumpy()


def torch_step():
    torch = torch_of(asked)
    nn = torch.nn
    torch.manual_seed(0)
    wide, deep = nn.Embedding(ROWS, 1, sparse=True), nn.Embedding(ROWS, DIM, sparse=True)
    layers, n = [], FIELDS * DIM
    for i, m in enumerate(SIZES):
        layers += [nn.Linear(n, m)] + ([nn.ReLU()] if i < len(SIZES) - 1 else [])
        n = m
    mlp = nn.Sequential(*layers)
    optimizers = [torch.optim.Adagrad(wide.parameters(), lr=0.05), torch.optim.SparseAdam(list(deep.parameters()), lr=1e-3),
                  torch.optim.AdamW(mlp.parameters(), lr=1e-3, fused=True)]
    loss_of = nn.BCEWithLogitsLoss()
    take = InTurn([(torch.from_numpy(a).long(), torch.from_numpy(b), torch.from_numpy(c)) for a, b, c in data])

    def step():
        ids, vals, y = take()
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        v = vals.unsqueeze(2)
        loss_of(mlp((deep(ids) * v).reshape(BATCH, -1)) + (wide(ids) * v).sum(1), y).backward()
        for optimizer in optimizers:
            optimizer.step()
    return step


times = measure(mindspore_step() if asked.peer == "mindspore" else torch_step(), runs=asked.runs or 9)
report(asked, times, samples=BATCH, rows=ROWS, batch=BATCH)
