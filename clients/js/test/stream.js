/** The random bytes of the vectors: block i is SHA-256 of "<seed>:<i>". */
import { createHash } from "node:crypto";

export class Stream {
  /** @param {string} seed */
  constructor(seed) {
    this.seed = seed;
    this.used = 0;
  }

  /** The next ones. @param {number} size @returns {Uint8Array} */
  bytes = (size) => {
    const found = new Uint8Array(size);
    for (let i = 0; i < size; i++) {
      const at = this.used + i;
      if (this.block !== at >> 5 || !this.digest) {
        this.block = at >> 5;
        this.digest = createHash("sha256").update(`${this.seed}:${this.block}`).digest();
      }
      found[i] = this.seed.endsWith("zeros first") && at < 8 ? 0 : this.digest[at & 31];
    }
    this.used += size;
    return found;
  };
}
