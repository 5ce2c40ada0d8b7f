/**
 * Client of Discreet's policy service for browsers and Node, without dependencies.
 * @module
 */
export { Client, Guest, Message, NoAnswer, Place, Turned } from "./client.js";
export { CountDevice } from "./counts.js";
export { deviceOf } from "./device.js";
export { FeatureMap } from "./features.js";
export { Guarantee } from "./guarantee.js";
export { ReportDevice } from "./reports.js";
export { ContextDevice, SkellamDevice } from "./sums.js";
export { ShuffleEncoder } from "./bits.js";
