// How far a model may be from the truth where it fills in what was not measured together: twin of `ModelErrors` in
// publication/intervals/drawn_errors.py, which has the mathematics, with the same draws.
import { Generator } from "./random.js";
import { places } from "./tables.js";

const UNLIKE = 0.5, STRONGEST = 2, LARGEST_INTERACTION = 3, SWEEPS = 10, CHUNK = 2_000_000;
export const LARGEST_TABLE = 20_000; // the library draws up to 100,000 cells; that takes a browser too long

const product = sizes => sizes.reduce((a, b) => a * b, 1);
const contains = (set, subset) => subset.every(each => set.includes(each));

function* combinations(names, size, from = 0) {
  if (size === 0) return void (yield []);
  for (let k = from; k <= names.length - size; k++) for (const rest of combinations(names, size - 1, k + 1)) yield [names[k], ...rest];
}

/** The sets that lie in no other, in the order of their names. */
function largest(sets, names) {
  const words = set => set.map(axis => names[axis]).sort();
  const unlike = [...new Map(sets.map(set => [[...set].sort((a, b) => a - b).join(), set])).values()];
  const kept = unlike.filter(set => !unlike.some(other => other.length > set.length && contains(other, set)));
  const before = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  return kept.sort((one, other) => {
    const [a, b] = [words(one), words(other)], k = a.findIndex((word, at) => word !== b[at]);
    return k < 0 || k >= b.length ? a.length - b.length : before(a[k], b[k]);
  });
}

export class ModelErrors {
  constructor({ scopes, strengths, most, signed }, names, sizes) {
    Object.assign(this, { scopes, most, signed, names, sizes });
    this.strengths = new Map(Object.entries(strengths).map(([order, list]) => [Number(order), list]));
  }

  /** The model's table of these attributes less so many that the truth might be; null where none can be drawn. */
  draws(axes, model, number) {
    const wide = Math.max(0, ...this.scopes.map(scope => scope.length));
    if (this.signed || wide < 2) return null;
    const missing = [...new Set([2, Math.min(axes.length, LARGEST_INTERACTION), axes.length])].filter(size => size > 1 && size <= axes.length)
      .flatMap(size => (size <= LARGEST_INTERACTION || size === axes.length ? [size] : [])).sort((a, b) => a - b)
      .flatMap(size => [...combinations(axes, size)]).filter(set => !this.scopes.some(scope => contains(scope, set)));
    const held = largest(this.scopes.map(scope => scope.filter(axis => axes.includes(axis))), this.names);
    const generator = new Generator(0, 2 ** 31), step = Math.max(1, Math.floor(CHUNK / model.length));
    const strengths = missing.map(set => this.drawn(set, axes, number, wide, generator)), found = [];
    for (let first = 0; first < number; first += step) {
      const count = Math.min(step, number - first);
      found.push(...this.tables(axes, model, held, missing.map((set, k) => [set, strengths[k].slice(first, first + count)]), count, generator));
    }
    return found;
  }

  /** For each draw the strength of the interaction of a missing set. */
  drawn(set, axes, number, wide, generator) {
    const order = Math.min(set.length, LARGEST_INTERACTION, wide), known = this.strengths.get(order);
    const own = known.filter(([each]) => contains(axes, each)).map(([, strength]) => strength);
    const times = make => Array.from({ length: number }, make);
    let found = times(() => known[generator.below(known.length)][1]);
    if (own.length) {
      const coins = times(() => generator.random()), others = times(() => own[generator.below(own.length)]);
      found = found.map((strength, k) => (coins[k] < 0.5 ? others[k] : strength));
    }
    const freedom = Math.max(1, product(set.map(axis => this.sizes[axis] - 1)));
    const weakened = Math.max(0.4, freedom ** -0.15) ** (set.length - order);
    return found.map(strength => strength * Math.exp(UNLIKE * (generator.normal() + 0.5)) * weakened).map(strength => Math.min(strength, STRONGEST));
  }

  tables(axes, model, held, factors, number, generator) {
    const shape = axes.map(axis => this.sizes[axis]), cells = model.length;
    const over = set => {
      const kept = axes.filter(axis => set.includes(axis)), sizes = kept.map(axis => this.sizes[axis]);
      return { at: places(axes, shape, kept, sizes), size: product(sizes) };
    };
    const rates = Array.from({ length: number }, () => model.map(count => count / this.most));
    for (const [set, strengths] of factors) {
      const { at, size } = over(set);
      rates.forEach((table, draw) => {
        const square = Math.max(strengths[draw], 1e-3) ** 2, factor = Float64Array.from({ length: size }, () => generator.gamma(1 / square));
        for (let cell = 0; cell < cells; cell++) table[cell] = table[cell] * factor[at[cell]] * square;
      });
    }
    const margins = held.map(over).map(({ at, size }) => ({ at, wanted: sums(model, at, size).map(sum => sum / this.most) }));
    return rates.map(table => {
      for (let cell = 0; cell < cells; cell++) table[cell] = generator.poisson(Math.min(table[cell], 1e15)) + (1e-3 * model[cell]) / this.most;
      return [table];
    }).map(([table]) => {
      for (let sweep = 0; sweep < (held.length > 1 ? SWEEPS : 1); sweep++) {
        for (const { at, wanted } of margins) {
          const found = sums(table, at, wanted.length);
          for (let cell = 0; cell < cells; cell++) table[cell] *= found[at[cell]] > 0 ? wanted[at[cell]] / found[at[cell]] : 0;
        }
      }
      return table.map((count, cell) => count * this.most - model[cell]);
    });
  }
}

function sums(table, at, size) {
  const found = new Float64Array(size);
  for (let cell = 0; cell < at.length; cell++) found[at[cell]] += table[cell];
  return found;
}
