/**
 * The device of the shuffle model: bits and coin flips of every counter, one message of a fixed size.
 *
 * Source and proofs: `discreet.device.shuffle_encoder` and `discreet.device.shuffle_payload`, whose messages these are, byte
 * for byte. A single message is not private: a shuffler must let out nothing but sums over a batch.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { WordCoins } from "./coins.js";
import { envelope, headOf } from "./envelope.js";
import { Guarantee } from "./guarantee.js";
import { fractionOf } from "./noise.js";
import { Pairs } from "./pairs.js";

const COIN = 2 ** 32;
const MOST_FLIPS = 2 ** 28; // of one message
const KINDS = ["visits", "transitions", "rewards", "centered_rewards"];
const FIELDS = ["states", "actions", "horizon", "families", "rows", "session", "step"];
const FIXED = 192n; // bits after the point, of a tabulated probability
const DOUBT = 1n << (FIXED - 160n);
const [FEWEST, MOST] = [1024, 2 ** 16]; // flips of a counter between which their number of ones is drawn by its distribution

/** One family of counters, and the noise that each person adds to each of them. */
class Family {
  /** @param {any} given [kind, flips, coin, paired] */
  constructor(given) {
    if (!Array.isArray(given) || given.length !== 4 || !KINDS.includes(given[0])) throw new RangeError(`families: must be of ${KINDS.join(", ")}`);
    /** @type {string} */
    this.kind = given[0];
    this.flips = integer("flips", given[1], 1, 2 ** 31);
    this.coin = integer("coin", given[2], 1, COIN / 2);
    this.paired = given[3] === true;
    if (this.paired !== (this.kind === "centered_rewards") || (this.paired && this.flips % 2)) {
      throw new RangeError("paired: must be true for centred rewards alone, with an even number of flips");
    }
    /** Bits that one person sends for one counter. */
    this.messages = this.flips + (this.paired ? 2 : 1);
    /** How many counters fit into a word of 64 bits. */
    this.digits = 1;
    while (BigInt(this.messages + 1) ** BigInt(this.digits + 1) <= 1n << 64n) this.digits += 1;
  }
}

/** The form of a batch, and what a device does with it. */
export class ShuffleEncoder extends Pairs {
  /** @param {Record<string, any>} fields @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, digest) {
    super(fields, FIELDS);
    this.digest = digest;
    if (!Array.isArray(fields.families)) throw new RangeError("families: must be a list");
    this.families = fields.families.map((one) => new Family(one));
    if (!this.families.length || new Set(this.families.map((one) => one.kind)).size < this.families.length) {
      throw new RangeError("families: must hold at least one, and none of them twice");
    }
    const pairs = this.counted * this.pairs;
    /** Counters of each family. */
    this.counters = this.families.map((one) => pairs * (one.kind === "transitions" ? this.states : 1));
  }

  /** The device of a published form. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<ShuffleEncoder>} */
  static async fromBytes(form) {
    const { kind, fields } = headOf(form);
    if (kind !== "bits") throw new RangeError(`form: of kind '${kind}', not bits`);
    return new ShuffleEncoder(fields, (await sha256(form)).slice(0, 16));
  }

  /** What one message gives away without the shuffler: no epsilon holds. @returns {Guarantee} */
  get guarantee() {
    return new Guarantee({ epsilon: Infinity, shuffled: true });
  }

  /**
   * The message to a plan: one trajectory, one time.
   * @param {number} plan @param {unknown} policy is not looked at
   * @param {import("./pairs.js").Trajectory} life @param {import("./coins.js").Bytes} [bytes] the system's by default
   * @returns {Uint8Array<ArrayBuffer>}
   */
  message(plan, policy, life, bytes) {
    const { states, rows, rewards } = this.checked(life);
    const coins = new WordCoins(bytes);
    const [from, to] = this.step === null ? [0, this.horizon] : [this.step, this.step + 1];
    const cells = rows.slice(from, to).map((row, h) => h * this.pairs + row);
    const next = states.slice(from + 1, to + 1);
    const earned = rewards.slice(from, to);
    const words = this.families.flatMap((family, i) => {
      const ones = noiseOnes(family, this.counters[i], coins);
      if (family.kind === "visits") for (const cell of cells) ones[cell] += 1;
      else if (family.kind === "transitions") cells.forEach((cell, h) => (ones[cell * this.states + next[h]] += 1));
      else {
        const bits = randomBits(earned, coins);
        if (family.paired) ones.forEach((one, at) => (ones[at] = one + 1));
        cells.forEach((cell, h) => (ones[cell] += family.paired ? 2 * bits[h] - 1 : bits[h]));
      }
      return packed(family, ones);
    });
    const payload = new Uint8Array(8 * words.length);
    const view = new DataView(payload.buffer);
    words.forEach((word, i) => view.setBigUint64(8 * i, word, true));
    return envelope("bits", plan, this.digest, coins.nonce(), payload);
  }
}

/** Bits with the rewards as their means, to 2^-64. @param {number[]} rewards @param {WordCoins} coins @returns {number[]} */
function randomBits(rewards, coins) {
  const words = coins.integers(rewards.length);
  return rewards.map((reward, h) => {
    const { numerator, denominator } = fractionOf(reward, 1n << 64n);
    return words[h] < numerator / denominator ? 1 : 0;
  });
}

/** Digits in base messages + 1, the first the lowest. @param {Family} family @param {number[]} ones @returns {bigint[]} */
function packed(family, ones) {
  const base = BigInt(family.messages + 1);
  const found = [];
  for (let at = 0; at < ones.length; at += family.digits) {
    let word = 0n;
    for (let j = Math.min(ones.length, at + family.digits) - 1; j >= at; j--) word = word * base + BigInt(ones[j]);
    found.push(word);
  }
  return found;
}

/** How many of one person's noise bits are 1, of each counter. @param {Family} family @param {number} counters @param {WordCoins} coins @returns {number[]} */
function noiseOnes(family, counters, coins) {
  const m = family.flips;
  if (counters * m > MOST_FLIPS) throw new RangeError(`flips: more than ${MOST_FLIPS} coins of one device`);
  const fair = family.coin === COIN / 2;
  if (fair && m > FEWEST && m <= MOST) {
    const table = distribution(m);
    if (table) return inverted(m, table, counters, coins);
  }
  if (fair) {
    const width = [1, 2, 4, 8].find((bytes) => m <= 8 * bytes || bytes === 8) ?? 8;
    const each = Math.ceil(m / (8 * width));
    const last = ((m - 1) % (8 * width)) + 1;
    const bits = coins.words(Math.ceil((counters * each * width) / 8));
    return Array.from({ length: counters }, (_, i) => {
      let ones = 0;
      const end = (i + 1) * each * width;
      for (let at = i * each * width; at < end - width; at++) ones += popcount(bits[at]);
      let kept = 0n; // the last integer, little-endian: its highest bits count
      for (let at = end - 1; at >= end - width; at--) kept = (kept << 8n) | BigInt(bits[at]);
      for (kept >>= BigInt(8 * width - last); kept > 0n; kept >>= 8n) ones += popcount(Number(kept & 255n));
      return ones;
    });
  }
  const words = coins.words(Math.ceil((counters * m) / 2));
  const view = new DataView(words.buffer, words.byteOffset, words.byteLength);
  return Array.from({ length: counters }, (_, i) => {
    let ones = 0;
    for (let j = 0; j < m; j++) {
      const one = view.getUint32(4 * (i * m + j), true) < family.coin ? 1 : 0;
      ones += family.paired && j >= m / 2 ? 1 - one : one;
    }
    return ones;
  });
}

/** @param {number} byte @returns {number} */
function popcount(byte) {
  let ones = 0;
  for (; byte; byte &= byte - 1) ones += 1;
  return ones;
}

/** @typedef {{first: number, floors: bigint[]}} Table */
/** @type {Map<number, Table | null>} */
const TABLES = new Map();

/** The first k, and floor(2^64 F(k)) from it on, of binomial(m, 1/2); null where one is in doubt. @param {number} m @returns {Table | null} */
function distribution(m) {
  const known = TABLES.get(m);
  if (known !== undefined) return known;
  const n = Math.floor(m / 2);
  let central = 1n << FIXED; // C(2n, n) / 4^n, the product of 1 - 1 / 2i, four at a time
  for (let i = 1; i <= n; i += 4) {
    let [over, under] = [1n, 1n];
    for (let j = i; j < Math.min(i + 4, n + 1); j++) [over, under] = [over * BigInt(2 * j - 1), under * BigInt(2 * j)];
    central = (central * over) / under;
  }
  const centre = Math.floor((m - 1) / 2);
  const half = 1n << (FIXED - 1n);
  const odd = m % 2;
  let chance = odd ? (central * BigInt(m)) / BigInt(m + 1) : (central * BigInt(n)) / BigInt(n + 1); // P(centre)
  let below = odd ? half : half - central / 2n; // F(centre)
  /** @type {bigint[]} */
  const left = [];
  for (let k = centre; below > 0n; ) {
    left.push(below);
    below -= chance;
    chance = (chance * BigInt(k)) / BigInt(m - k + 1);
    k -= 1;
    if (left[left.length - 1] >> (FIXED - 64n) === 0n) break;
  }
  left.reverse();
  const every = [...left, ...left.slice(0, left.length - odd).reverse().map((one) => (1n << FIXED) - one)];
  const shift = FIXED - 64n;
  const doubtful = every.some((one) => one > DOUBT && one !== half && (one - DOUBT) >> shift !== (one + DOUBT) >> shift);
  const top = (1n << 64n) - 1n;
  const found = doubtful ? null : { first: centre - left.length + 1, floors: every.map((one) => (one >> shift < top ? one >> shift : top)) };
  TABLES.set(m, found);
  return found;
}

/** Ones among m fair flips, of each counter. @param {number} m @param {Table} table @param {number} counters @param {WordCoins} coins @returns {number[]} */
function inverted(m, { first, floors }, counters, coins) {
  const drawn = coins.integers(counters);
  const places = drawn.map((word) => {
    let [low, high] = [0, floors.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (floors[middle] < word) low = middle + 1;
      else high = middle;
    }
    return low;
  });
  return places.map((at, i) => {
    const tied = drawn[i] === 0n || floors[Math.min(at, floors.length - 1)] === drawn[i];
    return tied ? byAllBits(m, drawn[i], coins) : first + at;
  });
}

/** Of a uniform number whose first 64 bits are known: the others are drawn. @param {number} m @param {bigint} leading @param {WordCoins} coins @returns {number} */
function byAllBits(m, leading, coins) {
  const more = BigInt(m - 64);
  const tail = coins.integers(Math.ceil((m - 64) / 64)).reduceRight((sum, word) => (sum << 64n) | word, 0n) & ((1n << more) - 1n);
  const u = (leading << more) | tail;
  let [term, total, k] = [1n, 1n, 0];
  while (total <= u) {
    term = (term * BigInt(m - k)) / BigInt(k + 1);
    [total, k] = [total + term, k + 1];
  }
  return k;
}
