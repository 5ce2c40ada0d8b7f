/**
 * What one message gives away by itself, computed on the device from the scales and probabilities of its form.
 *
 * Neighbours: the person's whole trajectory of one episode is replaced by any other one. From rho to epsilon at
 * a delta: the best Renyi order of zCDP (Canonne, Kamath and Steinke 2020, proposition 12):
 *
 *     ln(1/delta) = rho t^2 + ln(1 + t),      epsilon = (2 t + 1) rho - ln(1 + 1/t).
 * @module
 */

/** Pure epsilon (infinite: none holds) or rho of zero-concentrated differential privacy. */
export class Guarantee {
  /** @param {{epsilon?: number, rho?: number, shuffled?: boolean}} given */
  constructor({ epsilon, rho, shuffled = false }) {
    /** @type {number | undefined} */
    this.epsilon = epsilon;
    /** @type {number | undefined} */
    this.rho = rho;
    /** Is the message meant for a shuffler? What is stated holds without one. */
    this.shuffled = shuffled;
    Object.freeze(this);
  }

  /** The epsilon at delta; at 0, pure: infinite where there is none. @param {number} delta @returns {number} */
  epsilonAt(delta) {
    if (!(delta >= 0 && delta < 1)) throw new RangeError(`delta = ${delta}: must be in [0, 1)`);
    if (this.epsilon !== undefined) return this.epsilon;
    const rho = /** @type {number} */ (this.rho);
    if (delta === 0) return Infinity;
    const target = -Math.log(delta);
    let [low, high] = [0, Math.sqrt(target / rho)];
    for (let i = 0; i < 200; i++) {
      const middle = 0.5 * (low + high);
      if (middle === low || middle === high) break;
      if (rho * middle * middle + Math.log1p(middle) >= target) high = middle;
      else low = middle;
    }
    return Math.max(0, (2 * high + 1) * rho - Math.log1p(1 / high));
  }

  /** In words. @returns {string} */
  toString() {
    const who = "This message protects one user's whole trajectory of one episode against replacement by any other. Other messages are not counted. Only the user's device is trusted.";
    const without = this.shuffled ? "Without the shuffler, for a reader of this message: " : "";
    if (this.rho !== undefined) return `${without}local zero-concentrated differential privacy, rho = ${up(this.rho)}. ${who}`;
    const epsilon = /** @type {number} */ (this.epsilon);
    if (epsilon === Infinity) return `${without}no epsilon holds. ${who}`;
    return `${without}pure local differential privacy, epsilon = ${up(epsilon)}. ${who}`;
  }
}

/** With six digits, rounded up (but for 1e-9 of it): no promise is below the truth. @param {number} x @returns {number} */
function up(x) {
  const near = Number(x.toPrecision(6));
  if (near >= x * (1 - 1e-9)) return near;
  return Number((near + 10 ** (Math.floor(Math.log10(near)) - 5)).toPrecision(6));
}

/** ln of a positive whole number, also a large one. @param {bigint} n @returns {number} */
function logOf(n) {
  const digits = n.toString(16);
  if (digits.length <= 13) return Math.log(Number(n));
  const kept = digits.slice(0, 13);
  return Math.log(parseInt(kept, 16)) + (digits.length - 13) * Math.log(16);
}

/** ln of a ratio of at least 1 of positive whole numbers, accurate also near 1. @param {bigint} top @param {bigint} bottom @returns {number} */
export function logRatio(top, bottom) {
  if (top < 2n * bottom) return Math.log1p(quotient(top - bottom, bottom));
  return logOf(top) - logOf(bottom);
}

/** A quotient of large whole numbers, to the last bits. @param {bigint} top @param {bigint} bottom @returns {number} */
function quotient(top, bottom) {
  if (top === 0n) return 0;
  let shift = 0n;
  while ((top << shift) / bottom < 1n << 60n) shift += 30n;
  return Number((top << shift) / bottom) / 2 ** Number(shift);
}
