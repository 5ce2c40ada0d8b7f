/**
 * The laws of what is drawn, by chi-square: the bytes are fixed, so a test passes always or never; over the
 * choice of the seeds each of the tests below fails with probability 1e-7 at most, all of them with 1e-6.
 */
import assert from "node:assert/strict";
import { test } from "node:test";

import { ShuffleEncoder } from "../src/bits.js";
import { ExactCoins, WordCoins } from "../src/coins.js";
import { FeatureMap } from "../src/features.js";
import { discreteGaussian, discreteLaplace, fractionOf, rounded } from "../src/noise.js";
import { Randomizer } from "../src/reports.js";
import { skellam, tableOf } from "../src/skellam.js";
import { ContextDevice, SkellamDevice } from "../src/sums.js";
import { Stream } from "./stream.js";

const FALSE_ALARM = 1e-7;

/** A chi-square variable's tail, by the regularised incomplete gamma function. @param {number} x @param {number} k */
function tail(x, k) {
  const [a, z] = [k / 2, x / 2];
  let log = a * Math.log(z) - z; // of z^a e^-z / Gamma(a + 1), below
  for (let i = a; i > 0.25; i -= 1) log -= Math.log(i);
  if (k % 2) log -= 0.5 * Math.log(Math.PI);
  let [term, sum] = [1, 1];
  for (let n = 1; term > 1e-17 * sum; n++) {
    term *= z / (a + n);
    sum += term;
  }
  return 1 - Math.exp(log) * sum;
}

/** @param {Map<string | number, number>} counts @param {Map<string | number, number>} law @param {number} n */
function fits(counts, law, n) {
  let [x, cells, restSeen, restWanted] = [0, 0, n, n];
  for (const [value, p] of law) {
    if (p * n < 10) continue;
    const seen = counts.get(value) ?? 0;
    x += (seen - p * n) ** 2 / (p * n);
    [cells, restSeen, restWanted] = [cells + 1, restSeen - seen, restWanted - p * n];
  }
  if (restWanted >= 10) [x, cells] = [x + (restSeen - restWanted) ** 2 / restWanted, cells + 1];
  else assert.ok(restSeen < 60, `${restSeen} outside, ${restWanted} expected`);
  assert.ok(cells >= 2);
  const chance = tail(x, cells - 1);
  assert.ok(chance > FALSE_ALARM, `chi-square ${x} of ${cells} cells: ${chance}`);
}

/** @template T @param {number} n @param {() => T} draw @returns {Map<T, number>} */
function counted(n, draw) {
  const found = new Map();
  for (let i = 0; i < n; i++) {
    const one = draw();
    found.set(one, (found.get(one) ?? 0) + 1);
  }
  return found;
}

/** @param {(x: number) => number} weight @returns {Map<number, number>} */
function lawOf(weight) {
  const law = new Map();
  let sum = 0;
  for (let x = -400; x <= 400; x++) sum += weight(x);
  for (let x = -400; x <= 400; x++) law.set(x, weight(x) / sum);
  return law;
}

test("the tail of chi-square is the known one", () => {
  for (const [x, k, p] of [[3.841458820694124, 1, 0.05], [18.307038053275146, 10, 0.05], [30, 5, 1.4748581e-5], [60, 17, 1.0509033e-6]]) {
    assert.ok(Math.abs(tail(x, k) / p - 1) < 1e-3, `${tail(x, k)}`);
  }
});

test("uniform integers", () => {
  const coins = new ExactCoins(new Stream("law: uniform").bytes);
  for (const n of [3, 200, 257]) {
    const law = new Map(Array.from({ length: n }, (_, i) => [i, 1 / n]));
    fits(counted(60000, () => Number(coins.below(BigInt(n)))), law, 60000);
  }
});

test("discrete Laplace and Gaussian noise", () => {
  const coins = new ExactCoins(new Stream("law: noise").bytes);
  for (const scale of [0.4, 2.3, 9.7]) {
    const own = fractionOf(scale);
    fits(counted(40000, () => Number(discreteLaplace(own, coins))), lawOf((x) => Math.exp(-Math.abs(x) / scale)), 40000);
    fits(counted(40000, () => Number(discreteGaussian(own, coins))), lawOf((x) => Math.exp((-x * x) / (2 * scale * scale))), 40000);
  }
});

/** Law of a difference of two Poisson variables of this mean. @param {number} mean @returns {Map<number, number>} */
function skellamLaw(mean) {
  const chances = [Math.exp(-mean)];
  for (let k = 1; k <= mean + 400; k++) chances.push((chances[k - 1] * mean) / k);
  return lawOf((x) => chances.reduce((sum, one, k) => sum + one * (chances[k - x] ?? 0), 0));
}

test("Skellam noise", () => {
  const coins = new WordCoins(new Stream("law: skellam").bytes);
  for (const variance of [2, 14, 600]) {
    const values = skellam(variance, 40000, coins)[Symbol.iterator]();
    fits(counted(40000, () => Number(values.next().value)), skellamLaw(variance / 2), 40000);
  }
});

test("Poisson tables are the distribution function, to the last bit of 64", () => {
  for (const mean of [1, 7, 40]) {
    const { first, floors } = tableOf(mean, 64);
    const finer = tableOf(mean, 192); // certified on its own, with more bits
    floors.slice(0, -1).forEach((one, i) => assert.equal(one, finer.floors[i + first - finer.first] >> 128n));
    let [term, sum] = [Math.exp(-mean), 0];
    for (let k = 0; k < first + floors.length - 1; k++) {
      sum += term;
      term *= mean / (k + 1);
      if (k >= first) assert.ok(Math.abs(Number(floors[k - first]) / 2 ** 64 - sum) < 1e-14);
    }
  }
});

test("rewards are rounded without bias", () => {
  const coins = new ExactCoins(new Stream("law: rounded").bytes);
  const whole = Math.floor(0.3 * 16);
  const law = new Map([[whole, 1 - (0.3 * 16 - whole)], [whole + 1, 0.3 * 16 - whole]]);
  fits(counted(40000, () => Number(rounded(0.3, 16n, coins))), law, 40000);
});

test("randomized elements: unary encoding, subsets, randomized response", () => {
  const coins = new ExactCoins(new Stream("law: randomizers").bytes);
  const hex = (/** @type {number} */ p) => Math.floor(p * 2 ** 53).toString(16);
  const [p, q] = [0.5, 0.27];
  const unary = new Randomizer([true, 4, 0, hex(p), hex(q)], 4);
  /** @type {Map<string, number>} */
  const ones = new Map();
  for (let set = 0; set < 16; set++) {
    const own = [0, 1, 2, 3].filter((e) => set & (1 << e));
    ones.set(own.join(), [0, 1, 2, 3].reduce((sum, e) => sum * (own.includes(e) ? (e === 2 ? p : q) : 1 - (e === 2 ? p : q)), 1));
  }
  fits(counted(40000, () => unary.draw(2, coins).join()), ones, 40000);
  const kept = 0.6;
  for (const [d, w] of [[5, 2], [5, 3], [4, 1]]) {
    const subset = new Randomizer([false, d, w, hex(kept), "0"], d);
    /** @type {Map<string, number>} */
    const law = new Map();
    const all = Array.from({ length: 1 << d }, (_, set) => Array.from({ length: d }, (_, e) => e).filter((e) => set & (1 << e)));
    const of = all.filter((one) => one.length === w);
    const inside = of.filter((one) => one.includes(1)).length;
    for (const one of of) law.set(one.join(), one.includes(1) ? kept / inside : (1 - kept) / (of.length - inside));
    fits(counted(40000, () => subset.draw(1, coins).join()), law, 40000);
  }
});

test("flips of a shuffled counter: few, rare, and by their distribution", () => {
  const base = { states: 2, actions: 1, horizon: 1, rows: null, session: "0000000000000000", step: null };
  for (const [flips, coin, n] of /** @type {[number, number, number][]} */ ([[13, 2 ** 31, 20000], [5, 2 ** 30, 20000], [1500, 2 ** 31, 20000]])) {
    const encoder = new ShuffleEncoder({ ...base, families: [["visits", flips, coin, false]] }, new Uint8Array(16));
    const bytes = new Stream(`law: ${flips} flips`).bytes;
    const base64 = BigInt(flips + 2);
    const drawn = () => { // state 1 is not visited: its counter holds noise alone
      const sent = encoder.message(1, null, { states: [0, 0], actions: [0], rewards: [0] }, bytes);
      return Number((new DataView(sent.buffer).getBigUint64(52, true) / base64) % base64);
    };
    const p = coin / 2 ** 32;
    const law = new Map();
    let log = flips * Math.log(1 - p);
    for (let k = 0; k <= flips; k++) {
      law.set(k, Math.exp(log));
      log += Math.log((flips - k) / (k + 1)) + Math.log(p / (1 - p));
    }
    fits(counted(n, drawn), law, n);
  }
});

test("every block of a message about a context has noise of its own scale", async () => {
  const features = await FeatureMap.of({ ranges: [["x", 0, 1]], actions: 2, form: "per_action", basis: "linear", radius: 1, intercept: true });
  const n = 3000;
  for (const family of /** @type {const} */ (["gaussian", "laplace"])) {
    const scales = [1.1, 2.3, 1.7, 2.9, 3.1, 0.8]; // of diagonals and the rest of two matrices, and of two responses
    const fields = {
      family, grid: 2, offsets: [0, 2, 3, 5, 6, 8, 10], scales, units: [2 ** -24, 2 ** -24, 2 ** -24, 2 ** -24, 2 ** -13, 2 ** -13],
      "form.actions": 2, "form.features": {}, "form.horizon": 1, "form.mask": null, "form.names": ["gram", "response"], "form.states": 1, session: "0000000000000000",
    };
    const device = new ContextDevice(fields, features, new Uint8Array(16));
    const bytes = new Stream(`law: context ${family}`).bytes;
    const phi = features.phi([0.4])[0].map((one) => Math.trunc(4096 * one));
    const own = [0, 0, 0, phi[0] ** 2, phi[1] ** 2, phi[0] * phi[1], 0, 0, -phi[0], -phi[1]]; // action 1, reward 0: y = -1 of a half
    /** @type {number[][]} */
    const drawn = own.map(() => []);
    for (let i = 0; i < n; i++) {
      const sent = device.message(1, null, { states: [[0.4]], actions: [1], rewards: [0] }, bytes);
      let [at, cell] = [52, 0];
      for (let block = 0; block < scales.length; block++) {
        const width = sent[at++];
        for (; cell < fields.offsets[block + 1]; cell++, at += width) {
          let value = 0n;
          for (let j = width - 1; j >= 0; j--) value = (value << 8n) | BigInt(sent[at + j]);
          drawn[cell].push(Number(BigInt.asIntN(8 * width, value)) - own[cell]);
        }
      }
    }
    scales.forEach((scale, block) => {
      const law = lawOf((x) => (family === "gaussian" ? Math.exp((-x * x) / (2 * scale * scale)) : Math.exp(-Math.abs(x) / scale)));
      for (let cell = fields.offsets[block]; cell < fields.offsets[block + 1]; cell++) {
        const values = drawn[cell][Symbol.iterator]();
        fits(counted(n, () => Number(values.next().value)), law, n);
      }
    });
  }
});

test("every block of a shuffled message about a context has noise of its own variance, and the reward is rounded without bias", async () => {
  const features = await FeatureMap.of({ ranges: [["x", 0, 1]], actions: 2, form: "per_action", basis: "linear", radius: 1, intercept: true });
  const variances = [2, 14, 6, 30, 10, 4]; // of diagonals and the rest of two matrices, and of two responses
  const fields = {
    variances, "form.actions": 2, "form.features": {}, "form.horizon": 1, "form.mask": null, "form.names": ["gram", "response"], "form.states": 1, session: "0000000000000000",
  };
  const device = new SkellamDevice(fields, features, new Uint8Array(16));
  const bytes = new Stream("law: shuffled context").bytes;
  const n = 3000;
  const phi = features.phi([0.4])[0].map((one) => Math.trunc(128 * one));
  const own = [0, 0, 0, phi[0] ** 2, phi[1] ** 2, phi[0] * phi[1], 0, 0, -32 * phi[0], -32 * phi[1]]; // action 1, reward 0
  const sizes = [2, 1, 2, 1, 2, 2];
  for (const reward of [0, 0.3]) {
    /** @type {number[][]} */
    const drawn = own.map(() => []);
    for (let i = 0; i < n; i++) {
      const sent = device.message(1, null, { states: [[0.4]], actions: [1], rewards: [reward] }, bytes);
      own.forEach((known, cell) => {
        let value = 0n;
        for (let j = device.width - 1; j >= 0; j--) value = (value << 8n) | BigInt(sent[52 + device.width * cell + j]);
        drawn[cell].push(Number(BigInt.asIntN(8 * device.width, value)) - known);
      });
    }
    let cell = 0;
    sizes.forEach((size, part) => {
      for (let i = 0; i < size; i++, cell++) {
        const law = skellamLaw(variances[part] / 2);
        const values = drawn[cell][Symbol.iterator]();
        if (reward === 0 || part < 5) fits(counted(n, () => Number(values.next().value)), law, n);
        else { // 0.3 is 19 or 20 of 64
          const whole = new Map();
          for (const [y, p] of [[19, 0.8], [20, 0.2]]) for (const [x, chance] of law) whole.set(x + y * phi[i], (whole.get(x + y * phi[i]) ?? 0) + p * chance);
          fits(counted(n, () => Number(values.next().value)), whole, n);
        }
      }
    });
  }
});

test("the system's bytes are uniform", () => { // these are drawn anew each time: a false alarm in 1e7 runs
  const coins = new ExactCoins();
  fits(counted(50000, () => Number(coins.below(11n))), new Map(Array.from({ length: 11 }, (_, i) => [i, 1 / 11])), 50000);
});
