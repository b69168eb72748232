// Answers to any query from the numbers of a release, in the reader's browser. Twin of the Python library: elimination
// (models/elimination.py), what answers stand on (measurements/basis.py), intervals (publication/intervals.py).
//
// A query is a list of axes, one for each attribute that it names: {attribute, rows}, each row a list of [code, weight].
// All other attributes are summed over. Answers are flat, the last axis running fastest.

import { LARGEST_TABLE, ModelErrors } from "./model_errors.js";
import { cellsOf, codesOf, places, weighted } from "./tables.js";

export const NOT_MEASURED = 3, PUBLIC = 2, MODELLED = 1, MEASURED = 0;
export const BASES = ["measured", "modelled", "public", "not measured"];
const NEXT_TO_ZERO = 0.2, SAME_SUM = 1e-11, MOST_CELLS = 2 ** 21, MOST_PARTS = 6;

export class TooLarge extends Error {}

export function decode(text, kind) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return kind === "f4" ? Float64Array.from(new Float32Array(bytes.buffer)) : new Float64Array(bytes.buffer);
}

// ---------------------------------------------------------------------------------------------------------------------
// Models of log-potentials: variable elimination, with sums of exponentials taken about the largest, because potentials
// of adaptive models span thousands of nats.

/** How to sum a product of tables down to the kept axes: the same steps for every model of these scopes. */
export function planElimination(scopes, sizes, kept, codes) {
  const local = axis => (codes.has(axis) ? codes.get(axis).length : sizes[axis]);
  const factors = scopes.map((scope, source) => ({ axes: scope, source }));
  const loads = scopes.map(scope => {
    const picked = scope.map(axis => codes.get(axis) ?? Array.from({ length: sizes[axis] }, (_, code) => code));
    const whole = scope.every(axis => !codes.has(axis));
    return whole ? null : places(scope, scope.map(local), scope, scope.map(axis => sizes[axis]), picked);
  });
  const left = new Set(scopes.flat().filter(axis => !kept.includes(axis))), steps = [];
  let live = factors.map((each, place) => ({ axes: each.axes, place })), made = factors.length;
  const join = (chosen, last) => {
    const axes = [...new Set(chosen.flatMap(each => each.axes))].filter(axis => axis !== last);
    return last === undefined ? axes : [...axes, last];
  };
  while (left.size) {
    let best, least = Infinity;
    for (const axis of left) {
      const union = new Set(live.filter(each => each.axes.includes(axis)).flatMap(each => each.axes));
      const cells = [...union].reduce((product, each) => product * local(each), 1);
      if (cells < least) [best, least] = [axis, cells];
    }
    if (least > MOST_CELLS) throw new TooLarge("the attributes together are too many for this page");
    const chosen = live.filter(each => each.axes.includes(best)), axes = join(chosen, best), shape = axes.map(local);
    steps.push({
      size: shape[shape.length - 1],
      cells: cellsOf(shape.slice(0, -1)),
      parts: chosen.map(each => ({ place: each.place, at: places(axes, shape, each.axes, each.axes.map(local)) })),
      out: made,
    });
    live = live.filter(each => !chosen.includes(each));
    live.push({ axes: axes.slice(0, -1), place: made++ });
    left.delete(best);
  }
  const shape = kept.map(local);
  if (cellsOf(shape) > MOST_CELLS) throw new TooLarge("the table has too many cells for this page");
  const end = live.map(each => ({ place: each.place, at: places(kept, shape, each.axes, each.axes.map(local)) }));
  return { loads, steps, end, cells: cellsOf(shape), tables: made };
}

/** The logarithms of the sums that a plan leads to, for one model: a table of logarithms for each scope. */
export function eliminate(plan, logs) {
  const tables = new Array(plan.tables);
  plan.loads.forEach((load, k) => {
    tables[k] = load === null ? logs[k] : Float64Array.from(load, place => logs[k][place]);
  });
  for (const { size, cells, parts, out } of plan.steps) {
    const found = new Float64Array(cells), line = new Float64Array(size);
    for (let cell = 0; cell < cells; cell++) {
      let most = -Infinity;
      for (let k = 0; k < size; k++) {
        let sum = 0;
        for (const { place, at } of parts) sum += tables[place][at[cell * size + k]];
        line[k] = sum;
        if (sum > most) most = sum;
      }
      let total = 0;
      if (most > -Infinity) for (let k = 0; k < size; k++) total += Math.exp(line[k] - most);
      found[cell] = most > -Infinity ? most + Math.log(total) : -Infinity;
    }
    tables[out] = found;
  }
  const result = new Float64Array(plan.cells);
  for (let cell = 0; cell < plan.cells; cell++) for (const { place, at } of plan.end) result[cell] += tables[place][at[cell]];
  return result;
}

/** Models that share scopes: each is the number of records and one table of log-potentials for each scope. */
class Potentials {
  constructor(release) {
    this.sizes = release.sizes;
    this.scopes = [...release.scopes, ...release.allowed.map(([scope]) => scope)];
    this.allowed = release.allowed.map(([, marks]) => Float64Array.from(marks, mark => (mark === "1" ? 0 : -Infinity)));
    this.ends = release.scopes.map(scope => cellsOf(scope.map(axis => this.sizes[axis])));
    this.normalisers = new Map();
  }

  prepare(query) {
    const used = new Set(this.scopes.flat());
    const kept = query.filter(axis => used.has(axis.attribute)).map(axis => axis.attribute);
    const codes = new Map(query.map(axis => [axis.attribute, codesOf(axis)]));
    const plan = planElimination(this.scopes, this.sizes, kept, codes);
    const all = query.map(axis => codes.get(axis.attribute));
    const shape = all.map(each => each.length);
    if (cellsOf(shape) > MOST_CELLS) throw new TooLarge("the table has too many cells for this page");
    const names = query.map(axis => axis.attribute);
    const spread = places(names, shape, kept, kept.map(axis => codes.get(axis).length));
    const even = query.reduce((share, axis) => (used.has(axis.attribute) ? share : share / this.sizes[axis.attribute]), 1);
    this.whole ??= planElimination(this.scopes, this.sizes, [], new Map());
    return model => {
      const logs = this.logs(model);
      if (!this.normalisers.has(model)) this.normalisers.set(model, eliminate(this.whole, logs)[0]);
      const found = eliminate(plan, logs), log = this.normalisers.get(model);
      const table = Float64Array.from(spread, place => model[0] * even * Math.exp(found[place] - log));
      return weighted(table, query, all);
    };
  }

  logs(model) {
    let start = 1;
    return [...this.ends.map(size => model.subarray(start, (start += size))), ...this.allowed];
  }
}

/** Estimates that share tables of counts: answers are sums of the smallest that holds all attributes asked for. */
class Tables {
  constructor(sizes, scopes) {
    Object.assign(this, { sizes, scopes, cells: scopes.map(scope => cellsOf(scope.map(axis => sizes[axis]))) });
  }

  prepare(query) {
    const asked = query.map(axis => axis.attribute);
    let best = -1;
    this.scopes.forEach((scope, k) => {
      if (asked.every(axis => scope.includes(axis)) && (best < 0 || this.cells[k] < this.cells[best])) best = k;
    });
    if (best < 0) throw new TooLarge("no table in this page has all these attributes");
    const scope = this.scopes[best], first = this.cells.slice(0, best).reduce((sum, each) => sum + each, 0);
    const shape = scope.map(axis => this.sizes[axis]), to = asked.map(axis => this.sizes[axis]);
    const at = places(scope, shape, asked, to), every = to.map(size => Array.from({ length: size }, (_, code) => code));
    return model => {
      const table = new Float64Array(cellsOf(to));
      for (let cell = 0; cell < at.length; cell++) table[at[cell]] += model[first + cell];
      return weighted(table, query, every);
    };
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// What answers stand on.

function dense(row, size) {
  const found = new Float64Array(size);
  for (const [code, weight] of row) found[code] += weight;
  return found;
}

const isConstant = (row, same) => {
  let sum = 0, squares = 0;
  for (const each of row) [sum, squares] = [sum + each, squares + each * each];
  return Math.abs(row.length * squares - sum * sum) <= same * row.length * squares;
};

const hasMean = row => {
  let sum = 0, squares = 0;
  for (const each of row) [sum, squares] = [sum + each, squares + each * each];
  return !(Math.abs(sum) <= 1e-9 * Math.sqrt(row.length * squares));
};

/** Whether a row lies in a space: all rows, none that is known, or those that its orthonormal vectors span. */
function within(space, row, same, centred = false) {
  if (space === "all") return true;
  if (space === "unknown") return false;
  const mean = centred ? row.reduce((sum, each) => sum + each, 0) / row.length : 0;
  let whole = 0, left = 0;
  for (const each of row) [whole, left] = [whole + each * each, left + (each - mean) ** 2];
  for (const vector of space) left -= vector.reduce((sum, each, k) => sum + each * (row[k] - mean), 0) ** 2;
  return Math.abs(left) <= same * whole;
}

function* subsets(count) {
  for (let chosen = 0; chosen < 1 << count; chosen++) yield chosen;
}

export class Evidence {
  constructor(told, sizes, same) {
    Object.assign(this, { sizes, same, groups: told.groups, apart: told.apart });
    this.known = told.known.map(each => ({
      determines: each.determines,
      spaces: new Map(Object.entries(each.spaces).map(([axis, space]) => [+axis, unpack(space, sizes[axis])])),
    }));
    for (const known of this.known) {
      known.constants = new Set();
      for (const [axis, space] of known.spaces) {
        if (within(space, new Float64Array(sizes[axis]).fill(1), same)) known.constants.add(axis);
      }
    }
  }

  basis(query) {
    const axes = query.map(axis => this.axis(axis));
    const codes = new Int8Array(cellsOf(query.map(axis => axis.rows.length))), index = query.map(() => 0);
    for (let cell = 0; cell < codes.length; cell++) {
      const rows = axes.map((axis, k) => ({ ...axis.rows[index[k]], attribute: axis.attribute, number: index[k] }));
      codes[cell] = this.lookedAt(rows) ? (this.determined(rows) ? MEASURED : MODELLED) : NOT_MEASURED;
      for (let k = query.length - 1; k >= 0; k--) {
        if (++index[k] < query[k].rows.length) break;
        index[k] = 0;
      }
    }
    return codes;
  }

  axis({ attribute, rows }) {
    return {
      attribute,
      rows: rows.map(each => {
        const row = dense(each, this.sizes[attribute]);
        return { row, varies: !isConstant(row, this.same), mean: hasMean(row), told: this.told(attribute, row), memo: new Map() };
      }),
    };
  }

  /** Whether all values that measurements do not tell apart have one weight. */
  told(attribute, row) {
    const first = new Map();
    return this.apart[attribute].every((group, code) => {
      if (!first.has(group)) first.set(group, row[code]);
      return Math.abs(first.get(group) - row[code]) <= 1e-9 * (Math.abs(row[code]) + 1e-300);
    });
  }

  lookedAt(rows) {
    if (!this.known.length || rows.some(each => !each.told)) return false;
    const groups = new Set(rows.filter(each => each.varies).map(each => this.groups.findIndex(group => group.includes(each.attribute))));
    return groups.size <= 1 && !groups.has(-1);
  }

  holds(known, number, each, centred) {
    const key = 2 * number + centred;
    if (!each.memo.has(key)) each.memo.set(key, within(known.spaces.get(each.attribute), each.row, this.same, centred));
    return each.memo.get(key);
  }

  determined(rows) {
    return this.whole(rows) || (rows.length <= MOST_PARTS && this.inParts(rows));
  }

  /** Whether one measurement has the answer among its sums. */
  whole(rows) {
    const named = new Set(rows.map(each => each.attribute));
    return this.known.some((known, number) => known.determines
      && [...known.spaces.keys()].every(axis => named.has(axis) || known.constants.has(axis))
      && rows.every(each => (known.spaces.has(each.attribute) ? this.holds(known, number, each, false) : !each.varies)));
  }

  /** Whether each part, one for each set of attributes, is in a measurement. */
  inParts(rows) {
    for (const chosen of subsets(rows.length)) {
      const inside = rows.filter((_, k) => chosen & (1 << k)), outside = rows.filter((_, k) => !(chosen & (1 << k)));
      if (!inside.every(each => each.varies) || !outside.every(each => each.mean)) continue;
      const given = this.known.some((known, number) => known.determines
        && inside.every(each => known.spaces.has(each.attribute))
        && [...known.spaces.keys()].every(axis => inside.some(each => each.attribute === axis) || known.constants.has(axis))
        && inside.every(each => this.holds(known, number, each, true)));
      if (!given) return false;
    }
    return true;
  }
}

function unpack(space, size) {
  if (typeof space === "string") return space;
  const flat = decode(space.rows, "f8");
  return Array.from({ length: flat.length / size }, (_, k) => flat.subarray(k * size, (k + 1) * size));
}

// ---------------------------------------------------------------------------------------------------------------------
// Answers with intervals.

export class Release {
  constructor(data) {
    this.data = data;
    this.form = data.form === "potentials" ? new Potentials(data) : new Tables(data.sizes, data.scopes);
    this.estimate = decode(data.estimate, "f8");
    this.evidence = new Evidence(data.evidence, data.sizes, data.same);
    this.more = data.public ? new Evidence(data.public.evidence, data.sizes, data.same) : null;
    this.modelErrors = new ModelErrors(data.interactions, data.attributes.map(each => each.name), data.sizes);
    this.sets = new Map(Object.entries(data.sets).map(([name, set]) => [name, this.set(name, set)]));
  }

  set(name, told) {
    const account = told.account === null ? this.estimate : decode(told.account, "f8");
    const steps = decode(told.steps, "f4"), size = account.length;
    const models = Array.from({ length: steps.length / size }, (_, r) => {
      const step = steps.subarray(r * size, (r + 1) * size);
      return account.map((number, k) => {
        const found = number + step[k];
        return found < 0 && number >= 0 && found > -1e-6 * Math.abs(step[k]) ? 0 : found;
      });
    });
    const form = name === "estimate" ? this.form : new Tables(this.data.sizes, told.scopes);
    return { account, models, form };
  }

  basis(query) {
    const codes = this.evidence.basis(query);
    if (!this.more || !codes.includes(NOT_MEASURED)) return codes;
    const with_public = this.more.basis(query);
    return codes.map((code, k) => (code === NOT_MEASURED && with_public[k] !== NOT_MEASURED ? PUBLIC : code));
  }

  /** What is asked: answers to `query`, divided by those to `per` (whose answer for each is at `places`) if given. */
  ask({ query, per = null, at = null }) {
    const parts = per ? [query, per] : [query];
    const make = found => (per ? found[0].map((above, k) => ratio(above, found[1][at[k]])) : found[0]);
    let basis = this.basis(query);
    if (per) {
      const below = this.basis(per);
      basis = basis.map((code, k) => Math.max(code, below[at[k]]));
    }
    const prepared = parts.map(part => this.form.prepare(part));
    const center = make(prepared.map(each => each(this.estimate)));
    const counts = parts.every(part => part.every(axis => axis.rows.every(row => row.every(([, weight]) => weight >= 0))));
    return { query, per, at, parts, make, basis, prepared, center, counts };
  }

  /** The answers with low and high ends; not numbers where there are none, with the reason. */
  answer(asked, bars = true) {
    const known = this.ask(asked), { center, basis } = known;
    const low = new Float64Array(center.length).fill(NaN), high = low.slice();
    const why = bars ? this.bounds(known, low, high) : "";
    const never = known.per ? null : this.cannotOccur(known);
    const shown = center.map((number, k) => (basis[k] === NOT_MEASURED ? NaN : number));
    for (let k = 0; k < center.length; k++) {
      if (never && never[k]) low[k] = high[k] = 0;
      if (basis[k] === NOT_MEASURED || basis[k] === PUBLIC) low[k] = high[k] = NaN;
    }
    return { estimates: shown, low, high, basis, why };
  }

  bounds(known, low, high) {
    const { basis } = known, noisy = code => code === MEASURED || code === MODELLED;
    if (!basis.some(noisy)) return "";
    if (this.data.smooths) this.whateverTheData(known, low, high);
    if (!basis.some((code, k) => noisy(code) && Number.isNaN(high[k]))) return "";
    const own = this.sets.get("estimate");
    if (!own) return this.data.no_intervals || "large";
    const errors = this.errors(known, own), count = errors.length;
    let width = widths(errors.map(({ off }) => off), this.data.level), why = "";
    if (basis.includes(MODELLED)) [width, why] = this.withTheModel(known, errors, width, count);
    this.aroundTheEstimate(known, width, low, high);
    return why;
  }

  /** Measured answers of a method that smooths have the error bars of least squares, or of their own measurement. */
  whateverTheData(known, low, high) {
    const { center, basis, counts } = known, set = this.sets.get("least squares");
    if (!basis.includes(MEASURED)) return;
    let truth, width;
    if (set) {
      try {
        const errors = this.errors(known, set);
        [truth, width] = [errors[0].truth, widths(errors.map(({ off }) => off), this.data.level)];
      } catch (error) {
        if (error instanceof TooLarge) return;
        throw error;
      }
    } else if (!known.per && this.data.by_itself) [truth, width] = this.byItself(known.query);
    else return;
    center.forEach((number, k) => {
      const ends = [truth[k] - width[k], truth[k] + width[k]].map(end => (counts ? Math.max(end, 0) : end));
      if (basis[k] !== MEASURED || !ends.every(Number.isFinite)) return;
      [low[k], high[k]] = [Math.min(ends[0], number), Math.max(ends[1], number)];
    });
  }

  aroundTheEstimate({ center, basis, counts, per, query }, width, low, high) {
    const itself = per || !counts ? null : this.byItself(query);
    center.forEach((number, k) => {
      if (!Number.isNaN(high[k]) || (basis[k] !== MEASURED && basis[k] !== MODELLED)) return;
      [low[k], high[k]] = [number - width[k], number + width[k]];
      if (!counts || !(low[k] <= NEXT_TO_ZERO * width[k])) return;
      low[k] = Math.min(number, 0);
      if (itself && !Number.isNaN(itself[0][k])) high[k] = Math.max(high[k], itself[0][k] + itself[1][k]);
    });
  }

  /** Widths with the errors of the model, never less than without them; no numbers where these are unknown. */
  withTheModel({ parts, basis, make }, errors, width, count) {
    const axes = [...new Set(parts.flat().map(axis => axis.attribute))].sort((a, b) => a - b);
    const unknown = why => [width.map((each, k) => (basis[k] === MODELLED ? NaN : each)), why];
    if (axes.length < 2) return unknown("between");
    const sizes = axes.map(axis => this.data.sizes[axis]), whole = axes.map((axis, k) => ({ attribute: axis, rows: Array.from({ length: sizes[k] }, (_, code) => [[code, 1]]) }));
    if (cellsOf(sizes) > LARGEST_TABLE) return unknown("drawn");
    const model = this.form.prepare(whole)(this.estimate).map(each => Math.max(each, 0));
    const moved = this.modelErrors.draws(axes, model, count);
    if (!moved) return unknown("unknown");
    const sums = parts.map(part => {
      const names = part.map(axis => axis.attribute), shape = names.map(axis => this.data.sizes[axis]);
      const at = places(axes, sizes, names, shape), every = shape.map(size => Array.from({ length: size }, (_, code) => code));
      return table => {
        const kept = new Float64Array(cellsOf(shape));
        for (let cell = 0; cell < table.length; cell++) kept[at[cell]] += table[cell];
        return weighted(kept, part, every);
      };
    });
    const off = errors.map(({ found, truth }, draw) => {
      const more = found.map((answers, p) => {
        const extra = sums[p](moved[draw]);
        return answers.map((number, k) => number + extra[k]);
      });
      return make(more).map((number, k) => number - truth[k]);
    });
    const wider = widths(off, this.data.level);
    return [width.map((each, k) => (basis[k] === MODELLED ? Math.max(each, wider[k]) : each)), ""];
  }

  /** For each refit the answers to the parts, what is made of them, and how far that is from the account's. */
  errors(known, set) {
    const prepared = set.form === this.form ? known.prepared : known.parts.map(part => set.form.prepare(part));
    const truth = known.make(prepared.map(each => each(set.account)));
    return set.models.map(model => {
      const found = prepared.map(each => each(model));
      return { found, truth, off: known.make(found).map((number, k) => number - truth[k]) };
    });
  }

  cannotOccur({ query, counts }) {
    const names = query.map(axis => axis.attribute);
    const rules = this.data.rules.filter(rule => rule.every(([axis]) => names.includes(axis)));
    if (!rules.length || !counts) return null;
    const shape = names.map(axis => this.data.sizes[axis]), table = new Float64Array(cellsOf(shape)).fill(1);
    for (const rule of rules) {
      const codes = new Map(rule), marks = names.map((axis, k) => Array.from({ length: shape[k] }, (_, code) => !codes.has(axis) || codes.get(axis).includes(code)));
      const at = names.map(axis => places(names, shape, [axis], [this.data.sizes[axis]]));
      table.forEach((_, cell) => { if (marks.every((mark, k) => mark[at[k][cell]])) table[cell] = 0; });
    }
    return weighted(table, query, shape.map(size => Array.from({ length: size }, (_, code) => code))).map(sum => (sum === 0 ? 1 : 0));
  }

  /** Of each answer its own measurement, the one with the least noise, and how far noise reaches; NaN without any. */
  byItself(query) {
    let sums = Float64Array.of(1);
    for (const axis of [...query].sort((a, b) => a.attribute - b.attribute)) sums = outer(sums, axis.rows.map(row => row.reduce((sum, [code, weight]) => sum + weight * this.irregular(axis.attribute)[code], 0)));
    const order = query.map(axis => axis.attribute), sorted = [...order].sort((a, b) => a - b);
    const shape = query.map(axis => axis.rows.length), from = places(order, shape, sorted, sorted.map(axis => shape[order.indexOf(axis)]));
    const [found, reach, least] = [NaN, NaN, Infinity].map(number => new Float64Array(sums.length).fill(number));
    for (const each of this.measured()) {
      for (let k = 0; k < found.length; k++) {
        const asked = sums[from[k]], place = search(each.sums, asked * (1 - SAME_SUM));
        if (Math.abs(each.sums[place] - asked) <= SAME_SUM * Math.abs(asked) && each.variance < least[k]) {
          [found[k], reach[k], least[k]] = [each.values[place], each.reach, each.variance];
        }
      }
    }
    return [found, reach];
  }

  irregular(axis) {
    this.vectors ??= this.data.irregular.map(text => decode(text, "f8"));
    return this.vectors[axis];
  }

  measured() {
    this.sorted ??= this.data.measured.map(each => {
      let sums = Float64Array.of(1);
      for (const part of each.sums) sums = outer(sums, decode(part, "f8"));
      const values = decode(each.values, "f8"), order = Array.from(sums.keys()).sort((a, b) => sums[a] - sums[b]);
      return { ...each, sums: Float64Array.from(order, k => sums[k]), values: Float64Array.from(order, k => values[k]) };
    });
    return this.sorted;
  }
}

/** Records that are none, as in `questions.NOBODY`: a model of nobody has next to nothing in its cells. */
const NOBODY = 1e-8;
const ratio = (above, below) => (below > NOBODY ? above / below : NaN);

function outer(one, other) {
  const found = new Float64Array(one.length * other.length);
  for (let i = 0; i < one.length; i++) for (let k = 0; k < other.length; k++) found[i * other.length + k] = one[i] * other[k];
  return found;
}

function search(sorted, wanted) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return Math.min(low, sorted.length - 1);
}

/** The size that a share `level` of the errors does not exceed: the ⌈level·(n + 1)⌉-th smallest. */
export function widths(off, level) {
  const place = Math.min(Math.ceil(level * (off.length + 1)), off.length) - 1;
  return Float64Array.from(off[0], (_, k) => {
    const line = Float64Array.from(off, errors => (Number.isNaN(errors[k]) ? Infinity : Math.abs(errors[k])));
    return line.sort()[place];
  });
}
