"""One optimizer step of AdamW on the host over one long tensor. "mixed", as an offloaded step on a 16-bit model needs it: f16
gradients are copied and unscaled, FP32 masters and moments updated, parameters copied out in f16. "fp32": the update alone.

peers: torch (fused AdamW), deepspeed (DeepSpeedCPUAdam). --rows: elements."""
from _peer import measure, need, options, report, torch_of

cases = ["optimizer_step.mixed", "optimizer_step.fp32"]
asked = options({"torch": cases, "deepspeed": cases})
torch = torch_of(asked)
n = asked.rows or 1 << 25
torch.manual_seed(0)
master = torch.randn(n)
grad16 = torch.rand(n).mul_(2).sub_(1).to(torch.float16)
grad32 = grad16.float()
out16 = torch.empty(n, dtype=torch.float16)
parameter = torch.nn.Parameter(master)
parameter.grad = grad32
if asked.peer == "deepspeed":
    need("deepspeed")
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    step = DeepSpeedCPUAdam([parameter], lr=1e-3, weight_decay=0.01, adamw_mode=True).step
else:
    step = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=True).step


def mixed():
    grad32.copy_(grad16).mul_(1.0 / 1024)
    step()
    out16.copy_(master)


report(asked, measure(mixed if asked.case == "optimizer_step.mixed" else step, runs=asked.runs or 15), elements=n)
