/**
 * A person in Node: `node person.js URL KEY PROMISED TICKET...`, for each ticket a place and a message.
 *
 * PROMISED is what she was told: an epsilon, "central", or "shuffle" (then URL is the shuffler's).
 *
 * What she does here is made up: in every state she follows the plan, moves on to the next state, and is content
 * (reward 1) where the action was the last one. In a study with contexts her columns are random numbers.
 */
import { Client, Turned } from "../src/index.js";

const [url, key, told, ...tickets] = process.argv.slice(2);
const promised = told === "central" || told === "shuffle" ? told : Number(told);
const client = new Client(url, { key, promised, shuffler: told === "shuffle" ? url : undefined });
const { world } = await client.plan();

/** A place, also where the next plan is waited for. @param {string} ticket */
async function placed(ticket) {
  for (;;) {
    try {
      return await client.place(ticket);
    } catch (error) {
      if (!(error instanceof Turned && error.reason === "full")) throw error;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

for (const ticket of tickets) {
  const place = await placed(ticket);
  if (place.features) {
    const row = () => world.features.ranges.map((/** @type {[string, number, number]} */ [, low, high]) => low + (high - low) * Math.random());
    const x = place.features.form === "shared" ? Array.from({ length: world.actions }, row) : row();
    const action = place.action(0, x);
    console.log(JSON.stringify(await client.send(place.message([x], [action], [world.rewards[action === 0 ? 1 : 0]]))));
    continue;
  }
  const [states, actions, rewards] = [[0], /** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
  for (let h = 0; h < place.horizon; h++) {
    const action = place.action(h, states[h]);
    actions.push(action);
    rewards.push(world.rewards[action === world.actions - 1 ? 1 : 0]);
    states.push((states[h] + 1) % world.states);
  }
  const message = place.message(states, actions, rewards);
  console.log(JSON.stringify(await client.send(message)));
}
