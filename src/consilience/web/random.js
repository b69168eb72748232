// The random numbers of NumPy's default generator, so that draws here are those of the library: PCG64 (O'Neill 2014)
// seeded as by SeedSequence, ziggurats (Marsaglia and Tsang 2000), gamma (Marsaglia and Tsang 2000b), Poisson by
// multiplication and by transformed rejection (Hörmann 1993).

const MULTIPLIER = [0xf645, 0x9fcc, 0xdf64, 0x4385, 0x5da4, 0x1fc6, 0xed05, 0x2360]; // the lowest limb first

/** The pool of words that a list of seeds is mixed into, and so many words from it. */
export function seedWords(entropy, count) {
  let constant = 0x43b0d7e5;
  const hash = value => {
    value = (value ^ constant) >>> 0;
    constant = Math.imul(constant, 0x931e8875) >>> 0;
    value = Math.imul(value, constant) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  };
  const mix = (x, y) => {
    const found = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
    return (found ^ (found >>> 16)) >>> 0;
  };
  const pool = [0, 1, 2, 3].map(k => hash(entropy[k] ?? 0));
  for (let from = 0; from < 4; from++) for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  for (const more of entropy.slice(4)) for (let to = 0; to < 4; to++) pool[to] = mix(pool[to], hash(more));
  let other = 0x8b51f9dd;
  return Array.from({ length: count }, (_, k) => {
    let value = (pool[k % 4] ^ other) >>> 0;
    other = Math.imul(other, 0x58f38ded) >>> 0;
    value = Math.imul(value, other) >>> 0;
    return (value ^ (value >>> 16)) >>> 0;
  });
}

/** The steps of a ziggurat of 256 layers of equal area under a falling density. */
function ziggurat(edge, area, density, inverse, unit) {
  const [k, w, f] = [0, 0, 0].map(() => new Float64Array(256));
  let [low, last] = [edge, edge];
  const base = area / density(edge);
  [k[0], k[1], w[0], w[255], f[0], f[255]] = [(edge / base) * unit, 0, base / unit, edge / unit, 1, density(edge)];
  for (let layer = 254; layer >= 1; layer--) {
    low = inverse(area / low + density(low));
    [k[layer + 1], w[layer], f[layer]] = [(low / last) * unit, low / unit, density(low)];
    last = low;
  }
  return { k, w, f };
}

const NORMAL_EDGE = 3.6541528853610088, EXPONENTIAL_EDGE = 7.69711747013104972;
const NORMAL = ziggurat(NORMAL_EDGE, 0.004928673233974658, x => Math.exp(-0.5 * x * x), y => Math.sqrt(-2 * Math.log(y)), 2 ** 52);
const EXPONENTIAL = ziggurat(EXPONENTIAL_EDGE, 0.0039496598225815571993, x => Math.exp(-x), y => -Math.log(y), 2 ** 53);
const STIRLING = [8.333333333333333e-2, -2.777777777777778e-3, 7.936507936507937e-4, -5.952380952380952e-4, 8.417508417508418e-4, -1.917526917526918e-3, 6.410256410256410e-3, -2.955065359477124e-2, 1.796443723688307e-1, -1.39243221690590];

function logGamma(x) {
  if (x === 1 || x === 2) return 0;
  const steps = x < 7 ? Math.trunc(7 - x) : 0;
  let from = x + steps;
  const square = (1 / from) * (1 / from);
  let sum = STIRLING[9];
  for (let k = 8; k >= 0; k--) sum = sum * square + STIRLING[k];
  let found = sum / from + 0.5 * 1.8378770664093453 + (from - 0.5) * Math.log(from) - from;
  for (let k = 1; k <= steps && x < 7; k++) found -= Math.log((from -= 1));
  return found;
}

export class Generator {
  constructor(...seeds) {
    const words = seedWords(seeds, 8), wide = (high, low) => [words[low], words[low + 1], words[high], words[high + 1]];
    const [start, stream] = [wide(0, 2), wide(4, 6)].map(four => [four[0], four[1], four[2], four[3]]);
    this.step = new Uint32Array(4);
    for (let k = 3; k >= 0; k--) this.step[k] = ((stream[k] << 1) | (k ? stream[k - 1] >>> 31 : 1)) >>> 0;
    this.state = new Uint32Array(4);
    this.half = null;
    this.advance();
    let carry = 0;
    for (let k = 0; k < 4; k++) {
      const sum = this.state[k] + start[k] + carry;
      this.state[k] = sum >>> 0;
      carry = sum > 0xffffffff ? 1 : 0;
    }
    this.advance();
  }

  /** state ← state · multiplier + step, modulo 2¹²⁸, in limbs of 16 bits. */
  advance() {
    const { state, step } = this, limbs = [];
    for (let k = 0; k < 4; k++) limbs.push(state[k] & 0xffff, state[k] >>> 16);
    let carry = 0, low = 0;
    for (let k = 0; k < 8; k++) {
      let sum = carry + (k & 1 ? step[k >> 1] >>> 16 : step[k >> 1] & 0xffff);
      for (let i = 0; i <= k; i++) sum += limbs[i] * MULTIPLIER[k - i];
      const limb = sum % 65536;
      carry = (sum - limb) / 65536;
      if (k & 1) state[k >> 1] = (low | (limb << 16)) >>> 0;
      else low = limb;
    }
  }

  /** 64 random bits, as two words: [high, low] in `this.high` and `this.low`. */
  next() {
    this.advance();
    const [a, b, c, d] = this.state, turn = d >>> 26;
    let low = (a ^ c) >>> 0, high = (b ^ d) >>> 0;
    if (turn >= 32) [low, high] = [high, low];
    const by = turn & 31;
    this.low = by ? ((low >>> by) | (high << (32 - by))) >>> 0 : low;
    this.high = by ? ((high >>> by) | (low << (32 - by))) >>> 0 : high;
  }

  random() {
    this.next();
    return (this.high * 2097152 + (this.low >>> 11)) / 9007199254740992;
  }

  word() {
    if (this.half !== null) {
      const found = this.half;
      this.half = null;
      return found;
    }
    this.next();
    this.half = this.high;
    return this.low;
  }

  /** A whole number below `count`, by Lemire's method. */
  below(count) {
    if (count === 1) return 0;
    const times = () => {
      const product = BigInt(this.word()) * BigInt(count);
      return [Number(product >> 32n), Number(product & 0xffffffffn)];
    };
    let [found, left] = times();
    if (left < count) {
      const least = (4294967296 - count) % count;
      while (left < least) [found, left] = times();
    }
    return found;
  }

  normal() {
    for (;;) {
      this.next();
      const layer = this.low & 0xff, sign = (this.low >>> 8) & 1;
      // 52 bits from the tenth on: 23 of the lower word, 29 of the upper one.
      const size = (this.high & 0x1fffffff) * 8388608 + (this.low >>> 9);
      const x = (sign ? -size : size) * NORMAL.w[layer];
      if (size < NORMAL.k[layer]) return x;
      if (layer === 0) {
        for (;;) {
          const far = -Math.log1p(-this.random()) / NORMAL_EDGE, height = -Math.log1p(-this.random());
          if (2 * height > far * far) return Math.floor(size / 256) % 2 ? -(NORMAL_EDGE + far) : NORMAL_EDGE + far;
        }
      }
      if ((NORMAL.f[layer - 1] - NORMAL.f[layer]) * this.random() + NORMAL.f[layer] < Math.exp(-0.5 * x * x)) return x;
    }
  }

  exponential() {
    for (;;) {
      this.next();
      const layer = (this.low >>> 3) & 0xff, size = this.high * 2097152 + (this.low >>> 11), x = size * EXPONENTIAL.w[layer];
      if (size < EXPONENTIAL.k[layer]) return x;
      if (layer === 0) return EXPONENTIAL_EDGE - Math.log1p(-this.random());
      if ((EXPONENTIAL.f[layer - 1] - EXPONENTIAL.f[layer]) * this.random() + EXPONENTIAL.f[layer] < Math.exp(-x)) return x;
    }
  }

  gamma(shape) {
    if (shape === 1) return this.exponential();
    if (shape < 1) {
      for (;;) {
        const u = this.random(), v = this.exponential();
        if (u <= 1 - shape) {
          const x = u ** (1 / shape);
          if (x <= v) return x;
        } else {
          const y = -Math.log((1 - u) / shape), x = (1 - shape + shape * y) ** (1 / shape);
          if (x <= v + y) return x;
        }
      }
    }
    const b = shape - 1 / 3, c = 1 / Math.sqrt(9 * b);
    for (;;) {
      let x, v;
      do {
        x = this.normal();
        v = 1 + c * x;
      } while (v <= 0);
      v = v * v * v;
      const u = this.random();
      if (u < 1 - 0.0331 * (x * x) * (x * x) || Math.log(u) < 0.5 * x * x + b * (1 - v + Math.log(v))) return b * v;
    }
  }

  poisson(mean) {
    if (mean === 0) return 0;
    if (mean < 10) {
      const least = Math.exp(-mean);
      for (let found = 0, product = 1; ; found++) {
        product *= this.random();
        if (product <= least) return found;
      }
    }
    const b = 0.931 + 2.53 * Math.sqrt(mean), a = -0.059 + 0.02483 * b, log = Math.log(mean);
    const inverse = 1.1239 + 1.1328 / (b - 3.4), most = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
      const u = this.random() - 0.5, v = this.random(), edge = 0.5 - Math.abs(u);
      const found = Math.floor(((2 * a) / edge + b) * u + mean + 0.43);
      if (edge >= 0.07 && v <= most) return found;
      if (found < 0 || (edge < 0.013 && v > edge)) continue;
      if (Math.log(v) + Math.log(inverse) - Math.log(a / (edge * edge) + b) <= -mean + found * log - logGamma(found + 1)) return found;
    }
  }
}
