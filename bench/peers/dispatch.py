"""What running one op costs beyond its arithmetic: a chain of 250 adds on a 1-element tensor, one product of 1,000,000
elements, and the same by a scalar that changes at every call.

peers: torch (eager), mindspore (graph mode, CPU)."""
import itertools

from _peer import measure, need, options, report, torch_of

N = 250
cases = ["dispatch.chain250", "dispatch.mul1m", "dispatch.mul1m_scalar"]
asked = options({"torch": cases, "mindspore": cases})
scalar = (0.5 + i * 1e-3 for i in itertools.count())  # another number at every call


def torch_step():
    torch = torch_of(asked)
    torch.set_grad_enabled(False)
    x, one, a = torch.zeros(1), torch.ones(1), torch.rand(1_000_000)

    def chain():
        y = x
        for _ in range(N):
            y = torch.add(y, one)
    return {"chain250": chain, "mul1m": lambda: torch.mul(a, a), "mul1m_scalar": lambda: torch.mul(a, next(scalar))}


def mindspore_step():
    ms = need("mindspore")
    import numpy as np
    from mindspore import context, nn, Tensor
    context.set_context(mode=ms.GRAPH_MODE, device_target="CPU")

    class Chain(nn.Cell):
        def construct(self, x, w):
            for _ in range(N):
                x = x + w
            return x

    class Mul(nn.Cell):
        def construct(self, a, b):
            return a * b
    net, mul = Chain(), Mul()
    x, w = Tensor(np.zeros(1, np.float32)), Tensor(np.ones(1, np.float32))
    a = Tensor(np.random.rand(1_000_000).astype(np.float32))
    return {"chain250": lambda: net(x, w).asnumpy(), "mul1m": lambda: mul(a, a).asnumpy(),
            "mul1m_scalar": lambda: mul(a, next(scalar)).asnumpy()}


name = asked.case.split(".")[1]
step = (torch_step() if asked.peer == "torch" else mindspore_step())[name]
usual = {"chain250": 15, "mul1m": 200, "mul1m_scalar": 200 if asked.peer == "torch" else 40}
times = measure(step, runs=asked.runs or usual[name], budget_s=30 if usual[name] == 40 else 20)
report(asked, times, ops=N if name == "chain250" else 0)
