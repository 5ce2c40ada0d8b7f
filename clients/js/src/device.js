/**
 * The device of a published form, whichever kind it is.
 * @module
 */
import { ShuffleEncoder } from "./bits.js";
import { CountDevice } from "./counts.js";
import { headOf } from "./envelope.js";
import { ReportDevice } from "./reports.js";
import { ContextDevice, SkellamDevice } from "./sums.js";

/** @typedef {CountDevice | ReportDevice | ShuffleEncoder | ContextDevice | SkellamDevice} Device */

/** Raises on a form that is not supported. @param {Uint8Array<ArrayBuffer>} form @returns {Promise<Device>} */
export async function deviceOf(form) {
  const { kind } = headOf(form);
  if (kind === "counts") return CountDevice.fromBytes(form);
  if (kind === "reports") return ReportDevice.fromBytes(form);
  if (kind === "bits") return ShuffleEncoder.fromBytes(form);
  if (kind === "contexts") return ContextDevice.fromBytes(form);
  if (kind === "skellam-contexts") return SkellamDevice.fromBytes(form);
  throw new RangeError(`form: of kind '${kind}': counts, reports, bits, contexts and skellam-contexts are supported`);
}
