/**
 * The device of noisy sums over real-valued contexts (local privacy): every cell of every block gets noise.
 *
 * Source and proofs: `discreet.device.linear_device` and `discreet.device.context_form`, whose messages these are,
 * byte for byte.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { ExactCoins } from "./coins.js";
import { packed } from "./counts.js";
import { arraysOf, envelope, headOf } from "./envelope.js";
import { FeatureMap } from "./features.js";
import { Guarantee } from "./guarantee.js";
import { discreteGaussian, discreteLaplace, fractionOf, rounded } from "./noise.js";

const FIELDS = ["family", "form.actions", "form.features", "form.horizon", "form.mask", "form.names", "form.states", "grid", "session"];
const GRID = 2 ** -12; // features are truncated to multiples of it

/** One user's record. @typedef {{states: readonly import("./features.js").Context[], actions: readonly number[], rewards: readonly number[]}} ContextRecord states: one context */

/** @param {readonly number[]} a @param {readonly number[]} b */
const same = (a, b) => a.length === b.length && a.every((one, i) => one === b[i]);

/** The form of a session of noisy sums, and what a device does with it. */
export class ContextDevice {
  /** @param {Record<string, any>} fields with the arrays @param {FeatureMap} features @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, features, digest) {
    this.features = features;
    this.digest = digest;
    const { family, grid, offsets, scales, units } = fields;
    if (Object.keys(fields).sort().join() !== [...FIELDS, "offsets", "scales", "units"].sort().join()) throw new RangeError(`form: must hold ${FIELDS.join(", ")} and three arrays`);
    if (family !== "gaussian" && family !== "laplace") throw new RangeError("family: must be gaussian or laplace");
    if (grid === null) throw new RangeError("grid: is missing: noise in floating point, for simulation, protects nobody and is not made here");
    integer("grid", grid, 2, 2 ** 20);
    if (grid & (grid - 1)) throw new RangeError("grid: must be a power of two");
    if (typeof fields.session !== "string" || !/^[0-9a-f]{16}$/.test(fields.session)) throw new RangeError("session: must be 16 hexadecimal digits");
    this.states = integer("form.states", fields["form.states"], 1, 1);
    this.horizon = integer("form.horizon", fields["form.horizon"], 1, 1);
    this.actions = integer("form.actions", fields["form.actions"], features.actions, features.actions);
    if (fields["form.mask"] !== null || JSON.stringify(fields["form.names"]) !== '["gram","response"]') throw new RangeError("form: must have no mask, and the names gram and response");
    const { blocks, dimension: p } = features;
    /** The blocks of cells with one scale: number of cells, and their unit. @type {{diagonal: boolean, gram: boolean, size: number, unit: number}[]} */
    this.parts = [];
    for (let b = 0; b < blocks; b++) {
      this.parts.push({ diagonal: true, gram: true, size: p, unit: GRID * GRID });
      if (p > 1) this.parts.push({ diagonal: false, gram: true, size: (p * (p - 1)) / 2, unit: GRID * GRID });
    }
    for (let b = 0; b < blocks; b++) this.parts.push({ diagonal: false, gram: false, size: p, unit: GRID / grid });
    const ends = [0];
    for (const { size } of this.parts) ends.push(ends[ends.length - 1] + size);
    if (!same(offsets, ends) || !same(units, this.parts.map((one) => one.unit))) throw new RangeError("offsets, units: are not those of the form's contributions");
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
    this.parts.forEach(({ diagonal, gram, unit }, i) => {
      const scale = this.scales[i] * unit;
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
    const shared = this.features.form === "shared";
    const block = shared ? 0 : action;
    const phi = this.features.phi(x)[shared ? action : 0].map((one) => BigInt(Math.trunc(one / GRID)));
    const each = phi.length > 1 ? 2 : 1;
    const response = this.features.blocks * each + block;
    let at = 0;
    phi.forEach((one, i) => {
      cells[each * block][i] += one * one;
      cells[response][i] += one * y;
      for (const other of phi.slice(i + 1)) cells[each * block + 1][at++] += one * other;
    });
    return envelope("sums", plan, this.digest, coins.nonce(), packed(cells));
  }
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
