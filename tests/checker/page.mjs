// Run the page's script in Node: vectors (`vectors FILE`), or folders (`folders DIR...`). Prints JSON.
import { readFileSync, readdirSync } from "node:fs";
import { join, relative, sep } from "node:path";

const [page, kind, ...paths] = process.argv.slice(2);
const code = /<script type="module">([\s\S]*)<\/script>/.exec(readFileSync(page, "utf-8"))[1];
const core = await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`);
const hex = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (x) => parseInt(x, 16));
const filled = (losses) => losses.map((e) => ({ kind: "noise", noise: "laplace", levels: 1, joint: e, exchanges: [] }));

function answer(one) {
  const query = { first: one.kind !== "counts", pooled: false, states: one.states ?? 3, steps: one.steps, episodes: one.episodes };
  const weights = Object.fromEntries(Object.entries(one.scales ?? {}).map(([name, scale]) => [name, scale ** -2]));
  const features = { bound: one.bound, l1: 1, nonneg: one.nonneg };
  switch (one.kind) {
    case "gaussian": return core.gaussianEpsilon(one.mu, one.delta);
    case "gaussian delta": return core.gaussianDelta(one.mu, one.epsilon);
    case "zcdp": return core.zcdpEpsilon(one.rho, one.delta);
    case "pure": return core.composed(filled(one.losses)).slice(0, 2);
    case "counts": case "first visits": return core.countSensitivity(query, Number(one.norm[1]), one.scales);
    case "linear": return core.questionCost(weights, features, one.states, true, 2) ** 0.5;
    case "exchange": return core.exchangeEpsilon([core.wayOf(one.way)], one.delta, one.lower, [2 ** 13, 2 ** 14]).slice(0, 2);
    case "signature": return core.ed25519(hex(one.key), hex(one.message), hex(one.signature));
    case "refused": try { return core.canonical(core.strictJson(Buffer.from(one.text))); } catch { return null; }
    case "canonical": { const text = core.canonical(core.strictJson(Buffer.from(one.text))); return [text, core.sha256(text)]; }
  }
  throw new Error(`${one.kind}: unknown kind of vector`);
}

function folder(path) {
  const files = readdirSync(path, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
    .map((one) => join(one.parentPath ?? one.path, one.name));
  return new Map(files.map((file) => [relative(path, file).split(sep).join("/"), new Uint8Array(readFileSync(file))]));
}

const made = kind === "vectors" ? JSON.parse(readFileSync(paths[0], "utf-8")).map(answer) :
  paths.map((path) => core.verify(folder(path)).map((row) => [row[0], core.show(row[1]), core.show(row[2]), row[3]]));
console.log(JSON.stringify(made));
