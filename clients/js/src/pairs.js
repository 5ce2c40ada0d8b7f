/**
 * What forms over admissible pairs (state, action) have in common, and the check of one trajectory.
 * @module
 */
import { integer } from "./bytes.js";

/**
 * @typedef {object} Trajectory
 * @property {readonly number[]} states (H + 1,)
 * @property {readonly number[]} actions (H,)
 * @property {readonly number[]} rewards (H,), in [0, 1]
 */

/** Sizes of a world, and which actions are admissible. */
export class Pairs {
  /** @param {Record<string, any>} fields @param {readonly string[]} known the names of all fields */
  constructor(fields, known) {
    if (Object.keys(fields).sort().join() !== [...known].sort().join()) {
      throw new RangeError(`form: must hold ${known.join(", ")}, and nothing else`);
    }
    this.states = integer("states", fields.states, 1, 2 ** 31);
    this.actions = integer("actions", fields.actions, 1, 2 ** 31);
    this.horizon = integer("horizon", fields.horizon, 1, 2 ** 31);
    /** @type {number | null} the one step that is counted; null: all */
    this.step = fields.step === null ? null : integer("step", fields.step, 0, this.horizon - 1);
    if (typeof fields.session !== "string" || !/^[0-9a-f]{16}$/.test(fields.session)) {
      throw new RangeError("session: must be 16 hexadecimal digits");
    }
    /** @type {number[][] | null} */
    this.rows = fields.rows;
    /** Admissible pairs. */
    this.pairs = this.states * this.actions;
    if (this.rows !== null) {
      const rows = this.rows;
      const fits = Array.isArray(rows) && rows.length === this.states && rows.every((one) => Array.isArray(one) && one.length === this.actions);
      const given = fits ? rows.flat().filter((one) => one !== -1).sort((a, b) => a - b) : [];
      if (!given.length || given.some((one, i) => one !== i)) throw new RangeError("rows: must number the admissible pairs");
      this.pairs = given.length;
    }
    /** Steps that may be counted. */
    this.counted = this.step === null ? this.horizon : 1;
  }

  /** The row of a pair; -1: not admissible. @param {number} state @param {number} action @returns {number} */
  row(state, action) {
    return this.rows === null ? state * this.actions + action : this.rows[state][action];
  }

  /** Check one trajectory. @param {Trajectory} life @returns {{states: number[], rows: number[], rewards: number[]}} */
  checked(life) {
    return checked(this, life);
  }
}

/**
 * Check one trajectory, and return its states, the rows of its pairs, and its rewards. Throws a RangeError if the
 * trajectory is not valid, before anything is sent.
 * @param {{states: number, actions: number, horizon: number, row(state: number, action: number): number}} sizes
 * @param {Trajectory} life @returns {{states: number[], rows: number[], rewards: number[]}}
 */
export function checked(sizes, life) {
  const lists = [life.states, life.actions, life.rewards].map((one) => Array.from(one ?? []));
  const [states, actions, rewards] = lists;
  for (const [name, found, count, size] of /** @type {[string, number[], number, number][]} */ ([
    ["states", states, sizes.horizon + 1, sizes.states],
    ["actions", actions, sizes.horizon, sizes.actions],
  ])) {
    if (found.length !== count || !found.every((one) => Number.isInteger(one) && one >= 0 && one < size)) {
      throw new RangeError(`${name}: must be ${count} integers in [0, ${size - 1}]`);
    }
  }
  if (rewards.length !== sizes.horizon || !rewards.every((one) => typeof one === "number" && one >= 0 && one <= 1)) {
    throw new RangeError(`rewards: must be ${sizes.horizon} numbers in [0, 1]`);
  }
  const rows = actions.map((action, h) => sizes.row(states[h], action));
  if (rows.some((one) => one < 0)) throw new RangeError("actions: one of them is not admissible in its state");
  return { states, rows, rewards };
}
