/**
 * Exact Skellam noise from integers and random words: a difference of two Poisson variables of mean v / 2.
 *
 * Source: `discreet.device.skellam_noise`, whose draws these are. A Poisson variable is drawn by inversion of its
 * distribution function F: with a uniform U in [0, 1), it is the number of k with F(k) <= U. Only as many bits of U as
 * necessary are drawn, 64 at a time. The table of floor(2^b F(k)) is certified: weights are integers that are rounded
 * down, and the table is accepted if both ends of the error interval give the same integers. Otherwise the precision is
 * doubled. No distribution is truncated or rounded.
 * @module
 */

/** @typedef {import("./coins.js").WordCoins} WordCoins */

export const LARGEST_MEAN = 2 ** 17;
export const MOST_VARIANCE = 2 ** 36;
const LEADING = 14; // bits of a word that find a table entry
const AT_ONCE = 2 ** 14; // words that are drawn together

/** floor(2^bits F(k)) for k from `first`. @typedef {{first: number, floors: bigint[]}} Table */
/** @type {Map<string, Table>} */
const TABLES = new Map();
/** Table of 64 bits, in two halves, with the number of entries at most i 2^50. @typedef {{first: number, high: Uint32Array, low: Uint32Array, guide: Int32Array}} Guided */
/** @type {Map<number, Guided>} */
const GUIDED = new Map();

/** @template K, V @param {Map<K, V>} known @param {K} key @param {() => V} make @returns {V} */
function kept(known, key, make) {
  let found = known.get(key);
  if (found === undefined) {
    if (known.size >= 64) known.clear();
    found = make();
    known.set(key, found);
  }
  return found;
}

/** @param {number} mean @param {number} bits @returns {Table} */
export function tableOf(mean, bits) {
  return kept(TABLES, `${mean} ${bits}`, () => {
    for (let precision = 2 * bits + 64; ; precision *= 2) {
      const found = certified(mean, bits, precision);
      if (found) return found;
    }
  });
}

/** @param {number} mean @param {number} bits @param {number} precision @returns {Table | null} */
function certified(mean, bits, precision) {
  const one = 1n << BigInt(precision);
  const m = BigInt(mean);
  /** @type {bigint[]} */
  const below = [];
  for (let [k, w] = [m, one]; k > 0n; k -= 1n) {
    w = (w * k) / m;
    if (!w) break;
    below.push(w);
  }
  /** @type {bigint[]} */
  const above = [];
  for (let [k, w] = [m + 1n, one]; ; k += 1n) {
    w = (w * m) / k;
    if (!w) break;
    above.push(w);
  }
  const n = BigInt(Math.max(below.length, above.length) + 1);
  const error = 2n * ((n + 1n) ** 2n + 2n * (m + n + 1n));
  const weights = [...below.reverse(), one, ...above];
  const whole = weights.reduce((sum, w) => sum + w, 0n);
  const [b, last] = [BigInt(bits), (1n << BigInt(bits)) - 1n];
  let total = 0n;
  const floors = [];
  for (const w of weights) {
    total += w;
    const low = (total << b) / (whole + error);
    const end = ((total + error) << b) / whole;
    if (low !== (end < last ? end : last)) return null; // F(k) < 1
    floors.push(low);
  }
  if (floors[floors.length - 1] !== last) return null;
  const zeros = floors.findIndex((value) => value > 0n);
  return { first: mean - below.length + zeros, floors: floors.slice(zeros) };
}

/** @param {number} mean @returns {Guided} */
function guidedOf(mean) {
  return kept(GUIDED, mean, () => {
    const { first, floors } = tableOf(mean, 64);
    const high = Uint32Array.from(floors, (one) => Number(one >> 32n));
    const low = Uint32Array.from(floors, (one) => Number(one & 0xffffffffn));
    const guide = new Int32Array(2 ** LEADING + 1);
    let at = 0;
    for (let i = 0; i < 2 ** LEADING; i++) {
      const start = i * 2 ** (32 - LEADING);
      while (at < floors.length && (high[at] < start || (high[at] === start && low[at] === 0))) at += 1;
      guide[i] = at;
    }
    guide[2 ** LEADING] = floors.length;
    return { first, high, low, guide };
  });
}

/** So many Poisson variables, added to or subtracted from `sums` in turns. @param {number} mean @param {number} size @param {Float64Array} sums @param {number} sign @param {WordCoins} coins */
function inverted(mean, size, sums, sign, coins) {
  const { first, high, low, guide } = guidedOf(mean);
  const drawn = coins.words(size);
  const view = new DataView(drawn.buffer, drawn.byteOffset, drawn.byteLength);
  const ties = [];
  for (let i = 0; i < size; i++) {
    const [top, bottom] = [view.getUint32(8 * i + 4, true), view.getUint32(8 * i, true)];
    const part = top >>> (32 - LEADING);
    let [from, to] = [guide[part], guide[part + 1]];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (high[middle] < top || (high[middle] === top && low[middle] <= bottom)) from = middle + 1;
      else to = middle;
    }
    if ((!top && !bottom) || (from > 0 && high[from - 1] === top && low[from - 1] === bottom)) ties.push(i);
    else sums[i % sums.length] += sign * (first + from);
  }
  for (const i of ties) sums[i % sums.length] += sign * byMoreBits(mean, view.getBigUint64(8 * i, true), coins);
}

/** A variable whose first 64 bits of U are known: more bits are drawn. @param {number} mean @param {bigint} drawn @param {WordCoins} coins @returns {number} */
function byMoreBits(mean, drawn, coins) {
  for (let bits = 128; ; bits += 64) {
    drawn = (drawn << 64n) | coins.integers(1)[0];
    const { first, floors } = tableOf(mean, bits);
    if (drawn && !floors.includes(drawn)) return first + floors.filter((value) => value < drawn).length;
  }
}

/** @param {number} mean @param {Float64Array} sums @param {number} sign @param {WordCoins} coins */
function poisson(mean, sums, sign, coins) {
  const parts = Math.ceil(mean / LARGEST_MEAN);
  const each = Math.floor(mean / parts);
  const more = mean - each * parts;
  for (const [own, count] of [[each + 1, more], [each, parts - more]]) {
    for (let left = count; left; ) {
      const now = Math.min(left, Math.max(1, Math.floor(AT_ONCE / sums.length)));
      inverted(own, now * sums.length, sums, sign, coins);
      left -= now;
    }
  }
}

/** So many Skellam variables of mean 0. @param {number} variance an even integer from 2 to 2^36 @param {number} size @param {WordCoins} coins @returns {Float64Array} of integers */
export function skellam(variance, size, coins) {
  const sums = new Float64Array(size);
  poisson(variance / 2, sums, 1, coins);
  poisson(variance / 2, sums, -1, coins);
  return sums;
}
