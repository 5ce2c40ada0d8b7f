/**
 * The devices of noisy sums over real-valued contexts, under local privacy and in the shuffle model: every cell of every
 * block gets noise.
 *
 * Source and proofs: `discreet.device.linear_device`, `discreet.device.skellam_device` and
 * `discreet.device.context_form`, whose messages these are, byte for byte.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { bitLength, ExactCoins, WordCoins } from "./coins.js";
import { packed } from "./counts.js";
import { arraysOf, envelope, headOf } from "./envelope.js";
import { FeatureMap } from "./features.js";
import { Guarantee } from "./guarantee.js";
import { discreteGaussian, discreteLaplace, fractionOf, rounded } from "./noise.js";
import { MOST_VARIANCE, skellam } from "./skellam.js";

const FIELDS = ["form.actions", "form.features", "form.horizon", "form.mask", "form.names", "form.states", "session"];
const REWARD_LEVELS = 64; // in the shuffle model, rewards are rounded to multiples of 1 / 64
const TAIL_BITS = 160; // noise exceeds its bound with probability 2^-160 at most
const GRID = 2 ** -12; // features are truncated to multiples of it

/** One user's record. @typedef {{states: readonly import("./features.js").Context[], actions: readonly number[], rewards: readonly number[]}} ContextRecord states: one context */

/** @param {readonly number[]} a @param {readonly number[]} b */
const same = (a, b) => a.length === b.length && a.every((one, i) => one === b[i]);

/** Cells with one scale of noise. @typedef {{diagonal: boolean, gram: boolean, size: number}} Part */

/** What all forms of sums over contexts have in common. */
class ContextForm {
  /** @param {Record<string, any>} fields with the arrays @param {FeatureMap} features @param {Uint8Array} digest of the form, 16 bytes @param {readonly string[]} more names of further fields */
  constructor(fields, features, digest, more) {
    this.features = features;
    this.digest = digest;
    const known = [...FIELDS, ...more];
    if (Object.keys(fields).sort().join() !== known.sort().join()) throw new RangeError(`form: must hold ${known.join(", ")}, and nothing else`);
    if (typeof fields.session !== "string" || !/^[0-9a-f]{16}$/.test(fields.session)) throw new RangeError("session: must be 16 hexadecimal digits");
    this.states = integer("form.states", fields["form.states"], 1, 1);
    this.horizon = integer("form.horizon", fields["form.horizon"], 1, 1);
    this.actions = integer("form.actions", fields["form.actions"], features.actions, features.actions);
    if (fields["form.mask"] !== null || JSON.stringify(fields["form.names"]) !== '["gram","response"]') throw new RangeError("form: must have no mask, and the names gram and response");
    const { blocks, dimension: p } = features;
    /** The blocks of cells, in their order. @type {Part[]} */
    this.parts = [];
    for (let b = 0; b < blocks; b++) {
      this.parts.push({ diagonal: true, gram: true, size: p });
      if (p > 1) this.parts.push({ diagonal: false, gram: true, size: (p * (p - 1)) / 2 });
    }
    for (let b = 0; b < blocks; b++) this.parts.push({ diagonal: false, gram: false, size: p });
  }

  /** Features of the action that a user took, as multiples of 1 / levels, cut towards 0. @param {import("./features.js").Context} x @param {number} action @param {number} levels a power of two @returns {number[]} */
  truncated(x, action, levels) {
    return this.features.phi(x)[this.features.form === "shared" ? action : 0].map((one) => Math.trunc(one * levels));
  }

  /** Call `add` for each cell that the contribution changes: (part, cell, integer). @param {number[]} phi in units @param {number} action @param {number} y in units @param {(part: number, cell: number, value: number) => void} add */
  contribution(phi, action, y, add) {
    const block = this.features.form === "shared" ? 0 : action;
    const each = phi.length > 1 ? 2 : 1;
    const response = this.features.blocks * each + block;
    let at = 0;
    phi.forEach((one, i) => {
      add(each * block, i, one * one);
      add(response, i, one * y);
      for (const other of phi.slice(i + 1)) add(each * block + 1, at++, one * other);
    });
  }
}

/** The form of a session of noisy sums under local privacy, and what a device does with it. */
export class ContextDevice extends ContextForm {
  /** @param {Record<string, any>} fields with the arrays @param {FeatureMap} features @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, features, digest) {
    super(fields, features, digest, ["family", "grid", "offsets", "scales", "units"]);
    const { family, grid, offsets, scales, units } = fields;
    if (family !== "gaussian" && family !== "laplace") throw new RangeError("family: must be gaussian or laplace");
    if (grid === null) throw new RangeError("grid: is missing: noise in floating point, for simulation, protects nobody and is not made here");
    integer("grid", grid, 2, 2 ** 20);
    if (grid & (grid - 1)) throw new RangeError("grid: must be a power of two");
    const ends = [0];
    for (const { size } of this.parts) ends.push(ends[ends.length - 1] + size);
    if (!same(offsets, ends) || !same(units, this.parts.map((one) => unitOf(one, grid)))) throw new RangeError("offsets, units: are not those of the form's contributions");
    if (scales.length !== this.parts.length || !scales.every((/** @type {number} */ one) => one > 0 && Number.isFinite(one))) throw new RangeError("scales: must be positive numbers, one for each block");
    /** @type {"gaussian" | "laplace"} */
    this.family = family;
    /** @type {number} */
    this.grid = grid;
    /** In units of the cells. @type {number[]} */
    this.scales = scales;
  }

  /** The device of a published form. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<ContextDevice>} */
  static async fromBytes(form) {
    const { kind, fields } = headOf(form);
    if (kind !== "contexts") throw new RangeError(`form: of kind '${kind}', not contexts`);
    const features = await FeatureMap.of(fields["form.features"]);
    return new ContextDevice({ ...fields, ...arraysOf(form) }, features, (await sha256(form)).slice(0, 16));
  }

  /** What one message gives away. @returns {Guarantee} */
  get guarantee() {
    const laplace = this.family === "laplace";
    let [matrix, vector] = [Infinity, Infinity];
    this.parts.forEach((part, i) => {
      const { diagonal, gram } = part;
      const scale = this.scales[i] * unitOf(part, this.grid);
      if (gram) matrix = Math.min(matrix, diagonal && !laplace ? scale / Math.SQRT2 : scale);
      else vector = Math.min(vector, scale);
    });
    if (laplace) {
      const l1 = Math.sqrt(this.features.dimension);
      return new Guarantee({ epsilon: (l1 ** 2 + 1) / matrix + l1 / vector });
    }
    const [alpha, beta] = [1 / matrix ** 2, 1 / vector ** 2];
    return new Guarantee({ rho: 0.5 * (beta <= 4 * alpha ? (4 * alpha + beta) ** 2 / (16 * alpha) : beta) });
  }

  /**
   * The message to a plan: one record, one time.
   * @param {number} plan @param {unknown} policy is not looked at
   * @param {ContextRecord} life @param {import("./coins.js").Bytes} [bytes] the system's by default
   * @returns {Uint8Array<ArrayBuffer>}
   */
  message(plan, policy, life, bytes) {
    const { x, action, reward } = checkedRecord(this.features, life);
    const coins = new ExactCoins(bytes);
    const grid = BigInt(this.grid);
    const y = rounded(reward, grid, coins) - grid / 2n;
    const draw = this.family === "laplace" ? discreteLaplace : discreteGaussian;
    const cells = this.parts.map(({ size }, i) => {
      const own = fractionOf(this.scales[i]);
      return Array.from({ length: size }, () => draw(own, coins));
    });
    this.contribution(this.truncated(x, action, 1 / GRID), action, Number(y), (part, at, value) => (cells[part][at] += BigInt(value)));
    return envelope("sums", plan, this.digest, coins.nonce(), packed(cells));
  }
}

/** Value of one unit of the cells, of a device with a grid. @param {Part} part @param {number} grid @returns {number} */
const unitOf = ({ gram }, grid) => (gram ? GRID * GRID : GRID / grid);

/** The form of a batch of the shuffle model: each device adds its share of the noise. */
export class SkellamDevice extends ContextForm {
  /** @param {Record<string, any>} fields @param {FeatureMap} features @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, features, digest) {
    super(fields, features, digest, ["variances"]);
    const { variances } = fields;
    if (!Array.isArray(variances) || variances.length !== this.parts.length) throw new RangeError(`variances: must be ${this.parts.length} integers`);
    /** Of one device's noise, in squared units, for each part. @type {number[]} */
    this.variances = variances.map((one, i) => integer(`variances[${i}]`, one, 2, MOST_VARIANCE));
    if (variances.some((one) => one % 2)) throw new RangeError("variances: must be even");
    /** Features are multiples of 1 / levels. */
    this.levels = 2 ** 7;
    while (this.levels < 32 * Math.sqrt(features.dimension)) this.levels *= 2;
    const reach = this.parts.map(({ gram }, i) => (gram ? this.levels ** 2 : this.levels * REWARD_LEVELS) + noiseReach(this.variances[i]));
    /** Bytes of a cell. */
    this.width = (bitLength(BigInt(Math.max(...reach))) + 8) >> 3;
    if (this.width > 7) throw new RangeError("variances: must give messages of at most 7 bytes a cell");
  }

  /** The device of a published form. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<SkellamDevice>} */
  static async fromBytes(form) {
    const { kind, fields } = headOf(form);
    if (kind !== "skellam-contexts") throw new RangeError(`form: of kind '${kind}', not skellam-contexts`);
    const features = await FeatureMap.of(fields["form.features"]);
    return new SkellamDevice(fields, features, (await sha256(form)).slice(0, 16));
  }

  /** What one message gives away without the shuffler: no epsilon holds. @returns {Guarantee} */
  get guarantee() {
    return new Guarantee({ epsilon: Infinity, shuffled: true });
  }

  /**
   * The message to a plan: one record, one time.
   * @param {number} plan @param {unknown} policy is not looked at
   * @param {ContextRecord} life @param {import("./coins.js").Bytes} [bytes] the system's by default
   * @returns {Uint8Array<ArrayBuffer>}
   */
  message(plan, policy, life, bytes) {
    const { x, action, reward } = checkedRecord(this.features, life);
    const coins = new WordCoins(bytes);
    const scaled = reward * REWARD_LEVELS; // exact, because 64 is a power of two
    const up = coins.integers(1)[0] < BigInt(Math.floor((scaled - Math.floor(scaled)) * 2 ** 64));
    const y = Math.floor(scaled) + (up ? 1 : 0) - REWARD_LEVELS / 2;
    const cells = this.parts.map(({ size }, i) => skellam(this.variances[i], size, coins));
    this.contribution(this.truncated(x, action, this.levels), action, y, (part, at, value) => (cells[part][at] += value));
    const payload = new Uint8Array(this.width * this.parts.reduce((sum, { size }) => sum + size, 0));
    const whole = new DataView(new ArrayBuffer(8));
    let at = 0;
    for (const part of cells) {
      for (const one of part) {
        whole.setBigInt64(0, BigInt(one), true);
        payload.set(new Uint8Array(whole.buffer, 0, this.width), at);
        at += this.width;
      }
    }
    return envelope("sums", plan, this.digest, coins.nonce(), payload);
  }
}

/** A number that Skellam noise exceeds with probability 2^-160 at most, by Chernoff's bound. @param {number} variance @returns {number} */
function noiseReach(variance) {
  const wanted = (TAIL_BITS + 1) * Math.LN2;
  let high = 64;
  while (high * Math.asinh(high / variance) - (high * high) / (Math.hypot(high, variance) + variance) < wanted) high *= 1.25;
  return Math.ceil(high);
}

/**
 * Check one record: one context, one action, one reward in [0, 1]. Throws a RangeError before anything is sent.
 * @param {FeatureMap} features @param {ContextRecord} life
 * @returns {{x: import("./features.js").Context, action: number, reward: number}}
 */
export function checkedRecord(features, { states, actions, rewards }) {
  const [x, a, r] = [states, actions, rewards].map((one) => Array.from(/** @type {any[]} */ (one ?? [])));
  if (x.length !== 1) throw new RangeError("states: must be a list with one context");
  if (a.length !== 1) throw new RangeError("actions: must be a list with one action");
  const action = integer("actions[0]", a[0], 0, features.actions - 1);
  const reward = r[0];
  if (r.length !== 1 || typeof reward !== "number" || !(reward >= 0 && reward <= 1)) throw new RangeError("rewards: must be 1 number in [0, 1]");
  features.clipped(x[0]); // checks its shape
  return { x: x[0], action, reward };
}
