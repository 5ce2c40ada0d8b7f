/**
 * Public map from real-valued contexts to features, and the action that a plan gives to a context.
 *
 * Source: `discreet.device.feature_map` and `discreet.device.context_policy`. The features are the same numbers, bit
 * for bit; of Fourier features, the last bits can differ.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { ExactCoins } from "./coins.js";

/** One context: a number for each column, or such a list for each action; null: missing. @typedef {readonly (number | null | readonly (number | null)[])[]} Context */
/** Coefficients of a plan, and how its users explore. @typedef {{policy: number[][], context?: {random: number[], root?: number[][][], bonus?: number[][][]}}} ContextPlan */

const FIELDS = ["actions", "basis", "form", "intercept", "radius", "ranges"];
const MOST = 10000; // features, and actions

/** @param {unknown} value @returns {value is number} */
const isFinite = (value) => typeof value === "number" && Number.isFinite(value);

/** Numbers in (0, 1) from SHA-256 of the seed and a counter. @param {number} seed @param {number} count @returns {Promise<number[]>} */
async function uniforms(seed, count) {
  const found = [];
  for (let i = 0; found.length < count; i++) {
    const block = await sha256(new TextEncoder().encode(`discreet features ${seed} ${i}`));
    const view = new DataView(block.buffer);
    for (let at = 0; at < 32 && found.length < count; at += 8) found.push((Number(view.getBigUint64(at, true) >> 11n) + 0.5) * 2 ** -53);
  }
  return found;
}

/** The sum in the order in which NumPy adds. @param {number[]} x @returns {number} */
function pairwise(x) {
  if (x.length < 8) return x.reduce((sum, one) => sum + one, 0);
  if (x.length > 128) {
    const half = Math.floor(x.length / 2);
    const cut = half - (half % 8);
    return pairwise(x.slice(0, cut)) + pairwise(x.slice(cut));
  }
  const sums = x.slice(0, 8);
  let at = 8;
  for (; at < x.length - (x.length % 8); at += 8) for (let j = 0; j < 8; j++) sums[j] += x[at + j];
  let found = sums[0] + sums[1] + (sums[2] + sums[3]) + (sums[4] + sums[5] + (sums[6] + sums[7]));
  for (; at < x.length; at++) found += x[at];
  return found;
}

/** @param {readonly number[]} a @param {readonly number[]} b */
const dot = (a, b) => a.reduce((sum, one, i) => sum + one * b[i], 0);

/** Public feature map of a study; its constructor is `FeatureMap.of`. */
export class FeatureMap {
  /** @param {any} plain @param {number[]} random of the basis */
  constructor(plain, random) {
    /** Least and largest number of each column. @type {[string, number, number][]} */
    this.ranges = plain.ranges;
    /** @type {number} */
    this.actions = plain.actions;
    /** @type {"per_action" | "shared"} */
    this.form = plain.form;
    /** @type {number} */
    this.radius = plain.radius;
    /** @type {boolean} */
    this.intercept = plain.intercept;
    const [kind, ...options] = typeof plain.basis === "string" ? [plain.basis] : plain.basis;
    /** @type {"linear" | "poly" | "fourier" | "tiles"} */
    this.kind = kind;
    /** @type {number[]} */
    this.options = options;
    this.random = random;
    const q = this.ranges.length;
    const sizes = { linear: q, poly: q + (q * (q + 1)) / 2, fourier: q + this.options[0], tiles: q * (this.options[0] + 1) };
    /** Length p of the features. @type {number} */
    this.dimension = sizes[this.kind] + (this.intercept ? 1 : 0);
    /** Number of coefficient vectors. */
    this.blocks = this.form === "per_action" ? this.actions : 1;
  }

  /** The map that a plan or a form states. Throws a RangeError for values that are not allowed. @param {any} plain @returns {Promise<FeatureMap>} */
  static async of(plain) {
    const wrong = (/** @type {string} */ name, /** @type {string} */ words) => new RangeError(`features.${name}: ${words}`);
    if (!plain || typeof plain !== "object" || Object.keys(plain).sort().join() !== FIELDS.join()) throw new RangeError(`features: must hold ${FIELDS.join(", ")}, and nothing else`);
    const { ranges, actions, form, basis, radius, intercept } = plain;
    integer("features.actions", actions, 2, MOST);
    const fit = (/** @type {any} */ one) => Array.isArray(one) && one.length === 3 && typeof one[0] === "string" && isFinite(one[1]) && isFinite(one[2]) && one[1] / 2 < one[2] / 2;
    if (!Array.isArray(ranges) || !ranges.length || !ranges.every(fit)) throw wrong("ranges", "must be of [name, least, largest]");
    if (form !== "per_action" && form !== "shared") throw wrong("form", "must be per_action or shared");
    if (!isFinite(radius) || radius < 1e-100) throw wrong("radius", "must be a finite number of at least 1e-100");
    if (typeof intercept !== "boolean") throw wrong("intercept", "must be true or false");
    const [kind, ...options] = Array.isArray(basis) ? basis : [basis];
    const q = ranges.length;
    const whole = (/** @type {any} */ one, /** @type {number} */ least) => Number.isSafeInteger(one) && one >= least && one <= Number.MAX_SAFE_INTEGER;
    const good =
      (basis === "linear") || (kind === "poly" && options.length === 1 && options[0] === 2) ||
      (kind === "fourier" && options.length === 3 && whole(options[0], 1) && isFinite(options[1]) && options[1] > 0 && options[1] < 1e100 && whole(options[2], 0)) ||
      (kind === "tiles" && options.length === 2 && whole(options[0], 1) && whole(options[1], 0));
    if (!good) throw wrong("basis", "must be linear, poly, fourier or tiles, with its options");
    const m = options[0];
    if (new FeatureMap(plain, []).dimension > MOST) throw wrong("basis", `gives more than ${MOST} features`);
    return new FeatureMap(plain, kind === "fourier" ? await uniforms(options[2], 2 * m * q + m) : kind === "tiles" ? await uniforms(options[1], q) : []);
  }

  /** The rows of a context, with NaN for what is missing. Throws a RangeError for another shape. @param {any} x @returns {number[][]} */
  #rows(x) {
    const rows = this.form === "per_action" ? [x] : Array.from(x ?? []);
    if (rows.length !== (this.form === "per_action" ? 1 : this.actions)) throw new RangeError(`context: must have a list for each of ${this.actions} actions`);
    return rows.map((given) => {
      const row = Array.from(given ?? []);
      if (row.length !== this.ranges.length || !row.every((one) => one === null || typeof one === "number")) {
        throw new RangeError(`context: must have ${this.ranges.length} numbers or null, in the order of the columns`);
      }
      return row.map((one) => (Number.isFinite(one) ? one : NaN));
    });
  }

  /** The context with each number clipped to its range, and null for what is not finite; its features are the same. @param {Context} x @returns {any} */
  clipped(x) {
    const rows = this.#rows(x).map((row) => row.map((one, i) => (Number.isNaN(one) ? null : Math.min(this.ranges[i][2], Math.max(this.ranges[i][1], one)))));
    return this.form === "per_action" ? rows[0] : rows;
  }

  /** Features of one row. @param {number[]} row @returns {number[]} */
  #features(row) {
    const z = row.map((one, i) => {
      const [, low, high] = this.ranges[i];
      if (Number.isNaN(one)) return 0;
      return Math.min(1, Math.max(-1, ((one / 2 - low / 2) / (high / 2 - low / 2)) * 2 - 1));
    });
    const g = this.kind === "tiles" ? [] : [...z];
    if (this.kind === "poly") z.forEach((one, i) => z.slice(i).forEach((other) => g.push(one * other)));
    else if (this.kind === "fourier") {
      const [m, scale] = this.options;
      const size = m * z.length;
      for (let k = 0; k < m; k++) {
        let sum = 0;
        for (let i = 0; i < z.length; i++) {
          const at = k * z.length + i;
          sum += z[i] * scale * (Math.sqrt(-2 * Math.log(this.random[at])) * Math.cos(2 * Math.PI * this.random[size + at]));
        }
        g.push(Math.sqrt(2 / m) * Math.cos(sum + 2 * Math.PI * this.random[2 * size + k]));
      }
    } else if (this.kind === "tiles") {
      const n = this.options[0];
      z.forEach((one, i) => {
        const tile = Math.min(Math.trunc(((one + 1) / 2) * n + this.random[i]), n);
        for (let k = 0; k <= n; k++) g.push((k === tile ? 1 : 0) / Math.sqrt(z.length));
      });
    }
    if (this.intercept) g.push(1);
    const phi = g.map((one) => one / this.radius);
    const length = Math.sqrt(pairwise(phi.map((one) => one * one)));
    return length > 1 ? phi.map((one) => (one / length) * (1 - 1e-15)) : phi;
  }

  /** Features of a context: one list, or one for each action if all actions share coefficients. @param {Context} x @returns {number[][]} */
  phi(x) {
    return this.#rows(x).map((row) => this.#features(row));
  }

  /**
   * The action of a plan for a context. draws: random numbers of the place.
   * @param {ContextPlan} plan @param {Context} x @param {Draws} draws @returns {number}
   */
  action({ policy, context }, x, draws) {
    const rows = this.phi(x);
    if (context && context.random[0] >= 1) return draws.below(this.actions);
    let theta = policy;
    const root = context?.root;
    if (root) {
      const z = draws.normals(this.blocks * this.dimension);
      theta = policy.map((mean, b) => mean.map((one, i) => one + dot(root[b][i], z.slice(b * this.dimension, (b + 1) * this.dimension))));
    }
    let [best, top] = [0, -Infinity];
    for (let a = 0; a < this.actions; a++) {
      const shared = this.form === "shared";
      const phi = rows[shared ? a : 0];
      const bonus = context?.bonus?.[shared ? 0 : a];
      const more = bonus ? Math.sqrt(Math.max(0, dot(phi, bonus.map((row) => dot(row, phi))))) : 0;
      const score = dot(phi, theta[shared ? 0 : a]) + more;
      if (score > top) [best, top] = [a, score];
    }
    return best;
  }
}

/** Random numbers of one place: every call gives the same ones, so that a user explores with one draw. */
export class Draws {
  #coins;
  /** @type {number[]} */
  #normals = [];
  /** @type {Map<number, number>} */
  #integers = new Map();

  /** @param {import("./coins.js").Bytes} [bytes] the system's by default */
  constructor(bytes) {
    this.#coins = new ExactCoins(bytes);
  }

  /** A uniform integer in [0, n). @param {number} n @returns {number} */
  below(n) {
    if (!this.#integers.has(n)) this.#integers.set(n, Number(this.#coins.below(BigInt(n))));
    return /** @type {number} */ (this.#integers.get(n));
  }

  /** So many standard normal variables. @param {number} size @returns {number[]} */
  normals(size) {
    const one = () => (Number(this.#coins.below(1n << 52n)) + 0.5) / 2 ** 52;
    while (this.#normals.length < size) this.#normals.push(Math.sqrt(-2 * Math.log(one())) * Math.cos(2 * Math.PI * one()));
    return this.#normals.slice(0, size);
  }
}
