"""Losses of a case from the initial values and batches that `tandem bench --case NAME --losses N --export FILE` wrote.

    losses.py --case NAME --file FILE --steps N

Prints one JSON line with `case`, `peer` and `losses`. torch, FP32; what torch has no optimizer for (row-wise Adagrad, FTRL) is
written out here, on the touched rows, as FBGEMM and MindSpore have it. Step k takes batch (k + 1) mod 8."""
import argparse
import json
import struct

from _peer import cores, need

parser = argparse.ArgumentParser()
for option in ("--case", "--file"):
    parser.add_argument(option, required=True)
parser.add_argument("--steps", type=int, default=20)
asked = parser.parse_args()
torch = need("torch")
torch.set_num_threads(cores())
nn = torch.nn


def read(path):
    """name -> tensor, of a safetensors file."""
    types = {"F32": torch.float32, "I64": torch.int64, "I32": torch.int32}
    with open(path, "rb") as file:
        header_bytes, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    whole = torch.frombuffer(data, dtype=torch.uint8)
    return {name: whole[t["data_offsets"][0]:t["data_offsets"][1]].view(types[t["dtype"]]).view(t["shape"])
            for name, t in header.items()}


tensors = read(asked.file)
parameters = {name[len("param/"):]: value.clone().requires_grad_() for name, value in tensors.items()
              if name.startswith("param/")}
batches = [{name.split("/", 1)[1]: value for name, value in tensors.items() if name.startswith(f"batch.{i}/")}
           for i in range(8)]


class OnTouchedRows:
    """An optimizer that torch has not: `rule` changes the touched rows of a table and of its state."""

    def __init__(self, table, rule, **state):
        self.table, self.rule, self.state = table, rule, state

    def zero_grad(self, set_to_none=True):
        self.table.grad = None

    @torch.no_grad()
    def step(self):
        gradient = self.table.grad.coalesce()
        rows = gradient.indices()[0]
        touched = {name: value[rows] for name, value in self.state.items()}
        self.table[rows] = self.rule(self.table[rows], gradient.values(), touched)
        for name, value in touched.items():
            self.state[name][rows] = value


def rowwise_adagrad(table, lr=0.01, eps=1e-8):
    def rule(p, g, state):
        state["sum"] = state["sum"] + g.square().mean(dim=1, keepdim=True)
        return p - lr * g / (state["sum"].sqrt() + eps)
    return OnTouchedRows(table, rule, sum=torch.zeros(len(table), 1))


def ftrl(table, lr=5e-2, l1=1e-8, l2=1e-8, initial=0.1):
    def rule(p, g, state):
        before, after = state["n"], state["n"] + g.square()
        z = state["z"] + g - (after.sqrt() - before.sqrt()) / lr * p
        state["n"], state["z"] = after, z
        return torch.where(z.abs() <= l1, torch.zeros_like(z), -(z - z.sign() * l1) / (after.sqrt() / lr + 2 * l2))
    return OnTouchedRows(table, rule, n=torch.full_like(table, initial), z=torch.zeros_like(table))


def numbered(prefix):
    """prefix.0.weight, prefix.1.weight, ... as far as they go."""
    n = 0
    while f"{prefix}.{n}.weight" in parameters:
        n += 1
    return range(n)


def mlp(x, prefix, last_linear):
    last = numbered(prefix)[-1]
    for i in numbered(prefix):
        x = nn.functional.linear(x, parameters[f"{prefix}.{i}.weight"], parameters[f"{prefix}.{i}.bias"])
        if not (last_linear and i == last):
            x = torch.relu(x)
    return x


def bag(table, batch, name):
    ids = batch[name]
    offsets = batch.get(name + "/offsets")
    offsets = torch.arange(len(ids)) if offsets is None else offsets[:-1]
    return nn.functional.embedding_bag(ids, parameters[table], offsets, mode="sum", sparse=True)


def embedding(batch):
    sums = torch.cat([bag(f"table.{i}.weight", batch, f"ids_t{i}") for i in numbered("table")], dim=1)
    return (sums * batch["upstream"]).sum()


def dlrm(batch):
    x = mlp(batch["dense"], "bottom", False)
    z = torch.stack([x] + [bag(f"table.{i}.weight", batch, f"ids_t{i}") for i in numbered("table")], dim=1)
    i, j = torch.tril_indices(z.shape[1], z.shape[1], -1)
    logit = mlp(torch.cat([x, torch.bmm(z, z.transpose(1, 2))[:, i, j]], dim=1), "top", True)
    return nn.functional.binary_cross_entropy_with_logits(logit, batch["label"])


def wide_deep(batch):
    ids, values = batch["ids"], batch["values"].unsqueeze(2)
    deep = nn.functional.embedding(ids, parameters["deep.weight"], sparse=True) * values
    wide = nn.functional.embedding(ids, parameters["wide.weight"], sparse=True) * values
    return nn.functional.binary_cross_entropy_with_logits(mlp(deep.flatten(1), "mlp", True) + wide.sum(1), batch["label"])


def of_rule(rule):
    """Optimizers of all tables."""
    tables = list(parameters.values())
    if rule == "rowwise_adagrad":
        return [rowwise_adagrad(table, eps=1e-10) for table in tables]
    return [{"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "lazy_adam": torch.optim.SparseAdam}[rule](tables, lr=0.01)]


if asked.case == "wide_deep":
    loss_of = wide_deep
    layers = [value for name, value in parameters.items() if name.startswith("mlp.")]
    optimizers = [ftrl(parameters["wide.weight"]), torch.optim.SparseAdam([parameters["deep.weight"]], lr=1e-3),
                  torch.optim.Adam(layers, lr=1e-3)]
elif asked.case.startswith("dlrm."):
    loss_of = dlrm
    optimizers = [torch.optim.SGD(list(parameters.values()), lr=0.01)]
else:
    loss_of, optimizers = embedding, of_rule(asked.case.rsplit(".", 1)[1])

losses = []
for step in range(asked.steps):
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss = loss_of(batches[(step + 1) % 8])
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    losses.append(loss.item())
print(json.dumps({"case": asked.case, "peer": "torch", "losses": losses}))
