"""Pooled (sum) embedding tables: forward, and backward with the optimizer fused or sparse.

peers: fbgemm (table-batched embedding), torch (EmbeddingBag sparse + SGD, Adagrad, SparseAdam).
default: 8 tables of 1,000,000 rows x 64, batch 2048, bags of 20, Zipf 1.15; one of 8 batches in turn."""
import numpy as np

from _peer import InTurn, measure, need, options, report, torch_of, zipf

asked = options({
    "fbgemm": ["embedding.forward", "embedding.step.rowwise_adagrad", "embedding.step.sgd"],
    "torch": ["embedding.forward", "embedding.step.sgd", "embedding.step.adagrad", "embedding.step.lazy_adam"]})
T, E, D = asked.tables or 8, asked.rows or 1_000_000, asked.dim or 64
B, L, alpha = asked.batch or 2048, asked.bag or 20, 1.15 if asked.alpha is None else asked.alpha
torch = torch_of(asked)
rng = np.random.default_rng(7)
batches = InTurn([torch.from_numpy(np.concatenate([zipf(rng, E, B * L, alpha) for _ in range(T)])) for _ in range(8)])
gradient = torch.randn(B, T * D)
shape = dict(tables=T, rows=E, dim=D, batch=B, bag=L, alpha=alpha)


def fbgemm_forward():
    configs = need("fbgemm_gpu.split_embedding_configs")
    common = need("fbgemm_gpu.split_table_batched_embeddings_ops_common")
    training = need("fbgemm_gpu.split_table_batched_embeddings_ops_training")
    kind = configs.EmbOptimType
    tables = training.SplitTableBatchedEmbeddingBagsCodegen(
        [(E, D, common.EmbeddingLocation.HOST, training.ComputeDevice.CPU)] * T,
        optimizer=kind.EXACT_SGD if asked.case.endswith("sgd") else kind.EXACT_ROWWISE_ADAGRAD, learning_rate=0.01, eps=1e-8)
    tables.init_embedding_weights_uniform(-0.05, 0.05)
    offsets = torch.arange(0, T * B * L + 1, L)
    return lambda: tables(batches(), offsets), None


def torch_forward():
    bags = torch.nn.ModuleList([torch.nn.EmbeddingBag(E, D, mode="sum", sparse=True) for _ in range(T)])
    offsets = torch.arange(0, B * L, L)
    rule = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "lazy_adam": torch.optim.SparseAdam}.get(
        asked.case.rsplit(".", 1)[1])

    def forward():
        ids = batches().view(T, B * L)
        return torch.cat([bag(ids[i], offsets) for i, bag in enumerate(bags)], dim=1)
    return forward, rule and rule(list(bags.parameters()), lr=0.01)


forward, optimizer = fbgemm_forward() if asked.peer == "fbgemm" else torch_forward()


def step():
    if optimizer:
        optimizer.zero_grad(set_to_none=True)
    forward().backward(gradient)
    if optimizer:
        optimizer.step()


if asked.case == "embedding.forward":
    with torch.no_grad():
        times = measure(forward, runs=asked.runs or 15)
else:
    times = measure(step, runs=asked.runs or (7 if optimizer else 15))
report(asked, times, **shape)
