/**
 * The device of noisy counters (local privacy): every counter gets noise, visited or not.
 *
 * Source and proofs: `discreet.device.count_device`, whose messages these are, byte for byte.
 * @module
 */
import { integer, sha256 } from "./bytes.js";
import { ExactCoins } from "./coins.js";
import { envelope, headOf } from "./envelope.js";
import { Guarantee } from "./guarantee.js";
import { discreteGaussian, discreteLaplace, fractionOf, rounded } from "./noise.js";
import { Pairs } from "./pairs.js";

const FAMILIES = ["visits", "transition_counts", "reward_sums", "centered_reward_sums", "pooled_transition_counts", "pooled_reward_sums"];
const OF_REWARDS = ["reward_sums", "centered_reward_sums", "pooled_reward_sums"];
const POOLED = ["pooled_transition_counts", "pooled_reward_sums"];
const FIELDS = ["states", "actions", "horizon", "families", "noise", "grid", "rows", "step", "stationary", "centered", "pooled", "session"];

/**
 * The most that two persons' records of so many steps differ by, if persons in different states share no pair.
 * @param {number[]} cases another pair, another next state, other rewards alone @param {number} steps @returns {number}
 */
function inARow([pair, successor, same], steps) {
  let [together, parted] = [0, 0]; // of the steps that are left, from one state and from two
  for (let i = 0; i < steps; i++) {
    const apart = pair + Math.max(together, parted);
    [together, parted] = [Math.max(apart, successor + parted, same + together), apart];
  }
  return together;
}

/** The form of a session of noisy counters, and what a device does with it. */
export class CountDevice extends Pairs {
  /** @param {Record<string, any>} fields @param {Uint8Array} digest of the form, 16 bytes */
  constructor(fields, digest) {
    super(fields, FIELDS);
    this.digest = digest;
    const { families, noise, grid, stationary, centered, pooled } = fields;
    if (noise !== "laplace" && noise !== "gaussian") throw new RangeError("noise: must be laplace or gaussian");
    if (grid === null) throw new RangeError("grid: is missing: noise in floating point, for simulation, protects nobody and is not made here");
    integer("grid", grid, 2, 2 ** 20);
    if (grid & (grid - 1)) throw new RangeError("grid: must be a power of two");
    if (!["none", "all", "first"].includes(pooled)) throw new RangeError("pooled: must be none, all or first");
    if (typeof stationary !== "boolean" || typeof centered !== "boolean") throw new RangeError("stationary, centered: must be true or false");
    const fit = Array.isArray(families) && families.every((one) => Array.isArray(one) && one.length === 2 && FAMILIES.includes(one[0]) && typeof one[1] === "number" && one[1] > 0 && Number.isFinite(one[1]));
    const names = fit ? families.map((/** @type {any} */ one) => one[0]) : [];
    if (!fit || new Set(names).size < names.length || !names.includes("transition_counts")) {
      throw new RangeError(`families: must be of ${FAMILIES.join(", ")}, with transition_counts, each with a positive scale`);
    }
    if (
      names.includes("centered_reward_sums") !== centered || (centered && names.includes("reward_sums")) ||
      (pooled !== "none") !== names.some((/** @type {string} */ one) => POOLED.includes(one)) ||
      (stationary && (pooled !== "none" || this.step !== null)) || (this.step !== null && pooled !== "none")
    ) {
      throw new RangeError("families: do not fit centered, pooled, stationary and step");
    }
    /** @type {"laplace" | "gaussian"} */
    this.noise = noise;
    /** @type {number} */
    this.grid = grid;
    /** @type {[string, number][]} */
    this.families = families;
    /** @type {boolean} */
    this.stationary = stationary;
    /** @type {boolean} */
    this.centered = centered;
    /** @type {"none" | "all" | "first"} */
    this.pooled = pooled;
    /** Steps that have cells of their own. */
    this.slots = stationary || this.step !== null ? 1 : this.horizon;
  }

  /** The device of a published form. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<CountDevice>} */
  static async fromBytes(form) {
    const { kind, fields } = headOf(form);
    if (kind !== "counts") throw new RangeError(`form: of kind '${kind}', not counts`);
    return new CountDevice(fields, (await sha256(form)).slice(0, 16));
  }

  /** What one message gives away. @returns {Guarantee} */
  get guarantee() {
    const power = this.noise === "laplace" ? 1 : 2;
    const w = Object.fromEntries(this.families.map(([name, scale]) => [name, 1 / scale ** power]));
    const apart = !this.centered ? 2 : power === 1 ? 1 : 0.5;
    const h = this.counted;
    const of = (/** @type {string} */ visits, /** @type {string} */ moves, /** @type {string[]} */ rewards) => {
      const [v, t] = [w[visits] ?? 0, w[moves] ?? 0];
      const r = rewards.reduce((sum, name) => sum + (w[name] ?? 0), 0);
      return [2 * v + 2 * t + apart * r, 2 * t + r, r];
    };
    const perStep = of("visits", "transition_counts", ["reward_sums", "centered_reward_sums"]);
    const pooled = of("", "pooled_transition_counts", ["pooled_reward_sums"]);
    const total =
      (this.stationary || perStep[0] >= perStep[1]
        ? (this.stationary ? h ** power : h) * Math.max(...perStep)
        : inARow(perStep, h)) +
      (this.pooled === "first" ? Math.min(this.states, h) : h ** power) * Math.max(...pooled);
    return new Guarantee(power === 1 ? { epsilon: total } : { rho: 0.5 * total });
  }

  /**
   * The message to a plan: one trajectory, one time.
   * @param {number} plan @param {unknown} policy is not looked at
   * @param {import("./pairs.js").Trajectory} life @param {import("./coins.js").Bytes} [bytes] the system's by default
   * @returns {Uint8Array<ArrayBuffer>}
   */
  message(plan, policy, life, bytes) {
    const { states, rows, rewards } = this.checked(life);
    const coins = new ExactCoins(bytes);
    const draw = this.noise === "laplace" ? discreteLaplace : discreteGaussian;
    const blocks = this.families.map(([name, scale]) => {
      const unit = OF_REWARDS.includes(name) ? BigInt(this.grid) : 1n;
      const own = fractionOf(scale, unit);
      const pooled = POOLED.includes(name);
      const size = (pooled ? 1 : this.slots) * this.pairs * (OF_REWARDS.includes(name) || name === "visits" ? 1 : this.states);
      return { name, pooled, cells: Array.from({ length: size }, () => draw(own, coins)) };
    });
    const grid = BigInt(this.grid);
    const earned = rewards.map((one) => rounded(one, grid, coins) - (this.centered ? grid / 2n : 0n));
    const [from, to] = this.step === null ? [0, this.horizon] : [this.step, this.step + 1];
    for (const { name, pooled, cells } of blocks) {
      const seen = new Set();
      for (let h = from; h < to; h++) {
        if (pooled && this.pooled === "first") {
          if (seen.has(states[h])) continue;
          seen.add(states[h]);
        }
        const row = pooled || this.slots === 1 ? rows[h] : h * this.pairs + rows[h];
        if (OF_REWARDS.includes(name)) cells[row] += earned[h];
        else if (name === "visits") cells[row] += 1n;
        else cells[row * this.states + states[h + 1]] += 1n;
      }
    }
    return envelope("counts", plan, this.digest, coins.nonce(), packed(blocks.map((one) => one.cells)));
  }
}

/** Blocks of integers: a byte of width, then the integers in so many bytes, little-endian. @param {bigint[][]} blocks @returns {Uint8Array} */
export function packed(blocks) {
  const widths = blocks.map((cells) => {
    for (let width = 1; width <= 8; width++) {
      if (cells.every((one) => BigInt.asIntN(8 * width, one) === one)) return width;
    }
    throw new RangeError("noise: beyond 64 bits");
  });
  const found = new Uint8Array(blocks.reduce((sum, cells, i) => sum + 1 + cells.length * widths[i], 0));
  const whole = new Uint8Array(8);
  const view = new DataView(whole.buffer);
  let at = 0;
  blocks.forEach((cells, i) => {
    found[at++] = widths[i];
    for (const one of cells) {
      view.setBigInt64(0, one, true);
      found.set(whole.subarray(0, widths[i]), at);
      at += widths[i];
    }
  });
  return found;
}
