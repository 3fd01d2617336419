// Boxes of rows painted pixel by pixel: tens of thousands of them take a few milliseconds, as shapes they would take a hundred.

const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// Paints into rows of pixels of a canvas; `back` is the colour that what is half empty is blended with.
export function makePainter(back) {
  const ground = parts(back), known = new Map();
  let image = null, pixels = null, strip = null;

  // 0xAABBGGRR of a colour at a strength of 0 to 15 fifteenths.
  function ink(hex, strength) {
    let shades = known.get(hex);
    if (!shades) {
      const colour = parts(hex);
      shades = Array.from({ length: 16 }, (_, s) => colour.reduce((all, c, i) => all + (Math.round(ground[i] + ((c - ground[i]) * s) / 15) << (8 * i)), 0) - 0x1000000);
      known.set(hex, shades);
    }
    return shades[strength];
  }

  function begin(width, height) {
    if (!image || image.width !== width || image.height !== height) {
      image = new ImageData(width, height);
      pixels = new Uint32Array(image.data.buffer);
      strip = new Uint32Array(width);
    } else pixels.fill(0);
  }

  // `xOf` and `colourOf` of a box, from pixel line `top` to `bottom`; calls `wide(box, from, to)` for those of at least `room` pixels.
  function row(boxes, from, perNs, colourOf, top, bottom, room, wide) {
    const width = strip.length;
    strip.fill(0);
    for (const box of boxes) {
      const begin = (box[0] - from) * perNs, end = (box[1] - from) * perNs;
      if (begin >= width || end < 0) continue;
      const x = Math.max(0, Math.floor(begin)), to = Math.min(width, Math.max(Math.floor(begin) + 1, Math.floor(end)));
      const strength = box[3] > 1 ? 5 + Math.round(9 * Math.min(1, box[2] / Math.max(1, box[1] - box[0]))) : 15;
      const colour = ink(colourOf(box), strength);
      for (let i = x; i < to; i++) strip[i] = colour;
      if (to - x >= room) wide(box, x, to);
    }
    for (let line = top; line < bottom; line++) pixels.set(strip, line * width);
  }

  return { begin, row, end: (context, x, y) => context.putImageData(image, x, y) };
}
