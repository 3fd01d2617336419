"""One training step of DLRM (dot interaction, SGD), single process.

peers: torch (EmbeddingBag sparse + SGD), fbgemm (table-batched embedding with fused SGD; the dense part is torch's).
kaggle: 13 numbers, 26 tables (rows as published for the Criteo Kaggle set, capped at 2,000,000), dim 16, batch 2048,
        bottom 512-256-64-16, top 512-256-1
large:  8 tables x 1,000,000 rows, dim 64, 100 ids a lookup, batch 512, bottom 512-512-64, top 1024-1024-1024-1
With .bf16 it is ours that has its layers in bf16: here they stay in FP32."""
import numpy as np

from _peer import InTurn, measure, need, options, report, torch_of, zipf

cases = ["dlrm.kaggle", "dlrm.large", "dlrm.kaggle.bf16", "dlrm.large.bf16"]
asked = options({"torch": cases, "fbgemm": cases})
torch = torch_of(asked)
nn = torch.nn
if asked.case.startswith("dlrm.kaggle"):
    rows = [1460, 583, 2000000, 2000000, 305, 24, 12517, 633, 3, 93145, 5683, 2000000, 3194, 27, 14992, 2000000,
            10, 5652, 2173, 4, 2000000, 18, 15, 286181, 105, 142572]
    dim, batch, bag, dense = 16, asked.batch or 2048, 1, 13
    bottom, top = [512, 256, 64, 16], [512, 256, 1]
else:
    rows, dim, batch, bag, dense = [1000000] * 8, 64, asked.batch or 512, 100, 512
    bottom, top = [512, 64], [1024, 1024, 1024, 1]
rows = [min(n, asked.rows or n) for n in rows]
torch.manual_seed(727)
rng = np.random.default_rng(727)


def mlp(n, sizes, last_linear):
    layers = []
    for i, m in enumerate(sizes):
        layers.append(nn.Linear(n, m))
        if not (last_linear and i == len(sizes) - 1):
            layers.append(nn.ReLU())
        n = m
    return nn.Sequential(*layers)


features = len(rows) + 1
bottom_mlp = mlp(dense, bottom, False)
top_mlp = mlp(dim + features * (features - 1) // 2, top, True)
li, lj = torch.tril_indices(features, features, -1)
loss_of = nn.BCEWithLogitsLoss()
layers = list(bottom_mlp.parameters()) + list(top_mlp.parameters())
data = [(torch.rand(batch, dense), [torch.from_numpy(zipf(rng, n, batch * bag)) for n in rows],
         torch.randint(0, 2, (batch, 1)).float()) for _ in range(8)]


def train(x, vectors, y):
    z = torch.cat([x.unsqueeze(1), vectors], dim=1)
    products = torch.bmm(z, z.transpose(1, 2))[:, li, lj]
    loss_of(top_mlp(torch.cat([x, products], dim=1)), y).backward()


def torch_lookup():
    tables = nn.ModuleList([nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows])
    offsets = torch.arange(0, batch * bag, bag)
    take = InTurn(data)
    return (take, lambda ids: torch.stack([table(i, offsets) for table, i in zip(tables, ids)], dim=1),
            torch.optim.SGD(layers + list(tables.parameters()), lr=0.01))


def fbgemm_lookup():
    configs = need("fbgemm_gpu.split_embedding_configs")
    common = need("fbgemm_gpu.split_table_batched_embeddings_ops_common")
    training = need("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    tables = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(n, dim, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU) for n in rows],
        optimizer=configs.EmbOptimType.EXACT_SGD, learning_rate=0.01)
    tables.init_embedding_weights_uniform(-0.01, 0.01)
    offsets = torch.arange(0, len(rows) * batch * bag + 1, bag)
    take = InTurn([(x, torch.cat(ids), y) for x, ids, y in data])
    return take, lambda ids: tables(ids, offsets).view(batch, len(rows), dim), torch.optim.SGD(layers, lr=0.01)


take, lookup, optimizer = torch_lookup() if asked.peer == "torch" else fbgemm_lookup()


def step():
    x, ids, y = take()
    optimizer.zero_grad(set_to_none=True)
    vectors = lookup(ids)
    train(bottom_mlp(x), vectors, y)
    optimizer.step()


report(asked, measure(step, runs=asked.runs or 15), samples=batch, batch=batch)
