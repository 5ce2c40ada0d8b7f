import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { deviceOf } from "../src/index.js";
import { fromBase64, toBase64 } from "../src/bytes.js";
import { ExactCoins, WordCoins } from "../src/coins.js";
import { Draws, FeatureMap } from "../src/features.js";
import { discreteGaussian, discreteLaplace, fractionOf } from "../src/noise.js";
import { skellam } from "../src/skellam.js";
import { Stream } from "./stream.js";

/** @type {{draws: any[], messages: any[], contexts: any[]}} */
const { draws, messages, contexts } = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));

test("uniform integers and noise are those of the Python device, byte by byte", () => {
  assert.ok(draws.length > 20);
  for (const { draw, of, drawn, bytes } of draws.filter((one) => one.draw !== "skellam")) {
    const stream = new Stream(typeof of === "string" ? `${draw} ${of}` : `${draw} ${pythonic(of)}`);
    const coins = new ExactCoins(stream.bytes);
    const one = draw === "below" ? () => coins.below(BigInt(of)) : () => (draw === "laplace" ? discreteLaplace : discreteGaussian)(fractionOf(of), coins);
    assert.deepEqual(drawn.map(() => String(one())), drawn, `${draw} ${of}`);
    assert.equal(stream.used, bytes);
  }
});

test("Skellam noise is that of the Python device, also of ties and of several parts", () => {
  const every = draws.filter((one) => one.draw === "skellam");
  assert.ok(every.length >= 8);
  for (const { of, drawn, bytes } of every) {
    const stream = new Stream(`skellam ${of}`);
    assert.deepEqual([...skellam(parseInt(of), drawn.length, new WordCoins(stream.bytes))], drawn, of);
    assert.equal(stream.used, bytes);
  }
});

for (const vector of messages) {
  test(`the same bytes: ${vector.name}`, async () => {
    const device = await deviceOf(fromBase64(vector.form));
    const stream = new Stream(vector.name);
    const sent = device.message(vector.plan, vector.policy, vector, stream.bytes);
    assert.equal(toBase64(sent), vector.message);
    assert.equal(stream.used, vector.bytes);
    const { epsilon, rho } = vector.guarantee;
    const close = (/** @type {number} */ a, /** @type {number} */ b) => assert.ok(Math.abs(a - b) <= 1e-12 * b, `${a} and ${b}`);
    if (rho !== null) {
      close(/** @type {number} */ (device.guarantee.rho), rho);
      close(device.guarantee.epsilonAt(1e-6), vector["at 1e-6"]);
    } else if (epsilon === null) assert.equal(device.guarantee.epsilon, Infinity);
    else close(/** @type {number} */ (device.guarantee.epsilon), epsilon);
  });
}

for (const vector of contexts) {
  test(`the same features, and the same actions: ${vector.name}`, async () => {
    const features = await FeatureMap.of(vector.features);
    const found = features.phi(vector.x);
    assert.deepEqual([found.length, found[0].length], [vector.phi.length, features.dimension]);
    if (vector.exact) assert.deepEqual(found, vector.phi);
    else found.flat().forEach((one, i) => assert.ok(Math.abs(one - vector.phi.flat()[i]) < 1e-14));
    assert.deepEqual(features.clipped(vector.x), vector.clipped);
    assert.deepEqual(features.phi(vector.clipped), found);
    for (const row of found) assert.ok(row.reduce((sum, one) => sum + Math.trunc(4096 * one) ** 2, 0) <= 4096 ** 2);
    const actions = vector.plans.map((/** @type {any} */ context) => features.action({ policy: vector.policy, context }, vector.x, new Draws()));
    assert.deepEqual(actions, vector.actions);
  });
}

/** As Python writes a float. @param {number} value */
function pythonic(value) {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}
