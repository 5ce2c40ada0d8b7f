/**
 * A visitor answers four suggestions that the plan of a study chose; one randomized message tells of them.
 *
 * The address of this page ends with `#service=...&key=...&identity=...&epsilon=...&ticket=...`: what stands
 * behind # is sent to nobody. A deployed page has the first four in its own code, or a ticket could promise less.
 */
import { Client, Turned } from "../src/index.js";

const SUGGESTIONS = ["a walk before breakfast", "ten minutes on a bicycle", "a swim in the evening"];
const [NOTHING, LIKED, DISLIKED] = [0, 1, 2];

const given = new URLSearchParams(location.hash.slice(1));
const element = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const [question, choices, said, sent] = ["question", "choices", "said", "sent"].map(element);

/** Did she like it? @returns {Promise<boolean>} */
function answered() {
  return new Promise((done) => {
    element("yes").onclick = () => done(true);
    element("no").onclick = () => done(false);
  });
}

/** A place, also where the next plan is waited for. @param {Client} client @param {string} ticket */
async function placed(client, ticket) {
  for (;;) {
    try {
      return await client.place(ticket);
    } catch (error) {
      if (!(error instanceof Turned && error.reason === "full")) throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}

async function visit() {
  const [service, key, identity, epsilon, ticket] = ["service", "key", "identity", "epsilon", "ticket"].map((name) => {
    const found = given.get(name);
    if (!found) throw new Error(`The address of this page must end with what it needs: ${name} is missing.`);
    return found;
  });
  const client = new Client(service, { key, identity, promised: Number(epsilon) });
  const place = await placed(client, ticket);
  element("promise").textContent = `What you are promised: ${place.guarantee}`;
  const [states, actions, rewards] = [[NOTHING], /** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
  choices.hidden = false;
  for (let h = 0; h < place.horizon; h++) {
    const action = place.action(h, states[h]);
    question.textContent = `${h + 1} of ${place.horizon}: ${SUGGESTIONS[action]}?`;
    question.focus();
    const liked = await answered();
    actions.push(action);
    rewards.push(liked ? 1 : 0);
    states.push(liked ? LIKED : DISLIKED);
  }
  choices.hidden = true;
  question.textContent = "Thank you.";
  const message = place.message(states, actions, rewards);
  sent.textContent = JSON.stringify(message.table, null, 1);
  await client.send(message);
  said.textContent = `Your message was taken, for plan ${place.number}. The next plan is made of many of them.`;
}

visit().catch((error) => {
  choices.hidden = true;
  question.textContent = "This did not work.";
  said.textContent = error.message;
});
