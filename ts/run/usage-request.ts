// UsageRequest: a request to the keeper for the resources that a run uses.

import type { RunUsage } from '../../index.js'
import type { NativeEvent } from '../native/addon.js'

export const NOTHING_USED: RunUsage = { processes: 0, cpuMs: 0, rssBytes: 0 }

/** A pending request. Callers share it. */
export class UsageRequest {
  answer!: (usage: RunUsage) => void
  readonly answered = new Promise<RunUsage>((resolve) => {
    this.answer = resolve
  })
}

export function usageOf({ processes = 0, cpuMs = 0, rssBytes = 0 }: NativeEvent): RunUsage {
  return { processes, cpuMs, rssBytes }
}
