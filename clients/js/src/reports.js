/**
 * The device of randomized reports of a few random steps (local privacy, or a shuffler's).
 *
 * Optimised unary encoding, or subset selection (of size 1: k-ary randomized response). Source and proofs:
 * `discreet.device.randomized_response_device`, whose messages these are, byte for byte.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { ExactCoins } from "./coins.js";
import { envelope, headOf } from "./envelope.js";
import { Guarantee, logRatio } from "./guarantee.js";
import { Pairs } from "./pairs.js";

const GRID = 2 ** 53;
const WHOLE = 1n << 53n;
const FIELDS = ["states", "actions", "horizon", "steps", "share", "moves", "rewards", "plans", "rows", "step", "shuffled", "session"];

/** @param {string} name @param {unknown} digits hexadecimal @param {bigint} low @param {bigint} high @returns {bigint} */
function numerator(name, digits, low, high) {
  const found = typeof digits === "string" && /^[0-9a-f]{1,14}$/.test(digits) ? BigInt(`0x${digits}`) : -1n;
  if (found < low || found > high) throw new RangeError(`${name}: must be hexadecimal digits of an integer in [${low}, ${high}]`);
  return found;
}

/** A randomizer of one element among several. */
export class Randomizer {
  /** @param {any} given [unary, elements, size, own, other] @param {number} elements how many there must be */
  constructor(given, elements) {
    if (!Array.isArray(given) || given.length !== 5 || typeof given[0] !== "boolean" || given[1] !== elements) {
      throw new RangeError(`form: a randomizer of ${elements} elements is missing`);
    }
    /** Unary encoding, else subset selection. @type {boolean} */
    this.unary = given[0];
    this.elements = elements;
    /** Of a subset. */
    this.size = integer("size", given[2], this.unary ? 0 : 1, this.unary ? 0 : Math.max(1, elements - 1));
    /** P(the own element is reported) times 2^53. */
    this.own = numerator("own", given[3], 1n, WHOLE);
    /** The same of another element's bit. */
    this.other = numerator("other", given[4], 0n, this.unary ? WHOLE : 0n);
  }

  /** ln of the largest likelihood ratio of an output between two elements. @returns {number} */
  get loss() {
    if (this.elements === 1) return 0;
    const [p, q] = [this.own, this.other];
    if (p >= WHOLE || (this.unary && (q <= 0n || q >= WHOLE))) return Infinity;
    const [one, two] = this.unary
      ? [p * (WHOLE - q), q * (WHOLE - p)]
      : [p * BigInt(this.elements - this.size), (WHOLE - p) * BigInt(this.size)];
    return one > two ? logRatio(one, two) : logRatio(two, one);
  }

  /** The reported elements, ascending. @param {number} element @param {ExactCoins} coins @returns {number[]} */
  draw(element, coins) {
    if (this.unary) {
      const found = [];
      for (let e = 0; e < this.elements; e++) if (coins.flip(e === element ? this.own : this.other)) found.push(e);
      return found;
    }
    const kept = coins.flip(this.own);
    const others = this.elements - 1;
    /** @type {Set<number>} */
    const taken = new Set();
    for (let j = others - this.size + (kept ? 1 : 0); j < others; j++) { // Floyd: a uniform subset of the others
      let t = Number(coins.below(BigInt(j + 1)));
      if (t >= element) t += 1;
      if (taken.has(t)) t = j >= element ? j + 1 : j;
      taken.add(t);
    }
    if (kept) taken.add(element);
    return [...taken].sort((a, b) => a - b);
  }
}

/** The form of a session of reports, and what a device does with it. */
export class ReportDevice extends Pairs {
  /** @param {Record<string, any>} fields @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, digest) {
    super(fields, FIELDS);
    this.digest = digest;
    /** How many steps are reported. */
    this.steps = integer("steps", fields.steps, 1, this.counted);
    /** P(a report is about the reward) times 2^53. */
    this.share = numerator("share", fields.share, 0n, WHOLE - 1n);
    if (!["any", "deterministic", "stochastic"].includes(fields.plans)) throw new RangeError("plans: must be any, deterministic or stochastic");
    /** @type {"any" | "deterministic" | "stochastic"} */
    this.plans = fields.plans;
    if (typeof fields.shuffled !== "boolean") throw new RangeError("shuffled: must be true or false");
    /** @type {boolean} */
    this.shuffled = fields.shuffled;
    const two = (/** @type {string} */ name, /** @type {number} */ times) => {
      const given = fields[name];
      if (!Array.isArray(given) || given.length !== 2) throw new RangeError(`${name}: must be two randomizers`);
      return [this.states, this.pairs].map((pairs, i) => new Randomizer(given[i], times * pairs));
    };
    /** Of moves and of rewards, each under a deterministic and under a stochastic policy. @type {Randomizer[][]} */
    this.randomizers = [two("moves", this.states), two("rewards", 2)];
  }

  /** The device of a published form. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<ReportDevice>} */
  static async fromBytes(form) {
    const { kind, fields } = headOf(form);
    if (kind !== "reports") throw new RangeError(`form: of kind '${kind}', not reports`);
    return new ReportDevice(fields, (await sha256(form)).slice(0, 16));
  }

  /** What one message gives away. @returns {Guarantee} */
  get guarantee() {
    const plans = { deterministic: [0], stochastic: [1], any: [0, 1] }[this.plans];
    const about = this.share > 0n ? [0, 1] : [0];
    const epsilon = this.steps * Math.max(...about.flatMap((one) => plans.map((plan) => this.randomizers[one][plan].loss)));
    return new Guarantee({ epsilon, shuffled: this.shuffled });
  }

  /**
   * (H, S) rows that a deterministic policy plays; null where all pairs are in the alphabet.
   * @param {any} policy (H, S) actions, or (H, S, A) probabilities @returns {number[][] | null}
   */
  policyRows(policy) {
    const fits = Array.isArray(policy) && policy.length === this.horizon && policy.every((one) => Array.isArray(one) && one.length === this.states);
    if (fits && policy.flat().every((/** @type {any} */ one) => Array.isArray(one) && one.length === this.actions)) {
      if (this.plans === "deterministic") throw new RangeError("policy: must be deterministic, as the form's plans are");
      return null;
    }
    if (!fits || !policy.flat().every((/** @type {any} */ one) => Number.isInteger(one) && one >= 0 && one < this.actions)) {
      throw new RangeError("policy: must be (H, S) actions or (H, S, A) probabilities");
    }
    const rows = policy.map((/** @type {number[]} */ one) => one.map((action, s) => this.row(s, action)));
    if (rows.flat().some((/** @type {number} */ one) => one < 0)) throw new RangeError("policy: plays an action that is not admissible in its state");
    return this.plans === "stochastic" ? null : rows;
  }

  /**
   * The message to a plan: one trajectory, one time.
   * @param {number} plan @param {unknown} policy (H, S) actions, or (H, S, A) probabilities
   * @param {import("./pairs.js").Trajectory} life @param {import("./coins.js").Bytes} [bytes] the system's by default
   * @returns {Uint8Array<ArrayBuffer>}
   */
  message(plan, policy, life, bytes) {
    let { states, rows, rewards } = this.checked(life);
    let played = this.policyRows(policy);
    if (this.step !== null) { // as in a problem of that step alone
      const h = this.step;
      [states, rows, rewards, played] = [states.slice(h, h + 2), rows.slice(h, h + 1), rewards.slice(h, h + 1), played && played.slice(h, h + 1)];
    }
    const coins = new ExactCoins(bytes);
    /** @type {number[]} */
    const words = [];
    for (const h of this.#steps(coins)) {
      const about = this.share > 0n && coins.flip(this.share) ? 1 : 0;
      const one = this.randomizers[about][played === null ? 1 : 0];
      /** @type {number | null} */
      let element = null; // who did not follow her policy reports a uniform element
      if (played === null || rows[h] === played[h][states[h]]) {
        const group = played === null ? rows[h] : states[h];
        element = about === 0 ? group * this.states + states[h + 1] : 2 * group + (coins.flip(BigInt(Math.floor(rewards[h] * GRID))) ? 1 : 0);
      }
      const hits = one.draw(element ?? Number(coins.below(BigInt(one.elements))), coins);
      words.push(h, about, hits.length, ...hits);
    }
    const payload = new Uint8Array(4 * words.length);
    const view = new DataView(payload.buffer);
    words.forEach((word, i) => view.setInt32(4 * i, word, true));
    return envelope("reports", plan, this.digest, coins.nonce(), payload);
  }

  /** A uniform subset of the steps (Floyd's algorithm), ascending. @param {ExactCoins} coins @returns {number[]} */
  #steps(coins) {
    /** @type {Set<number>} */
    const chosen = new Set();
    for (let j = this.counted - this.steps; j < this.counted; j++) {
      const t = Number(coins.below(BigInt(j + 1)));
      chosen.add(chosen.has(t) ? j : t);
    }
    return [...chosen].sort((a, b) => a - b);
  }
}
