/**
 * Exact discrete noise: integers and random bytes, no floating-point number on the way.
 *
 * Source: Canonne, Kamath and Steinke 2020, algorithms 1 to 3. A number of 64-bit floating point is a fraction,
 * so scales are exact, and no law is truncated or rounded:
 *
 *     discrete Laplace  P(x) ~ e^(-|x| / b),      discrete Gaussian  P(x) ~ e^(-x^2 / (2 sigma^2)).
 *
 * How long a draw takes depends on its value.
 * @module
 */

/** @typedef {import("./coins.js").ExactCoins} ExactCoins */
/** In lowest terms. @typedef {{numerator: bigint, denominator: bigint}} Fraction */

/** The fraction that a finite number is, times a whole number. @param {number} value @param {bigint} [times] @returns {Fraction} */
export function fractionOf(value, times = 1n) {
  let exponent = 0;
  while (!Number.isInteger(value)) {
    value *= 2; // exact: the exponent alone changes
    exponent += 1;
  }
  let numerator = BigInt(value) * times;
  let denominator = 1n << BigInt(exponent);
  while (denominator > 1n && (numerator & 1n) === 0n) {
    numerator >>= 1n;
    denominator >>= 1n;
  }
  return { numerator, denominator };
}

/** True with probability e^(-numerator / denominator): algorithm 1, also above 1. @param {bigint} numerator @param {bigint} denominator @param {ExactCoins} coins @returns {boolean} */
function minusExp(numerator, denominator, coins) {
  while (numerator > denominator) {
    if (!minusExp(1n, 1n, coins)) return false;
    numerator -= denominator;
  }
  let k = 1n;
  while (coins.below(denominator * k) < numerator) k += 1n;
  return (k & 1n) === 1n;
}

/** A discrete Laplace variable: algorithm 2. @param {Fraction} scale @param {ExactCoins} coins @returns {bigint} */
export function discreteLaplace(scale, coins) {
  const { numerator: t, denominator: s } = scale;
  for (;;) {
    const low = coins.below(t);
    if (!minusExp(low, t, coins)) continue;
    let high = 0n;
    while (minusExp(1n, 1n, coins)) high += 1n;
    const size = (low + t * high) / s;
    const negative = coins.below(2n) === 1n;
    if (size || !negative) return negative ? -size : size;
  }
}

/** A discrete Gaussian variable: algorithm 3. @param {Fraction} sigma @param {ExactCoins} coins @returns {bigint} */
export function discreteGaussian(sigma, coins) {
  const t = sigma.numerator / sigma.denominator + 1n;
  const n = sigma.numerator ** 2n;
  const d = sigma.denominator ** 2n;
  for (;;) {
    const x = discreteLaplace({ numerator: t, denominator: 1n }, coins);
    const far = (x < 0n ? -x : x) * d * t - n;
    if (minusExp(far * far, 2n * n * d * t * t, coins)) return x;
  }
}

/** A reward in [0, 1] rounded at random, without bias, to a whole number of units 1 / grid. @param {number} reward @param {bigint} grid @param {ExactCoins} coins @returns {bigint} */
export function rounded(reward, grid, coins) {
  const { numerator, denominator } = fractionOf(reward, grid);
  return numerator / denominator + (coins.below(denominator) < numerator % denominator ? 1n : 0n);
}
