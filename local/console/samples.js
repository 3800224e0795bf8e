// The samples of the last two minutes.

export const SPAN_SECONDS = 120;
const GAP_SECONDS = 2.5;

export class Samples {
  #samples = [];

  replace(samples) {
    this.#samples = samples.slice();
    this.#forget();
  }

  add(sample) {
    if (!this.last || sample.at > this.last.at) {
      this.#samples.push(sample);
      this.#forget();
    }
  }

  get last() {
    return this.#samples.at(-1);
  }

  // Returns the samples with a null in each gap, so that lines break there.
  withGaps() {
    return this.#samples.flatMap((sample, index) => {
      const before = this.#samples[index - 1];
      const gap = before && sample.at - before.at > GAP_SECONDS;
      return gap ? [{ at: before.at + 1, sample: null }, { at: sample.at, sample }] : [{ at: sample.at, sample }];
    });
  }

  #forget() {
    const from = this.last ? this.last.at - SPAN_SECONDS : 0;
    this.#samples = this.#samples.filter((sample) => sample.at >= from);
  }
}
