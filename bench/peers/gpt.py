"""One training step of a small GPT: pre-norm, tied output layer, fused AdamW with decay on matrices and tables alone, all gradients
clipped to norm 1. "bf16": under autocast.

peers: torch. --batch: windows of 256 tokens, 4; --dim: the width, 384, in heads of 64."""
from _peer import measure, options, report, torch_of

LAYERS, HEAD, CONTEXT, SYMBOLS = 6, 64, 256, 256
asked = options({"torch": ["gpt.fp32", "gpt.bf16"]})
torch = torch_of(asked)
nn, F = torch.nn, torch.nn.functional
batch, width = asked.batch or 4, asked.dim or 384
torch.manual_seed(2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.ln1(x)).split(width, 2)
        query, key, value = (t.view(batch, CONTEXT, width // HEAD, HEAD).transpose(1, 2) for t in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
        x = x + self.proj(seen.reshape(batch, CONTEXT, width))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(SYMBOLS, width), nn.Embedding(CONTEXT, width)
        self.h, self.ln_f = nn.Sequential(*[Block() for _ in range(LAYERS)]), nn.LayerNorm(width)

    def forward(self, ids):
        return self.ln_f(self.h(self.tok(ids) + self.pos.weight)) @ self.tok.weight.t()


net = Gpt()
groups = [{"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1},
          {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-4, fused=True)
ids = torch.randint(0, SYMBOLS, (batch, CONTEXT + 1))


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=asked.case == "gpt.bf16"):
        scores = net(ids[:, :-1])
    F.cross_entropy(scores.reshape(-1, SYMBOLS).float(), ids[:, 1:].reshape(-1)).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


report(asked, measure(step, runs=asked.runs or 9), samples=batch, tokens=batch * CONTEXT)
