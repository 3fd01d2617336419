// Lines of equal height through a grid: marching squares.

// grid: rows of numbers, null where there is none. Gives pieces [[x, y], [x, y]] in units of cells. A cell whose middle decides between
// two ways of joining four crossings is joined by its mean.
export function contours(grid, level) {
  const pieces = [];
  for (let j = 0; j + 1 < grid.length; j++) for (let i = 0; i + 1 < grid[j].length; i++) {
    const a = grid[j][i], b = grid[j][i + 1], c = grid[j + 1][i + 1], d = grid[j + 1][i];
    if (a === null || b === null || c === null || d === null) continue;
    const cross = (p, q) => (level - p) / (q - p), found = [];
    if ((a < level) !== (b < level)) found.push([i + cross(a, b), j]);
    if ((b < level) !== (c < level)) found.push([i + 1, j + cross(b, c)]);
    if ((c < level) !== (d < level)) found.push([i + 1 - cross(c, d), j + 1]);
    if ((d < level) !== (a < level)) found.push([i, j + 1 - cross(d, a)]);
    if (found.length === 2) pieces.push(found);
    else if (found.length === 4) {
      const high = (a + b + c + d) / 4 >= level, around = high === (a >= level) ? [[0, 1], [2, 3]] : [[3, 0], [1, 2]];
      for (const [p, q] of around) pieces.push([found[p], found[q]]);
    }
  }
  return pieces;
}
