// Tables by axes, in one list of numbers whose last axis runs fastest.

export const cellsOf = sizes => sizes.reduce((product, size) => product * size, 1);

/** For every cell of a table over `axes`, the place of the cell of a table over `own` that it lies in. */
export function places(axes, sizes, own, ownSizes, codes) {
  const strides = axes.map(axis => {
    const at = own.indexOf(axis);
    return at < 0 ? 0 : cellsOf(ownSizes.slice(at + 1));
  });
  const total = cellsOf(sizes), found = new Int32Array(total), index = new Int32Array(axes.length);
  for (let cell = 0; cell < total; cell++) {
    let place = 0;
    for (let k = 0; k < axes.length; k++) if (strides[k]) place += strides[k] * (codes ? codes[k][index[k]] : index[k]);
    found[cell] = place;
    for (let k = axes.length - 1; k >= 0; k--) {
      if (++index[k] < sizes[k]) break;
      index[k] = 0;
    }
  }
  return found;
}

/** The answers of a query from a table over its axes, whose cells along each are `codes`. */
export function weighted(table, query, codes) {
  let data = table, before = 1;
  let after = cellsOf(codes.map(each => each.length));
  query.forEach((axis, k) => {
    const size = codes[k].length, place = new Map(codes[k].map((code, at) => [code, at]));
    after /= size;
    const rows = axis.rows, found = new Float64Array(before * rows.length * after);
    for (let b = 0; b < before; b++) {
      rows.forEach((row, r) => {
        const to = (b * rows.length + r) * after;
        for (const [code, weight] of row) {
          const from = (b * size + place.get(code)) * after;
          for (let a = 0; a < after; a++) found[to + a] += weight * data[from + a];
        }
      });
    }
    data = found;
    before *= rows.length;
  });
  return data;
}

export const codesOf = axis => [...new Set(axis.rows.flatMap(row => row.map(([code]) => code)))].sort((a, b) => a - b);
